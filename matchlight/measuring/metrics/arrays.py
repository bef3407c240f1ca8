"""The arrays that metrics read and write, and what is taken for one: a list, a NumPy array or a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]  # places in a list, counted from 0; positions, counted from 1
Values = npt.NDArray[np.float64]  # a value for each query
Numbers = npt.ArrayLike | Tensor  # what a caller may hand over


def as_array(values: Numbers) -> Array:
    """NumPy's view of an array, list or tensor (any device, bfloat16 included)."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        return np.asarray((values.float() if "bfloat16" in str(values.dtype) else values).numpy())
    return np.asarray(values)
