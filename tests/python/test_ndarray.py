"""NDArray: in from anything array-like, out to everything, without copies; checked against NumPy."""

import array
import copy
import ctypes
import gc
import pickle
import subprocess
import sys
import textwrap
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import topstitch as ts

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


# ---- In and out ----


@settings(max_examples=400, deadline=None)
@given(strided_arrays())
def test_numpy_round_trip_shares_memory(a):
    nd = ts.NDArray(a)
    assert nd.shape == a.shape
    assert nd.ndim == a.ndim
    assert nd.size == a.size
    assert nd.nbytes == a.size * a.itemsize
    assert nd.itemsize == a.itemsize
    assert nd.dtype is a.dtype or nd.dtype == a.dtype
    assert isinstance(nd.dtype, np.dtype)
    assert nd.readonly == (not a.flags.writeable)
    out = np.asarray(nd)
    assert out.dtype == a.dtype
    assert bits(out) == bits(a)
    assert nd.numpy().dtype == a.dtype
    assert bits(nd.numpy()) == bits(a)
    if a.size:
        assert nd.strides == a.strides
        assert address(nd.numpy()) == address(a)
        assert address(out) == address(a)
    assert nd.numpy().flags.writeable == a.flags.writeable
    assert out.flags.writeable == a.flags.writeable


@settings(max_examples=200, deadline=None)
@given(strided_arrays())
def test_copy_is_packed_and_independent(a):
    nd = ts.NDArray(a, copy=True)
    assert nd.numpy().flags.c_contiguous
    assert not nd.readonly
    assert bits(nd) == bits(a)
    assert not np.shares_memory(nd.numpy(), a)
    assert bits(ts.NDArray(a).copy()) == bits(a)
    assert bits(copy.copy(ts.NDArray(a))) == bits(a)
    assert bits(copy.deepcopy(ts.NDArray(a))) == bits(a)


@settings(max_examples=100, deadline=None)
@given(strided_arrays())
def test_buffer_protocol_and_dlpack_out(a):
    nd = ts.NDArray(a)
    if a.dtype == ml_dtypes.bfloat16:
        with pytest.raises(BufferError):
            memoryview(nd)
    else:
        view = memoryview(nd)
        assert view.shape == a.shape
        assert view.readonly == (not a.flags.writeable)
        assert view.itemsize == a.itemsize
        assert bits(np.asarray(view)) == bits(a)
        if a.dtype not in (np.complex64, np.float16):  # Python knows no such formats
            assert view.tolist() == a.tolist()
        # NumPy has no bfloat16 in DLPack.
        back = np.from_dlpack(nd)
        assert bits(back) == bits(a)
        assert back.flags.writeable == a.flags.writeable
        if a.size:
            assert address(back) == address(a)


@pytest.mark.parametrize("name", sorted(BUFFER_DTYPES))
def test_buffer_formats_are_numpys(name):
    nd = ts.NDArray(values(name, (2, 3)))
    assert memoryview(nd).format == memoryview(values(name, (2, 3))).format
    assert np.asarray(nd).dtype.char == np.dtype(name).char


def test_buffer_requests_are_honoured():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert bytes(memoryview(ts.NDArray(a))) == a.tobytes()
    assert bytearray(ts.NDArray(a)) == bytearray(a.tobytes())
    with pytest.raises(TypeError, match="contiguous"):
        ctypes.c_char.from_buffer(ts.NDArray(a.T))  # wants contiguous memory
    frozen = a.copy()
    frozen.flags.writeable = False
    with pytest.raises(TypeError, match="writable"):
        ctypes.c_char.from_buffer(ts.NDArray(frozen))  # wants to write
    ctypes.c_float.from_buffer(ts.NDArray(a)).value = 42
    assert a[0, 0] == 42


def test_writes_are_seen_on_both_sides():
    a = np.zeros((2, 3), np.int32)
    nd = ts.NDArray(a)
    a[0, 1] = 5
    assert nd[0, 1] == 5
    nd[1, ::-1] = [1, 2, 3]
    assert a.tolist() == [[0, 5, 0], [3, 2, 1]]
    nd.T[2, 0] = 9
    assert a[0, 2] == 9


def test_read_only_arrays_stay_so():
    a = np.arange(3.0)
    a.flags.writeable = False
    nd = ts.NDArray(a)
    assert nd.readonly
    assert not nd[1:].numpy().flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        nd[0] = 1
    assert not nd.copy().readonly


@pytest.mark.parametrize(
    "source",
    [
        memoryview(b"abc"),
        b"abc",
        bytearray(b"abc"),
        array.array("d", [1, 2, 3]),
        (ctypes.c_int * 3)(1, 2, 3),
        np.float32(2.5),
        np.int8(-3),
        np.bool_(True),
        np.array(3.0),
        range(4),
        np.arange(24, dtype="q").reshape(2, 3, 4)[:, 1],
        [np.arange(3), np.arange(3)],
        [1, 2, 3],
        [[True, False]],
        (1.5, 2),
        [],
        [[], []],
        7,
        2.5,
        True,
    ],
    ids=repr,
)
def test_other_sources_are_read_as_numpy_reads_them(source):
    if isinstance(source, bytes):  # to NumPy a string; to us a buffer of bytes
        expected = np.frombuffer(source, np.uint8)
        with pytest.raises(TypeError, match="text"):
            ts.NDArray(source)
        source = memoryview(source)
    else:
        expected = np.asarray(source)
    nd = ts.NDArray(source)
    assert nd.shape == expected.shape
    assert nd.dtype == expected.dtype
    assert bits(nd) == bits(expected)


