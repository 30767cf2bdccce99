"""NDArray: in from anything array-like, out to everything, without copies; checked against NumPy."""

import array
import copy
import ctypes
import gc
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

import topstitch as ts
from ndarray_cases import (
    BUFFER_DTYPES,
    NUMPY_DTYPES,
    LegacyDLPack,
    VersionedDLPack,
    WithArray,
    WithInterface,
    address,
    bits,
    strided_arrays,
    values,
)

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


def test_array_protocols_in():
    a = np.arange(6, dtype=np.int16).reshape(2, 3)[:, ::-1]
    for source in (WithInterface(a), WithArray(a)):
        nd = ts.NDArray(source)
        assert bits(nd) == bits(a)
        assert address(nd.numpy()) == address(a)


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
