"""The head of a cluster in its own process, for runs that kill it: Ray, and the deployment.

    python -m tests.fault.head CONFIG RAY_TEMP ADDRESS_FILE

ADDRESS_FILE gets Ray's address when it stands. Whoever starts this restarts it, as Kubernetes does.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path


def main(config: str, ray_temp: str, address_file: str) -> None:
    import ray

    import ray_canal as canal
    from ray_canal.errors import CanalError

    try:
        ray.init(
            num_cpus=3, include_dashboard=False, _temp_dir=ray_temp, object_store_memory=400 << 20
        )
    except Exception as error:  # a machine under load does not start Ray in its time
        print(f"start of Ray: {error}", file=sys.stderr, flush=True)
        again = ["-m", "tests.fault.head", config, f"{ray_temp}x", address_file]
        os.execv(sys.executable, [sys.executable, *again])
    made = Path(f"{address_file}.tmp")
    made.write_text(ray.get_runtime_context().gcs_address)
    os.replace(made, address_file)
    while True:
        try:
            canal.start(config)
            canal.start_sinks(config)
            break
        except CanalError as error:
            print(f"start: {error}", file=sys.stderr, flush=True)
            time.sleep(0.5)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main(*sys.argv[1:])