def test_buffers_are_not_copied():
    memory = bytearray(12)
    nd = ts.NDArray(memory)
    memory[3] = 7
    assert nd[3] == 7
    numbers = array.array("d", [1, 2, 3])
    nd = ts.NDArray(numbers)
    numbers[1] = 8
    assert nd[1] == 8


def test_python_complex_becomes_complex64():
    assert ts.NDArray(1 + 2j).dtype == "complex64"
    assert ts.NDArray([1, 2j]).dtype == "complex64"
    assert ts.NDArray([1, 2j]).tolist() == [1, 2j]


class WithInterface:
    def __init__(self, a):
        self.a = a
        self.__array_interface__ = a.__array_interface__


class WithArray:
    def __init__(self, a):
        self.a = a

    def __array__(self, dtype=None, copy=None):
        return self.a


def test_array_protocols_in():
    a = np.arange(6, dtype=np.int16).reshape(2, 3)[:, ::-1]
    for source in (WithInterface(a), WithArray(a)):
        nd = ts.NDArray(source)
        assert bits(nd) == bits(a)
        assert address(nd.numpy()) == address(a)


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


@pytest.mark.parametrize("producer", [LegacyDLPack, VersionedDLPack])
@pytest.mark.parametrize("name", sorted(BUFFER_DTYPES))
def test_dlpack_in(producer, name):
    for a in (values(name, (2, 3, 4))[::-1, :, ::2], values(name, ()), values(name, (0, 3)), values(name, (1, 4)).T):
        nd = ts.NDArray(producer(a))
        assert nd.dtype == a.dtype
        assert nd.shape == a.shape
        assert bits(nd) == bits(a)
        assert nd.readonly == (producer is LegacyDLPack)
        if a.size:
            assert address(nd.numpy()) == address(a)


def test_dlpack_in_read_only():
    a = np.arange(3.0)
    a.flags.writeable = False
    assert ts.NDArray(VersionedDLPack(a)).readonly


def test_dlpack_of_another_device_is_refused():
    class OnGpu(LegacyDLPack):
        def __dlpack_device__(self):
            return (2, 0)

    with pytest.raises(ts.UserError, match=r"NDArray: .*device .*\.cpu\(\)"):
        ts.NDArray(OnGpu(np.zeros(3)))


def test_dlpack_producer_that_lies():
    class NoCapsule(LegacyDLPack):
        def __dlpack__(self, **_):
            return 42

    with pytest.raises(ts.DTypeError, match="capsule"):
        ts.NDArray(NoCapsule(np.zeros(3)))
    used = np.zeros(3).__dlpack__()

    class UsedTwice(LegacyDLPack):
        def __dlpack__(self, **_):
            return used

    ts.NDArray(UsedTwice(None))
    with pytest.raises(ts.DTypeError, match="capsule"):
        ts.NDArray(UsedTwice(None))


def test_dlpack_that_fails_falls_back_to_array():
    class Grumpy(WithArray):
        def __dlpack__(self, **_):
            raise BufferError("no")

        def __dlpack_device__(self):
            return (1, 0)

    assert ts.NDArray(Grumpy(np.arange(3))).tolist() == [0, 1, 2]

    class Silent(Grumpy):
        __array__ = property()  # raises AttributeError

    with pytest.raises(ts.DTypeError):
        ts.NDArray(Silent(None))


def test_dlpack_out_arguments():
    nd = ts.NDArray(np.arange(4, dtype=np.float32))
    assert nd.__dlpack_device__() == (1, 0)
    assert "dltensor_versioned" in repr(nd.__dlpack__(max_version=(1, 1)))
    assert "dltensor_versioned" not in repr(nd.__dlpack__(max_version=(0, 8)))
    assert "dltensor_versioned" not in repr(nd.__dlpack__())
    nd.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError, match="stream"):
        nd.__dlpack__(stream=1)
    with pytest.raises(BufferError, match="CPU"):
        nd.__dlpack__(dl_device=(2, 0))
    frozen = np.arange(3.0)
    frozen.flags.writeable = False
    with pytest.raises(BufferError, match="read-only"):
        ts.NDArray(frozen).__dlpack__()
    copied = np.from_dlpack(nd, copy=True)
    copied[0] = 9
    assert nd[0] == 0
    # A field of records: strides that are no multiple of the element size.
    records = np.zeros(3, dtype=[("a", "u1"), ("x", "f4"), ("b", "u1")])
    records["x"] = [1, 2, 3]
    odd = np.ndarray((3,), np.uint16, buffer=bytearray(range(10)), strides=(3,))
    assert odd.flags.aligned is False
    for strange in (records["x"], odd):
        assert bits(np.from_dlpack(ts.NDArray(strange))) == bits(strange)


