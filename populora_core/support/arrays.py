"""Arrays that many rooms name."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

Places = NDArray[np.int64]
"""Indices into another array or sequence."""
