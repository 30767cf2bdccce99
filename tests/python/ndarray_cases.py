"""Arrays of every dtype and layout, for the tests of NDArray."""

import ml_dtypes
import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

NUMPY_DTYPES = {
    "bool": np.bool_,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "uint64": np.uint64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "float64": np.float64,
    "complex64": np.complex64,
}
BUFFER_DTYPES = {name: dtype for name, dtype in NUMPY_DTYPES.items() if name != "bfloat16"}


def values(name, shape):
    """Small distinct values of a dtype."""
    count = int(np.prod(shape))
    base = np.arange(count).reshape(shape)
    return np.asarray(base % 2 == 0 if name == "bool" else base % 100, dtype=NUMPY_DTYPES[name])


def address(a):
    return a.__array_interface__["data"][0]


def bits(a):
    """The bytes in row-major order, so that NaNs compare too."""
    return np.ascontiguousarray(a).tobytes()


@st.composite
def strided_arrays(draw):
    """Arrays of any supported dtype and any layout, as views of a packed one."""
    name = draw(st.sampled_from(sorted(NUMPY_DTYPES)))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4))
    a = values(name, shape)
    if a.ndim:
        a = a.transpose(draw(st.permutations(range(a.ndim))))
        steps = draw(st.tuples(*[st.sampled_from([1, 1, -1, 2, -2])] * a.ndim))
        a = a[tuple(slice(None, None, step) for step in steps)]
    if draw(st.booleans()):
        a = np.broadcast_to(a, (draw(st.integers(0, 3)), *a.shape))
    return a


class LegacyDLPack:
    """A producer from before DLPack 1.0."""

    def __init__(self, a):
        self.a = a

    def __dlpack__(self, stream=None):
        return self.a.__dlpack__()

    def __dlpack_device__(self):
        return (1, 0)


class VersionedDLPack(LegacyDLPack):
    def __dlpack__(self, *, max_version=None):
        assert max_version == (1, 0)
        return self.a.__dlpack__(max_version=max_version)


class WithArray:
    def __init__(self, a):
        self.a = a

    def __array__(self, dtype=None, copy=None):
        return self.a


class WithInterface:
    def __init__(self, a):
        self.a = a
        self.__array_interface__ = a.__array_interface__