def test_dlpack_capsules_that_nobody_reads_are_freed():
    a = np.zeros(1000)
    before = sys.getrefcount(a)
    for _ in range(100):
        ts.NDArray(a).__dlpack__()
        ts.NDArray(a).__dlpack__(max_version=(1, 0))
    gc.collect()
    assert sys.getrefcount(a) == before


def test_dlpack_between_ndarrays():
    a = np.arange(6, dtype=np.float32).reshape(2, 3).T

    class Relay(VersionedDLPack):
        pass

    nd = ts.NDArray(Relay(ts.NDArray(a.astype(ml_dtypes.bfloat16))))
    assert nd.dtype == "bfloat16"
    assert nd.tolist() == a.tolist()


def test_torch():
    torch = pytest.importorskip("torch")
    for dtype in (
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
    ):
        t = torch.arange(6).to(getattr(torch, dtype)).reshape(2, 3)
        nd = ts.NDArray(t.T)
        assert nd.dtype == dtype
        assert ts.DType.of(getattr(torch, dtype)) == nd.dtype
        assert nd.shape == (3, 2)
        assert nd.tolist() == t.T.tolist()
        back = torch.from_dlpack(nd)
        assert back.dtype == t.dtype
        assert torch.equal(back, t.T)
        assert back.data_ptr() == t.data_ptr()
    t = torch.zeros(3)
    nd = ts.NDArray(t)
    t[1] = 5
    assert nd.tolist() == [0, 5, 0]
    del t
    gc.collect()
    assert nd.tolist() == [0, 5, 0]
    with pytest.raises(ts.DTypeError, match="detach"):
        ts.NDArray(torch.zeros(3, requires_grad=True))
    kept = torch.from_dlpack(ts.NDArray(np.arange(5)))
    gc.collect()
    assert kept.tolist() == [0, 1, 2, 3, 4]


def test_jax():
    jnp = pytest.importorskip("jax.numpy")
    for dtype in ("bool", "int32", "float16", "bfloat16", "float32", "complex64"):
        x = jnp.arange(6).reshape(2, 3).astype(dtype)
        nd = ts.NDArray(x)
        assert nd.dtype == dtype
        assert bits(nd) == bits(x)
        if dtype != "bool":
            assert bits(jnp.asarray(ts.NDArray(np.asarray(x)))) == bits(x)


# ---- Refusals ----


@pytest.mark.parametrize(
    ("bad", "hint"),
    [
        (np.zeros(3, ">f4"), "newbyteorder"),
        (np.zeros(3, ">i8"), "newbyteorder"),
        (np.zeros(3, [("x", "f4")]), "structured"),
        (np.array(["a", "b"]), "text"),
        (np.array([b"a"]), "text"),
        (np.zeros(3, "M8[s]"), "time"),
        (np.zeros(3, "m8[ms]"), "time"),
        (np.zeros(3, np.complex128), "complex64"),
        (np.zeros(3, np.clongdouble), "complex64"),
        (np.array([None, 1]), "Python objects"),
        (np.zeros(3, ml_dtypes.float8_e5m2), "not supported"),
        (np.zeros(3, "V4"), "not supported"),
        (np.ma.masked_array([1, 2], [True, False]), "masked"),
        (None, "None"),
        ("abc", "text"),
        (object(), "Python objects"),
        ({1: 2}, "Python objects"),
        ([[1, 2], [3]], "equal lengths"),
        ([1, "a"], "text"),
        ([1, None], "Python objects"),
    ],
    ids=lambda value: repr(value)[:40].replace("\n", ""),
)
def test_unreadable_sources(bad, hint):
    with pytest.raises(ts.DTypeError, match=hint) as info:
        ts.NDArray(bad)
    assert str(info.value).startswith("NDArray: ")
    assert isinstance(info.value, TypeError)
    assert isinstance(info.value, ts.TopstitchError)


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="long double is float64 here")
def test_long_double():
    with pytest.raises(ts.DTypeError, match="float64"):
        ts.NDArray(np.zeros(3, np.longdouble))


def test_too_many_dims():
    assert ts.NDArray(np.zeros((1,) * 16)).ndim == 16
    with pytest.raises(ts.UserError, match="17 dims; at most 16"):
        ts.NDArray(np.zeros((1,) * 17))
    with pytest.raises(ts.UserError, match="at most 16"):
        ts.NDArray(np.zeros((1,) * 16))[None]
    nested = 1.0
    for _ in range(17):
        nested = [nested]
    with pytest.raises(ts.UserError, match="at most 16"):
        ts.NDArray(nested)
    endless = []
    endless.append(endless)
    with pytest.raises(ts.DTypeError):
        ts.NDArray(endless)


