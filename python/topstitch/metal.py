"""Graphs in a Metal workflow of your own: your device, command queue, buffers, command buffers and events.

Objects of Metal are those of PyObjC (`import Metal`), or their addresses as integers. Everything here raises
UnsupportedError in a build without Metal, and UserError (a ValueError) with the reason for what cannot be used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _core
from ._core import Device, DType, DTypeError, Event, Executable, NDArray, float32
from ._types import ArrayLike, DTypeLike

__all__ = ["array", "buffer", "device", "encode", "event"]


def _address(value: Any, name: str) -> int:
    pointer = getattr(value, "__c_void_p__", None)  # of PyObjC's proxies
    address = value if pointer is None else pointer().value
    if isinstance(address, bool) or not isinstance(address, int):
        raise DTypeError(
            f"[metal] {name} must be an object of PyObjC or the address of one, not {type(value).__name__}"
        )
    return address


def device(mtl_device: Any, command_queue: Any = None) -> Device:
    """The Device over an MTLDevice, whose runs are committed to `command_queue`, an MTLCommandQueue of it.

    The same Device for the same objects, which are retained for good.
    """
    return _core.metal_device(_address(mtl_device, "mtl_device"), _address(command_queue or 0, "command_queue"))


def array(
    mtl_buffer: Any,
    shape: Sequence[int],
    dtype: DTypeLike = float32,
    *,
    offset: int = 0,
    device: Device | str = "metal",
) -> NDArray:
    """An NDArray over the memory of an MTLBuffer in shared storage, which is retained while a view of it lives.

    Elements are packed and begin at `offset`, in bytes.
    """
    return _core.metal_array(_device(device), _address(mtl_buffer, "mtl_buffer"), shape, DType.of(dtype), offset)


def buffer(array: NDArray, *, device: Device | str = "metal") -> tuple[int, int]:
    """The address of the MTLBuffer that holds the array, and the offset of its first element in bytes.

    The buffer lives as long as the array; `objc.objc_object(c_void_p=address)` makes an object of PyObjC of it. Results
    of runs on the device lie in buffers; arrays of the host do not.
    """
    return _core.metal_buffer(_device(device), array)


def event(mtl_shared_event: Any) -> Event:
    """The Event over an MTLSharedEvent: queues wait for what your Metal commands signal, and the other way round.

    The host waits for values and signals them; all Events over the same object agree. The object is retained.
    """
    return _core.metal_event(_address(mtl_shared_event, "mtl_shared_event"))


def encode(executable: Executable, command_buffer: Any, *inputs: ArrayLike) -> Any:
    """Encode a run into an MTLCommandBuffer, which the caller commits; it must have no open encoder.

    Gives the results, in the form of the targets; they are filled when the command buffer is completed. Inputs that do
    not lie in buffers of the device are copied here. Executables that wait for the GPU (while loops, branches, kernels
    that run on the CPU) or change variables are refused.
    """
    return executable._encode_metal(_address(command_buffer, "command_buffer"), *inputs)


def _device(value: Device | str) -> Device:
    return value if isinstance(value, Device) else Device(value)
