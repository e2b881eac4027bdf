"""Names of numpy array types. Shapes are said where they are used."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
Records = npt.NDArray[np.void]
"""Array of a structured dtype (binlog/chunk.py has them)."""