def test_misaligned_data_is_copied():
    raw = bytearray(b"\0" * 9)
    a = np.frombuffer(raw, np.uint8)[1:].view(np.float32)
    assert not a.flags.aligned
    raw[1:] = np.array([1.5, 2.5], np.float32).tobytes()
    nd = ts.NDArray(a)
    assert nd.tolist() == [1.5, 2.5]
    assert address(nd.numpy()) % 4 == 0
    with pytest.raises(ts.UserError, match="aligned"):
        ts.NDArray(a, copy=False)


def test_errors_of_the_source_pass_through():
    class Interrupted:
        def __array__(self, dtype=None, copy=None):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ts.NDArray(Interrupted())


def test_huge_broadcasts_are_views_and_their_copies_memory_errors():
    a = np.broadcast_to(np.float32(1), (1 << 20, 1 << 20, 1 << 10))
    nd = ts.NDArray(a)
    assert nd.size == 1 << 50
    assert nd[5, 6, 7] == 1
    with pytest.raises(MemoryError) as info:
        nd.copy()
    assert isinstance(info.value, ts.OutOfMemoryError)
    assert isinstance(info.value, ts.TopstitchError)


# ---- Conversion ----


def test_dtype_argument_converts():
    a = np.array([1.7, -2.2, 300])
    for name in ("float32", "float16", "bfloat16", "int32", "complex64", "bool"):
        nd = ts.NDArray(a, dtype=name)
        assert nd.dtype == name
        assert bits(nd) == bits(a.astype(NUMPY_DTYPES[name]))
    assert ts.NDArray(a, dtype=ts.float64).numpy() is not a
    assert address(ts.NDArray(a, dtype=float).numpy()) == address(a)
    assert bits(ts.NDArray(ts.NDArray(a), dtype=np.float32)) == bits(a.astype(np.float32))
    with pytest.raises(ts.UserError, match="copy is False"):
        ts.NDArray(a, dtype="float32", copy=False)
    with pytest.raises(ts.UserError, match="copy is False"):
        ts.NDArray([1, 2], copy=False)
    assert address(ts.NDArray(a, copy=False).numpy()) == address(a)


@pytest.mark.parametrize("name", sorted(set(NUMPY_DTYPES) - {"bool", "complex64"}))
def test_plain_integers_adapt_within_range(name):
    dtype = np.dtype(NUMPY_DTYPES[name])
    assert ts.NDArray(3, dtype=name).tolist() == 3
    assert ts.NDArray([1, 2], dtype=name).tolist() == [1, 2]
    assert ts.NDArray([], dtype=name).shape == (0,)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        assert ts.NDArray([info.min, info.max], dtype=name).tolist() == [info.min, info.max]
        for bad in (info.min - 1, info.max + 1, 10**30, [0, info.max + 1]):
            with pytest.raises(ts.UserError):
                ts.NDArray(bad, dtype=name)
        with pytest.raises(ts.DTypeError, match="floats"):
            ts.NDArray(1.5, dtype=name)
        with pytest.raises(ts.DTypeError, match="floats"):
            ts.NDArray([1, 2.0], dtype=name)


def test_plain_values_and_their_dtypes():
    assert ts.NDArray(10**30, dtype="float32").item() == np.float32(1e30)
    assert ts.NDArray(2**63).dtype == "uint64"
    assert ts.NDArray(True, dtype="float32").item() == 1.0
    assert ts.NDArray(0.1, dtype="float16").item() == np.float16(0.1)
    assert ts.NDArray([1, 2j], dtype="complex64").tolist() == [1, 2j]
    with pytest.raises(ts.DTypeError, match="complex"):
        ts.NDArray(1j, dtype="float32")
    with pytest.raises(ts.DTypeError, match="integers"):
        ts.NDArray(1, dtype="bool")
    with pytest.raises(ts.UserError):
        ts.NDArray(10**30)
    # An array inside a list has a dtype, so that NumPy's conversion is what is asked for.
    assert ts.NDArray([np.float32(1.5)], dtype="int32").tolist() == [1]


def test_array_protocol_out():
    nd = ts.NDArray(np.arange(4, dtype=np.float32))
    assert np.asarray(nd, dtype=np.float64).dtype == np.float64
    assert np.array(nd).flags.owndata
    assert nd.__array__().dtype == np.float32
    assert address(nd.__array__(copy=False)) == address(nd.numpy())
    assert address(nd.__array__(copy=True)) != address(nd.numpy())
    assert nd.__array__(np.int32).dtype == np.int32
    assert nd.__array__(np.float32, copy=False).dtype == np.float32
    with pytest.raises(ValueError, match="copy is False"):
        nd.__array__(np.float64, copy=False)
    half = ts.NDArray(np.arange(4).astype(ml_dtypes.bfloat16))
    assert np.asarray(half).dtype == ml_dtypes.bfloat16
    assert address(np.asarray(half)) == address(half.numpy())
    assert np.asarray(half, dtype=np.float32).tolist() == [0, 1, 2, 3]
    assert not hasattr(half, "__array_interface__")
    interface = nd.__array_interface__
    assert interface["typestr"] == np.dtype(np.float32).str
    assert interface["shape"] == (4,)
    assert interface["data"] == (address(nd.numpy()), False)


