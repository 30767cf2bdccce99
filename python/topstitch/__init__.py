"""topstitch: describe mathematics as a graph, differentiate, stitch, compile and run it.

The work is done by the C++ library; this package is its face.
"""

from . import _core as _core
from . import _ops as _ops
from . import _tensor as _tensor
from ._core import (
    DType,
    DTypeError,
    Executable,
    FileError,
    Graph,
    InternalError,
    NDArray,
    Operation,
    OutOfMemoryError,
    Report,
    ShapedType,
    Tensor,
    TopstitchError,
    UnsupportedError,
    UserError,
    __version__,
    bfloat16,
    bool_,
    complex64,
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
from ._ops import *  # noqa: F403
from ._ops import __all__ as _op_names

__all__ = [
    "Graph", "Tensor", "Operation", "Executable", "Report", "ShapedType", "NDArray", "gradients",
    "DType", "bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64",
    "TopstitchError", "UserError", "DTypeError", "UnsupportedError", "OutOfMemoryError", "FileError",
    "InternalError", "save_arrays", "load_arrays",
    "num_threads", "set_num_threads", "__version__",
]  # fmt: skip
__all__ += _op_names
