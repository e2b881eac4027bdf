"""Changes as Ray Datasets (`pip install "ray-canal[data]"`).

dataset = canal.read_binlogs(["/backup/binlogs"], tables=r"shop\\.orders")

with canal.changes(connector) as dataset: ...
"""

from __future__ import annotations

try:
    import ray.data as _ray_data  # noqa: F401
except ImportError as error:
    raise ImportError(
        f'ray_canal.datasets needs Ray Data ({error}): pip install "ray-canal[data]"'
    ) from error

from ray_canal.datasets.binlogs import read_binlogs
from ray_canal.datasets.log_changes import changes

__all__ = ["changes", "read_binlogs"]