def test_astype():
    nd = ts.NDArray(np.array([1.5, -2.5], np.float32))
    assert isinstance(nd.astype("int32"), ts.NDArray)
    assert nd.astype("int32").tolist() == [1, -2]
    assert nd.astype(ts.bfloat16).dtype == ts.bfloat16
    same = nd.astype("float32")
    assert not np.shares_memory(same.numpy(), nd.numpy())


# ---- Views ----

PARTS = st.one_of(
    st.integers(-5, 5),
    st.builds(slice, *[st.none() | st.integers(-6, 6)] * 2, st.none() | st.sampled_from([1, 2, 3, -1, -2])),
    st.just(...),
    st.none(),
)


@settings(max_examples=600, deadline=None)
@given(strided_arrays(), st.lists(PARTS, max_size=5).map(tuple) | PARTS)
def test_basic_indexing_is_numpys(a, key):
    try:
        expected = a[key]
    except IndexError:
        with pytest.raises(IndexError):
            ts.NDArray(a)[key]
        return
    got = ts.NDArray(a)[key]
    assert isinstance(got, ts.NDArray)
    assert got.shape == np.shape(expected)
    assert bits(got) == bits(expected)
    if got.size:
        assert np.shares_memory(got.numpy(), a)


def test_other_indexing_is_numpys():
    a = np.arange(12).reshape(3, 4)
    nd = ts.NDArray(a)
    for key in ([0, 2], np.array([1, 1]), a > 5, (slice(None), [3, 0]), True, np.array(2), (np.int64(1), np.uint8(2))):
        got = nd[key]
        assert isinstance(got, ts.NDArray)
        assert got.shape == np.shape(a[key])
        assert bits(got) == bits(a[key])
    assert bits(nd[ts.NDArray([2, 0])]) == bits(a[[2, 0]])
    assert bits(nd[ts.NDArray(a > 5)]) == bits(a[a > 5])
    for bad in (1.5, "x", (0, "y"), {}):
        with pytest.raises((IndexError, TypeError, ts.UserError)):
            nd[bad]
    for bad in (3, -4, 10**30, (0, 0, 0), (..., ...)):
        with pytest.raises(IndexError):
            nd[bad]
    with pytest.raises(TypeError):
        nd[1:"a"]
    with pytest.raises(ValueError, match="zero"):
        nd[::0]
    assert nd[:: 10**18].tolist() == a[:: 10**18].tolist()
    assert nd[:: -(2**63)].tolist() == a[:: -(2**63)].tolist()


@settings(max_examples=100, deadline=None)
@given(strided_arrays())
def test_transposes_and_reshapes_are_numpys(a):
    nd = ts.NDArray(a)
    assert bits(nd.T) == bits(a.T)
    assert bits(nd.transpose()) == bits(a.transpose())
    if a.ndim:
        order = [*range(1, a.ndim), 0]
        assert bits(nd.transpose(order)) == bits(a.transpose(order))
        assert bits(nd.transpose(*order)) == bits(a.transpose(*order))
    assert nd.reshape(a.size).tolist() == ts.NDArray(a.reshape(a.size)).tolist()
    assert nd.reshape((1, a.size, 1)).shape == (1, a.size, 1)
    if a.size:
        assert nd.reshape(-1).shape == (a.size,)


def test_bad_views():
    nd = ts.NDArray(np.arange(6).reshape(2, 3))
    assert nd.reshape(3, -1).shape == (3, 2)
    assert nd.reshape([3, 2]).shape == (3, 2)
    for bad in ((4,), (-1, -1), (5, -1), (-2, 3)):
        with pytest.raises(ts.UserError, match="reshape"):
            nd.reshape(bad)
    with pytest.raises(ts.DTypeError, match="integer"):
        nd.reshape(2.0, 3)
    with pytest.raises(ts.UserError, match="transpose"):
        nd.transpose(0, 0)
    with pytest.raises(ts.UserError, match="transpose"):
        nd.transpose(0, 2)
    with pytest.raises(ts.UserError, match="transpose"):
        nd.transpose(0)


# ---- NumPy arithmetic ----


