"""Arrays over the memory of any object with the buffer protocol: bytes, mmap, shared memory, ctypes, ...

NumPy makes the views; what it does not check is checked here, so that no view reaches outside or outlives its buffer.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ._core import DType, DTypeError, NDArray, UserError, float32
from ._types import DTypeLike

_INT64 = 1 << 63
_MAX_RANK = 16


def _integer(value: Any, name: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise DTypeError(f"from_buffer: {name} must be an integer, not {type(value).__name__}") from None


def _integers(values: Any, name: str) -> list[int]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise DTypeError(f"from_buffer: {name} must be a sequence of integers, not {type(values).__name__}")
    return [_integer(value, f"each of {name}") for value in values]


def _bytes_of(buffer: Any) -> npt.NDArray[np.uint8]:
    """The memory as flat bytes, in an array that holds an export of the buffer for as long as it lives.

    numpy.ndarray(buffer=...) alone would give the export back at once, and a bytearray could then move under it.
    """
    kind = type(buffer).__name__
    try:
        view = memoryview(buffer)
    except TypeError as error:
        hint = "pass its .buf" if hasattr(buffer, "buf") else "ts.NDArray reads arrays, tensors, numbers and lists"
        raise DTypeError(f"from_buffer: the {kind} has no buffer protocol ({error}); {hint}") from error
    except (BufferError, ValueError) as error:
        raise UserError(
            f"from_buffer: the {kind} does not give its memory away ({error}); pass one that is open and whose type "
            "the buffer protocol knows, e.g. its bytes: array.view('uint8')"
        ) from error
    try:
        if "O" in re.sub(":[^:]*:", "", view.format):  # without the names of fields
            raise DTypeError(f"from_buffer: the {kind} holds Python objects, not numbers")
        if not view.c_contiguous:
            raise UserError(
                f"from_buffer: the memory of the {kind} is not contiguous in row-major order; pass the whole buffer "
                "and say where the elements are with offset and strides"
            )
        return np.frombuffer(view, np.uint8)
    finally:
        view.release()


def _sizes(shape: Any) -> list[int]:
    sizes = _integers(shape, "shape") if isinstance(shape, Iterable) else [_integer(shape, "shape")]
    if len(sizes) > _MAX_RANK:
        raise UserError(f"from_buffer: {len(sizes)} dims were given; at most {_MAX_RANK} are supported")
    if sizes.count(-1) > 1:
        raise UserError(f"from_buffer: only one size of shape {tuple(sizes)} may be -1")
    for size in sizes:
        if size < -1:
            raise UserError(f"from_buffer: the sizes of shape {tuple(sizes)} must be 0 or more, or -1 once")
    return sizes


def _row_strides(sizes: Sequence[int], itemsize: int, row_bytes: int) -> list[int]:
    """Packed strides, but for the rows, which lie `row_bytes` apart."""
    if not sizes:
        raise UserError("from_buffer: row_bytes needs at least one dim, but the shape is ()")
    if row_bytes < max(sizes[-1], 0) * itemsize:
        raise UserError(
            f"from_buffer: a row of {sizes[-1]} elements takes {sizes[-1] * itemsize} bytes, more than row_bytes "
            f"{row_bytes}; row_bytes counts from the start of one row to that of the next"
        )
    strides = [itemsize]
    for axis in range(len(sizes) - 1, 0, -1):
        strides.append(row_bytes if len(strides) == 1 else strides[-1] * sizes[axis])
    return strides[::-1]


def _packed_strides(sizes: Sequence[int], itemsize: int) -> list[int]:
    strides = [itemsize]
    for size in reversed(sizes[1:]):
        strides.append(strides[-1] * size)
    return strides[::-1] if sizes else []


def _reach(sizes: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """How far the elements lie below and above the first, in bytes; Python's integers cannot overflow."""
    steps = [stride * (size - 1) for size, stride in zip(sizes, strides, strict=True) if size > 1]
    return sum(step for step in steps if step < 0), sum(step for step in steps if step > 0)


def _fill_packed(sizes: list[int], room: int, itemsize: int) -> None:
    """Puts the size in the place of -1 so that elements without gaps use the room up."""
    others = math.prod(size for size in sizes if size != -1) * itemsize
    if others == 0:
        raise UserError(f"from_buffer: what -1 in shape {tuple(sizes)} stands for cannot be told beside a size of 0")
    if room % others:
        raise UserError(
            f"from_buffer: the {room} bytes from the offset on are no multiple of the {others} that one step along "
            f"-1 in shape {tuple(sizes)} takes; give the size, and the bytes left over are not used"
        )
    sizes[sizes.index(-1)] = room // others


def _fill_strided(sizes: list[int], strides: Sequence[int], offset: int, length: int, itemsize: int) -> None:
    """The same when elements lie `strides` apart: as many steps as stay inside the buffer."""
    axis = sizes.index(-1)
    others = [1 if size == -1 else size for size in sizes]
    stride = strides[axis]
    if 0 in others or stride == 0:
        raise UserError(
            f"from_buffer: what -1 in shape {tuple(sizes)} stands for cannot be told beside a size of 0 or with a "
            "stride of 0; give the size"
        )
    low, high = _reach(others, strides)
    room = offset + low if stride < 0 else length - (offset + high + itemsize)
    fits = offset + low >= 0 and offset + high + itemsize <= length
    sizes[axis] = room // abs(stride) + 1 if fits else 0


