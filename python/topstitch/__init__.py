"""topstitch: describe mathematics as a graph, differentiate, stitch, compile and run it.

The work is done by the C++ library; this package is its face.
"""

from typing import TYPE_CHECKING, Any

from . import _core as _core
from . import _jobs as _jobs
from . import _ops as _ops
from . import _tensor as _tensor
from ._control import for_loop, if_else, scan, while_loop
from ._core import (
    CommandBuffer,
    Device,
    DType,
    DTypeError,
    Event,
    Executable,
    FileError,
    Graph,
    InternalError,
    Job,
    NDArray,
    Operation,
    OutOfMemoryError,
    Profile,
    Queue,
    Report,
    ShapedType,
    Tensor,
    TopstitchError,
    UnsupportedError,
    UserError,
    __version__,
    bfloat16,
    bool_,
    cache_statistics,
    clear_caches,
    complex64,
    default_queue,
    devices,
    float16,
    float32,
    float64,
    gradients,
    int8,
    int16,
    int32,
    int64,
    load_arrays,
    num_threads,
    save_arrays,
    set_num_threads,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ._ops import __all__ as _op_names

if TYPE_CHECKING:
    from . import layers, metal
    from ._buffers import from_buffer
    from ._core import CancelledError
    from ._ops import *  # noqa: F403
    from .image_batch import ImageBatch

__all__ = [
    "Graph", "Tensor", "Operation", "Executable", "Report", "ShapedType", "NDArray", "gradients",
    "if_else", "while_loop", "for_loop", "scan",
    "Device", "devices", "Queue", "default_queue", "CommandBuffer", "Event", "Job", "Profile",
    "cache_statistics", "clear_caches",
    "from_buffer", "ImageBatch",
    "DType", "bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64",
    "TopstitchError", "UserError", "DTypeError", "UnsupportedError", "OutOfMemoryError", "FileError",
    "InternalError", "CancelledError", "save_arrays", "load_arrays",
    "layers", "metal", "num_threads", "set_num_threads", "__version__",
]  # fmt: skip
__all__ += _op_names


def __getattr__(name: str) -> Any:
    """What is made when it is first asked for, since it would slow the import down.

    That is the functions of operations, and what needs NumPy, whose import takes several times as long as this one.
    """
    value: Any
    if name in _op_names:
        value = getattr(_ops, name)
    elif name == "CancelledError":
        value = _core.CancelledError
    elif name in ("layers", "metal"):
        import importlib

        value = importlib.import_module(f".{name}", __name__)
    elif name == "from_buffer":
        from ._buffers import from_buffer as value
    elif name == "ImageBatch":
        from .image_batch import ImageBatch as value
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