def test_operators_are_numpys():
    a = np.array([[1.0, -2.0], [3.5, 4.0]], np.float32)
    b = np.array([2.0, 4.0], np.float32)
    na, nb = ts.NDArray(a), ts.NDArray(b)
    for expression in (
        "x + y", "x - y", "x * y", "x / y", "x // y", "x % y", "x ** y", "x @ y", "x == y", "x != y", "x < y", "x <= y",
        "x > y", "x >= y", "-x", "+x", "abs(x)", "divmod(x, y)[1]", "x + 1", "1 - x", "2 * x", "1 / x", "2 ** x", "7 % x", "7 // x",
        "divmod(9, x)[0]", "np.add(x, y)", "np.exp(x)", "x.mean()", "x.sum(axis=0)", "x.max()", "np.mean(x)", "np.sum(x, axis=1)", "x.argmax()",
        "np.where(x > 0, x, y)", "np.concatenate([x, y[None]])", "np.stack([x, x])", "x.std()", "x.flatten()", "x.clip(0, 1)", "np.reshape(x, (4, 1))",
        "np.transpose(x)", "np.zeros_like(x)", "np.result_type(x, y).type(3)", "np.broadcast_to(x, (2, 2, 2))", "np.finfo(x.dtype).eps", "np.max(x)", "np.allclose(x, x + 1e-9)", "np.linalg.norm(x)", "sum(x)", "x.T @ x", "[1, 2] + x", "x.round()",
    ):  # fmt: skip
        expected = eval(expression, {"x": a, "y": b, "np": np})
        for names in ({"x": na, "y": nb}, {"x": na, "y": b}, {"x": a, "y": nb}):
            got = eval(expression, {**names, "np": np})
            assert np.array_equal(np.asarray(got), expected), expression
            assert np.asarray(got).dtype == np.asarray(expected).dtype, expression
    i = np.array([5, 6], np.uint8)
    for expression in ("x & y", "x | y", "x ^ y", "x << y", "x >> y", "~x", "3 & x", "1 << x", "5 in x", "9 in x"):
        expected = eval(expression, {"x": i, "y": i})
        assert np.array_equal(eval(expression, {"x": ts.NDArray(i), "y": ts.NDArray(i)}), expected)


def test_bfloat16_arithmetic():
    a = np.array([1, 2.5, -3], ml_dtypes.bfloat16)
    nd = ts.NDArray(a)
    for got, expected in (
        (nd + nd, a + a),
        (a * nd, a * a),
        (nd.sum(), a.sum()),
        (np.exp(nd), np.exp(a)),
        (nd > 1, a > 1),
    ):
        assert np.array_equal(got, expected)
        assert got.dtype == expected.dtype
    assert nd.tolist() == [1.0, 2.5, -3.0]
    assert isinstance(nd.tolist()[0], float)
    assert isinstance(nd.item(1), float)
    assert float(nd[1]) == 2.5


def test_other_types_decide_for_themselves():
    class Symbolic:
        __array_ufunc__ = None

        def __radd__(self, other):
            return ("radd", type(other))

    assert (ts.NDArray([1, 2]) + Symbolic())[0] == "radd"
    assert (ts.NDArray([1, 2]) == "text") is False or not np.any(ts.NDArray([1, 2]) == "text")


def test_unknown_attributes():
    nd = ts.NDArray([1.0, 2.0])
    with pytest.raises(AttributeError, match="'NDArray' object has no attribute 'frobnicate'"):
        nd.frobnicate()
    assert not hasattr(nd, "_private")
    assert not hasattr(nd, "__array_struct__")
    assert {"mean", "shape", "numpy", "argsort"} <= set(dir(nd))
    with pytest.raises(AttributeError):
        nd.shape = (2, 1)


# ---- Scalars and sequences ----


def test_scalars():
    one = ts.NDArray(np.array([[2.75]], np.float32))
    assert float(one) == 2.75
    assert int(one) == 2
    assert complex(one) == 2.75
    assert bool(one)
    assert not ts.NDArray(0)
    assert one.item() == 2.75
    assert isinstance(one.item(), float)
    assert isinstance(ts.NDArray(3).item(), int)
    assert ts.NDArray([[1, 2], [3, 4]]).item(2) == 3
    assert ts.NDArray([[1, 2], [3, 4]]).item(1, 0) == 3
    assert list(range(ts.NDArray(np.uint8(3)))) == [0, 1, 2]
    assert f"{ts.NDArray(1.23456):.2f}" == "1.23"
    assert f"{ts.NDArray([1, 2])}" == "[1 2]"
    many = ts.NDArray([1, 2])
    with pytest.raises(TypeError, match="one element"):
        float(many)
    with pytest.raises(TypeError, match="one element"):
        int(many)
    with pytest.raises(ValueError, match=r"any\(\)"):
        bool(many)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(ts.NDArray([]))
    with pytest.raises(TypeError, match="index"):
        range(ts.NDArray(1.0))
    with pytest.raises(TypeError, match="index"):
        range(ts.NDArray([1]))
    with pytest.raises(ValueError, match=r"size 1|one|convert"):
        many.item()
    with pytest.raises(TypeError):
        hash(many)


def test_sequences():
    nd = ts.NDArray([[1, 2], [3, 4], [5, 6]])
    assert len(nd) == 3
    rows = list(nd)
    assert all(isinstance(row, ts.NDArray) for row in rows)
    assert [row.tolist() for row in rows] == [[1, 2], [3, 4], [5, 6]]
    assert [int(x) for x in nd[0]] == [1, 2]
    assert [row.tolist() for row in reversed(nd)] == [[5, 6], [3, 4], [1, 2]]
    first, *_rest = nd
    assert first.tolist() == [1, 2]
    scalar = ts.NDArray(1)
    with pytest.raises(TypeError, match="no length"):
        len(scalar)
    with pytest.raises(TypeError, match="no length"):
        iter(scalar)


@pytest.mark.parametrize("name", sorted(NUMPY_DTYPES))
def test_pickle_and_lists(name):
    a = values(name, (2, 3)).T
    nd = pickle.loads(pickle.dumps(ts.NDArray(a)))
    assert isinstance(nd, ts.NDArray)
    assert nd.dtype == name
    assert bits(nd) == bits(a)
    assert (
        ts.NDArray(a).tolist()
        == a.astype("complex128" if name == "complex64" else "float64" if "float" in name else name).tolist()
    )