def _fill_rows(sizes: list[int], row_bytes: int, room: int, itemsize: int) -> None:
    """The size in the place of -1 where rows lie apart; the last row need not be padded."""
    axis = sizes.index(-1)
    if axis == len(sizes) - 1:
        sizes[axis] = max(row_bytes, 0) // itemsize if len(sizes) > 1 else min(max(row_bytes, 0), room) // itemsize
        return
    width = sizes[-1] * itemsize
    others = math.prod(size for size in sizes[:-1] if size != -1)
    if width == 0 or others == 0 or row_bytes <= 0:
        raise UserError(f"from_buffer: what -1 in shape {tuple(sizes)} stands for cannot be told beside a size of 0")
    rows = (room - width) // row_bytes + 1 if room >= width else 0
    if rows % others:
        raise UserError(
            f"from_buffer: the buffer holds {rows} rows of {row_bytes} bytes, which is no multiple of the {others} "
            f"that one step along -1 in shape {tuple(sizes)} takes; give the size"
        )
    sizes[axis] = rows // others


def _complete(
    sizes: list[int], itemsize: int, offset: int, length: int, row_bytes: int | None, strides: Sequence[int] | None
) -> list[int]:
    """Puts a size in the place of -1 and returns the strides."""
    if strides is not None:
        if row_bytes is not None:
            raise UserError("from_buffer: row_bytes and strides say the same thing; give one of them")
        steps = _integers(strides, "strides")
        if len(steps) != len(sizes):
            raise UserError(f"from_buffer: {len(sizes)} sizes but {len(steps)} strides were given; give one for each")
        if -1 in sizes:
            _fill_strided(sizes, steps, offset, length, itemsize)
        return steps
    if row_bytes is not None:
        row = _integer(row_bytes, "row_bytes")
        if -1 in sizes:
            _fill_rows(sizes, row, length - offset, itemsize)
        return _row_strides(sizes, itemsize, row)
    if -1 in sizes:
        _fill_packed(sizes, length - offset, itemsize)
    return _packed_strides(sizes, itemsize)


def _check_alignment(dtype: np.dtype[Any], address: int, offset: int, sizes: list[int], strides: list[int]) -> None:
    unit = dtype.alignment
    mend = "or read the bytes with numpy.ndarray(shape, dtype, buffer, offset, strides), which ts.NDArray then copies"
    if (address + offset) % unit:
        nearest = offset - (address + offset) % unit
        other = f"an offset of {nearest if nearest >= 0 else nearest + unit} would do, {mend}"
        raise UserError(
            f"from_buffer: {dtype} has to lie at addresses that are multiples of {unit}, and at offset {offset} this "
            f"buffer is {(address + offset) % unit} beyond one; {other}"
        )
    for size, stride in zip(sizes, strides, strict=True):
        if size > 1 and stride % unit:
            raise UserError(
                f"from_buffer: a stride of {stride} bytes is no multiple of {unit}, to which {dtype} is aligned; pad "
                f"the rows, {mend}"
            )


def from_buffer(
    buffer: Any,
    shape: Sequence[int] | int,
    dtype: DTypeLike = float32,
    *,
    offset: int = 0,
    row_bytes: int | None = None,
    strides: Sequence[int] | None = None,
    readonly: bool | None = None,
) -> NDArray:
    """An NDArray over the memory of `buffer`, without a copy.

    `buffer` is anything with the buffer protocol in contiguous memory: bytes, bytearray, memoryview, array.array,
    mmap.mmap, the `buf` of multiprocessing's SharedMemory, ctypes arrays, NumPy arrays. Its own element type does not
    matter: the bytes are read as `dtype`, in the byte order of the machine.

    shape      one size may be -1, for what the buffer holds from `offset` on
    offset     where the first element lies, in bytes
    row_bytes  the bytes from one row to the next, where a row is what the last axis counts; the other axes are
               packed around the rows
    strides    instead of row_bytes: the bytes between neighbours along each axis, of any sign and also 0
    readonly   True gives a read-only array; False demands a writable buffer; None takes what the buffer is

    As long as the array or a view of it lives, the buffer stays alive and refuses to be resized or closed
    (BufferError). Changing the bytes changes the array.

    Raises UserError (a ValueError) when an element would lie outside of the buffer or not aligned to its size, and
    DTypeError (a TypeError) when `buffer` has no memory to give or an argument has the wrong type.
    """
    kind = DType.of(dtype).numpy
    sizes = _sizes(shape)
    start = _integer(offset, "offset")
    memory = _bytes_of(buffer)
    length = memory.nbytes
    if not 0 <= start <= length:
        raise UserError(f"from_buffer: offset {start} is outside of the buffer of {length} bytes")
    steps = _complete(sizes, kind.itemsize, start, length, row_bytes, strides)
    if math.prod(size for size in sizes if size > 0) * kind.itemsize >= _INT64:
        raise UserError(f"from_buffer: shape {tuple(sizes)} of {kind} is too large: its bytes do not fit in 63 bits")
    low, high = _reach(sizes, steps)
    if 0 in sizes:
        start, steps = 0, _packed_strides([0] * len(sizes), kind.itemsize)  # no element, no place
    elif start + low < 0 or start + high + kind.itemsize > length:
        raise UserError(
            f"from_buffer: shape {tuple(sizes)} of {kind} with strides {tuple(steps)} takes the bytes "
            f"[{start + low}, {start + high + kind.itemsize}) of a buffer of {length}"
        )
    else:
        # Only an axis of one step may still have a stride beyond 63 bits, which then means nothing.
        steps = [step if -_INT64 <= step < _INT64 else kind.itemsize for step in steps]
        _check_alignment(kind, memory.__array_interface__["data"][0], start, sizes, steps)

    if readonly is False and not memory.flags.writeable:
        raise UserError(
            f"from_buffer: the {type(buffer).__name__} is read-only, but readonly is False; pass e.g. a bytearray of it"
        )
    view: npt.NDArray[Any] = np.ndarray(sizes, kind, memory, start, steps)
    if readonly:
        view.flags.writeable = False
    return NDArray(view, copy=False)
