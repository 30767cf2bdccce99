"""The types of arguments that the package accepts.

Only for annotations: conversions happen in the C++ core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from ._core import DType, NDArray, Tensor

ArrayLike: TypeAlias = Any  # NumPy arrays, NDArrays, DLPack and buffer producers, numbers, nested lists
TensorLike: TypeAlias = "Tensor | ArrayLike"
DTypeLike: TypeAlias = "DType | str | type | Any"
ShapeLike: TypeAlias = "Sequence[int | str] | int | None"
Targets: TypeAlias = "Tensor | Sequence[Tensor] | Mapping[Any, Tensor] | None"
Results: TypeAlias = "NDArray | list[NDArray] | tuple[NDArray, ...] | dict[Any, NDArray]"