def test_repr():
    assert repr(ts.NDArray(np.array([[1, 2.5]], np.float32))) == "NDArray([[1. , 2.5]], dtype=float32)"
    assert repr(ts.NDArray(np.int8(3))) == "NDArray(3, dtype=int8)"
    assert repr(ts.NDArray(np.zeros((0, 3)))) == "NDArray([], shape=(0, 3), dtype=float64)"
    assert repr(ts.NDArray(np.zeros(0, bool))) == "NDArray([], dtype=bool)"
    assert repr(ts.NDArray([[1, 2], [3, 4]])) == "NDArray([[1, 2],\n         [3, 4]], dtype=int64)"
    assert repr(ts.NDArray(np.ones(2, ml_dtypes.bfloat16))) == "NDArray([1, 1], dtype=bfloat16)"
    assert "..." in repr(ts.NDArray(np.zeros((100, 100))))
    assert str(ts.NDArray([1, 2])) == "[1 2]"
    with np.printoptions(precision=2):
        assert repr(ts.NDArray([0.12345])) == "NDArray([0.12], dtype=float64)"


def test_html():
    html = ts.NDArray(np.arange(12).reshape(3, 4))._repr_html_()
    assert "(3, 4) int64" in html
    assert html.count("<tr>") == 3
    assert html.count("<td>") == 12
    assert "<td>11</td>" in html
    long = ts.NDArray(np.zeros((1000, 1000)))._repr_html_()
    assert long.count("<tr>") == 11
    assert long.count("<td>") == 121
    assert "<td>2.5</td>" in ts.NDArray([1.0, 2.5])._repr_html_()
    assert "empty" in ts.NDArray([])._repr_html_()
    assert "<pre>7</pre>" in ts.NDArray(7)._repr_html_()
    assert "<pre>[[[" in ts.NDArray(np.zeros((2, 2, 2)))._repr_html_()
    assert "<td>1.5</td>" in ts.NDArray(np.array([1.5], ml_dtypes.bfloat16))._repr_html_()


# ---- DType ----


@pytest.mark.parametrize("name", sorted(NUMPY_DTYPES))
def test_dtypes(name):
    dtype = getattr(ts, "bool_" if name == "bool" else name)
    assert isinstance(dtype, ts.DType)
    assert dtype.name == name
    assert str(dtype) == name
    assert eval(repr(dtype), {"topstitch": ts}) is dtype
    assert dtype.itemsize == np.dtype(NUMPY_DTYPES[name]).itemsize
    assert dtype.numpy == np.dtype(NUMPY_DTYPES[name])
    assert np.dtype(dtype) == np.dtype(NUMPY_DTYPES[name])
    assert np.zeros(2, dtype=dtype).dtype == dtype
    assert hash(dtype) == hash(np.dtype(NUMPY_DTYPES[name]))
    assert {dtype: 1}[np.dtype(NUMPY_DTYPES[name])] == 1
    assert np.dtype(NUMPY_DTYPES[name]) == dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.deepcopy(dtype) is dtype
    kinds = (dtype.is_floating, dtype.is_integer, dtype.is_complex)
    assert kinds == ("float" in name, "int" in name, "complex" in name)
    for same in (dtype, name, np.dtype(NUMPY_DTYPES[name]), NUMPY_DTYPES[name]):
        assert ts.DType.of(same) is dtype
        assert dtype == same
        assert not (dtype != same)
    for other in NUMPY_DTYPES:
        assert (dtype == other) == (other == name)
    assert dtype != "nonsense"
    assert dtype != 3
    assert dtype is not None
    assert (dtype == None) is False  # noqa: E711
    assert {dtype: 1}[ts.DType.of(name)] == 1


def test_dtypes_of_python_types():
    assert ts.DType.of(float) is ts.float64
    assert ts.DType.of(int) == np.dtype(int)
    assert ts.DType.of(bool) is ts.bool_
    assert ts.DType.of("f4") is ts.float32
    assert ts.DType.of(np.zeros(1, np.int8).dtype) is ts.int8


@pytest.mark.parametrize(
    "bad",
    [
        "float31",
        "",
        3,
        None,
        (1, 2),
        [],
        object(),
        ">f4",
        "S3",
        complex,
        object,
        str,
        {"names": ["a"], "formats": ["f4"]},
        np.array,
    ],
)
def test_bad_dtypes(bad):
    with pytest.raises(ts.DTypeError, match="allowed are bool, int8"):
        ts.DType.of(bad)
    if bad is not None:
        with pytest.raises(ts.DTypeError):
            ts.NDArray([1], dtype=bad)


# ---- Errors ----


