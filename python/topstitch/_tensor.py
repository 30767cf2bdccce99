"""Operators and methods of Tensor, and those of Graph that need more than the core.

They are attached to the classes of the C++ core when the package is imported.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from . import _core, _ops

_BINARY = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "power",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}
_LOGICAL = {"bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor"}
# What slice() takes for an open end: positions beyond either end are clamped.
_LAST = 2**63 - 1
_BEFORE_FIRST = -(2**63)
_COMPARISON = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}
_METHODS = [
    "sum", "mean", "variance", "product", "max", "min", "argmax", "argmin", "all", "any", "reshape", "transpose",
    "squeeze", "expand_dims", "broadcast_to", "exp", "log", "sqrt", "square", "tanh", "sigmoid", "relu", "softmax",
]  # fmt: skip


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or getattr(getattr(value, "dtype", None), "name", None) == "bool"


class _Method:
    """A function of an operation as a method; it is made when somebody asks for it."""

    def __init__(self, op: str) -> None:
        self._op = op

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return getattr(_ops, self._op).__get__(instance, owner)


def _operator(op: str, swapped: bool) -> Any:
    logical = _LOGICAL.get(op)

    def method(self: _core.Tensor, other: Any) -> Any:
        chosen = getattr(_ops, logical if logical is not None and _is_bool(self) else op)
        return chosen(other, self) if swapped else chosen(self, other)

    return method


def _getitem(self: _core.Tensor, key: Any) -> _core.Tensor:
    """Index with integers, slices, `...` and None, as NumPy does; the result is a view."""
    if self.shape is None:
        raise ValueError("[slice] a tensor of unknown rank cannot be indexed; give its placeholder a rank")
    items = list(key) if isinstance(key, tuple) else [key]
    for item in items:
        if not (item is None or item is Ellipsis or isinstance(item, slice) or hasattr(item, "__index__")):
            raise TypeError(
                f"[slice] a tensor is indexed by integers, slices, ... and None, not {type(item).__name__}; "
                "to pick elements by a tensor of indices use ts.gather or ts.gather_along_axis"
            )
    rank = len(self.shape)
    used = sum(item is not None and item is not Ellipsis for item in items)
    if sum(item is Ellipsis for item in items) > 1:
        raise ValueError("[slice] an index can have only one ellipsis ('...')")
    if used > rank:
        raise ValueError(f"[slice] {used} indices for a tensor of rank {rank}")
    if Ellipsis not in items:
        items.append(Ellipsis)
    where = items.index(Ellipsis)
    items[where : where + 1] = [slice(None)] * (rank - used)

    axes: list[int] = []
    starts: list[int] = []
    stops: list[int] = []
    steps: list[int] = []
    squeezed: list[int] = []
    added: list[int] = []
    axis = position = 0
    for item in items:
        if item is None:
            added.append(position)
            position += 1
            continue
        if isinstance(item, slice):
            if item != slice(None):
                step = 1 if item.step is None else item.step
                axes.append(axis)
                starts.append(item.start if item.start is not None else 0 if step > 0 else _LAST)
                stops.append(item.stop if item.stop is not None else _LAST if step > 0 else _BEFORE_FIRST)
                steps.append(step)
            position += 1
        else:
            index = item.__index__()
            size = self.shape[axis]
            if isinstance(size, int) and size >= 0 and not -size <= index < size:
                raise IndexError(f"[slice] index {index} is out of range for axis {axis} of size {size}")
            axes.append(axis)
            starts.append(index)
            stops.append(index + 1 if index != -1 else _LAST)
            steps.append(1)
            squeezed.append(axis)
        axis += 1
    result = self
    if axes:
        result = _ops.slice(result, starts, stops, steps=steps, axis=axes)
    if squeezed:
        result = _ops.squeeze(result, axis=squeezed)
    if added:
        result = _ops.expand_dims(result, axis=added)
    return result


@contextlib.contextmanager
def _control_dependencies(self: _core.Graph, operations: Sequence[_core.Operation]) -> Iterator[None]:
    """Operations created inside the block run after `operations`."""
    self._push_control_dependencies(list(operations))
    try:
        yield
    finally:
        self._pop_control_dependencies()


def _attach() -> None:
    tensor: Any = _core.Tensor
    for symbol, op in _BINARY.items():
        setattr(tensor, f"__{symbol}__", _operator(op, swapped=False))
        setattr(tensor, f"__r{symbol}__", _operator(op, swapped=True))
    for symbol, op in _COMPARISON.items():
        setattr(tensor, f"__{symbol}__", _operator(op, swapped=False))
    for name in _METHODS:
        setattr(tensor, name, _Method(name))
    tensor.__neg__ = _Method("negative")
    tensor.__pos__ = _Method("identity")
    tensor.__abs__ = _Method("absolute")
    tensor.__invert__ = lambda self: (_ops.logical_not if _is_bool(self) else _ops.bitwise_not)(self)
    tensor.astype = _Method("cast")
    tensor.T = property(lambda self: _ops.transpose(self))
    tensor.__getitem__ = _getitem
    # NumPy arrays on the left must leave the operation to us.
    tensor.__array_ufunc__ = None
    graph: Any = _core.Graph
    graph.control_dependencies = _control_dependencies


_attach()