def test_exception_classes():
    for cls, builtin in (
        (ts.UserError, ValueError),
        (ts.DTypeError, TypeError),
        (ts.DTypeError, ts.UserError),
        (ts.UnsupportedError, NotImplementedError),
        (ts.OutOfMemoryError, MemoryError),
        (ts.InternalError, RuntimeError),
    ):
        assert issubclass(cls, builtin)
        assert issubclass(cls, ts.TopstitchError)
        assert cls.__module__ == "topstitch"
        assert cls.__doc__
        assert pickle.loads(pickle.dumps(cls("why"))).args == ("why",)
    assert issubclass(ts.TopstitchError, Exception)
    assert not issubclass(ts.UserError, TypeError)


# ---- Lifetimes ----


class Tracked(np.ndarray):
    """An array that can be watched by weak reference."""


def tracked(shape=(1000,)):
    a = np.arange(int(np.prod(shape)), dtype=np.float64).reshape(shape).view(Tracked)
    return a, weakref.ref(a)


def test_source_lives_as_long_as_any_view():
    a, ref = tracked((10, 10))
    views = [
        ts.NDArray(a),
        ts.NDArray(a)[2:].T[::-1],
        ts.NDArray(a).reshape(100),
        ts.NDArray(ts.NDArray(a)),
        ts.NDArray(a).numpy()[3:],
    ]
    views += [
        memoryview(ts.NDArray(a)),
        np.asarray(ts.NDArray(a)),
        np.from_dlpack(ts.NDArray(a)),
        ts.NDArray(VersionedDLPack(ts.NDArray(a))),
    ]
    views += [next(iter(ts.NDArray(a))), ts.NDArray(a).mean, ts.NDArray(WithArray(a)), ts.NDArray(WithInterface(a))]
    del a
    while views:
        gc.collect()
        assert ref() is not None
        view = views.pop()
        if isinstance(view, (memoryview, np.ndarray, ts.NDArray)):
            assert np.isfinite(np.asarray(view)).all()
        del view
    gc.collect()
    assert ref() is None


def test_reference_counts_are_balanced():
    a = np.zeros((3, 4))
    before = sys.getrefcount(a)
    for _ in range(200):
        nd = ts.NDArray(a)
        nd[1:].T.numpy().sum()
        nd + nd
        memoryview(nd).release()
        np.from_dlpack(nd)
        ts.NDArray(LegacyDLPack(a))
        ts.NDArray(VersionedDLPack(a))
        repr(nd)
        nd._repr_html_()
        for bad in ((9, 9), "x", 1.5):
            with pytest.raises((IndexError, TypeError, ts.UserError)):
                nd[bad]
        del nd
    gc.collect()
    assert sys.getrefcount(a) == before


def test_refused_sources_are_let_go():
    a, ref = tracked()
    for _ in range(3):
        with pytest.raises(ts.DTypeError):
            ts.NDArray([a, None])
    masked = np.ma.masked_array(a, False)
    with pytest.raises(ts.DTypeError):
        ts.NDArray(masked)
    del a, masked
    gc.collect()
    assert ref() is None


def test_memory_of_owned_arrays_outlives_them():
    nd = ts.NDArray(np.arange(100000), copy=True)
    out = nd.numpy()
    part = np.asarray(nd[500:600])
    external = np.from_dlpack(nd)
    del nd
    gc.collect()
    rubbish = [ts.NDArray(np.full(100000, -1), copy=True) for _ in range(5)]  # would reuse the block
    assert out[99999] == 99999
    assert part[0] == 500
    assert external[7] == 7
    assert len(rubbish) == 5


def test_threads():
    a = np.arange(1 << 18, dtype=np.float32).reshape(512, 512)
    expected = a.T.copy()
    errors = []

    def work():
        try:
            for _ in range(20):
                nd = ts.NDArray(a)
                packed = nd.T.copy()  # 1 MiB: copied without the GIL
                if not np.array_equal(packed.numpy(), expected):
                    errors.append("wrong copy")
                np.from_dlpack(packed[::2, 1:]).sum()
                ts.NDArray([1, 2, 3], dtype="bfloat16").tolist()
        except Exception as error:
            errors.append(error)

    before = sys.getrefcount(a)
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    gc.collect()
    assert sys.getrefcount(a) == before


@pytest.mark.parametrize(
    "code",
    [
        "keep = ts.NDArray(np.zeros(1000))",
        "ts.keep = ts.NDArray(np.zeros(1000)).numpy()",
        "import builtins; builtins.keep = [memoryview(ts.NDArray(np.zeros(9))), np.from_dlpack(ts.NDArray(np.zeros(9)))]",
        "cycle = [ts.NDArray(np.zeros(1000))]; cycle.append(cycle)",
        "import atexit; keep = ts.NDArray(np.zeros(9)); atexit.register(lambda: keep.copy())",
        "capsule = ts.NDArray(np.zeros(9)).__dlpack__()",
        "import threading, time\nkeep = ts.NDArray(np.zeros(1 << 20))\n"
        "def work():\n    while True: keep[::2].copy()\n"
        "threading.Thread(target=work, daemon=True).start(); time.sleep(0.2)",
    ],
)
def test_interpreter_shutdown_is_clean(code):
    program = textwrap.dedent("import numpy as np\nimport topstitch as ts\n") + code
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
