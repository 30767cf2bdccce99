"""Objects that lie about being arrays get an exception, never a crash; conversions are safe from many threads.

A tensor of DLPack is made by hand here, field by field, so that each field can be wrong.
"""

import ctypes
import sys
import threading

import ml_dtypes
import numpy as np
import pytest

import topstitch as ts
from ndarray_cases import VersionedDLPack, WithArray, bits

# ---- DLPack ----


class Tensor(ctypes.Structure):
    """DLTensor and the fields of DLManagedTensor behind it."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


class Forged:
    """A producer of whatever tensor it is given; keeps its parts alive."""

    def __init__(self, shape=(2, 3), strides=None, code=2, width=32, lanes=1, data=True, ndim=None, offset=0):
        self.memory = (ctypes.c_float * 64)(*range(64))
        self.shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        self.strides = (ctypes.c_int64 * len(strides))(*strides) if strides else None
        self.tensor = Tensor(
            data=ctypes.addressof(self.memory) if data else None,
            device_type=1,
            ndim=len(shape) if ndim is None else ndim,
            code=code,
            bits=width,
            lanes=lanes,
            shape=self.shape,
            strides=self.strides,
            byte_offset=offset,
        )

    def __dlpack__(self, **_):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None)

    def __dlpack_device__(self):
        return (1, 0)


def test_forged_tensors_that_are_right():
    assert ts.NDArray(Forged()).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert ts.NDArray(Forged((2, 3), (1, 2))).tolist() == [[0, 2, 4], [1, 3, 5]]
    assert ts.NDArray(Forged((2, 3), offset=8)).tolist() == [[2, 3, 4], [5, 6, 7]]
    assert ts.NDArray(Forged((3,), offset=2)).shape == (3,)  # not aligned, so moved
    assert ts.NDArray(Forged((2, 2), (0, -1), offset=16)).tolist() == [[4, 3], [4, 3]]
    assert ts.NDArray(Forged((0, 3), data=False)).shape == (0, 3)
    assert ts.NDArray(Forged(())).item() == 0
    assert ts.NDArray(Forged((1, 1), (1 << 62, -(1 << 62)))).tolist() == [[0]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": False}, "no memory"),
        ({"shape": (-1, 3)}, "negative"),
        ({"shape": (-2, -3)}, "negative"),
        ({"shape": (1 << 62, 1 << 62)}, "too large"),
        ({"shape": (1 << 61, 2)}, "too large|63 bits"),
        ({"shape": (2, 3), "strides": (1 << 62, 1)}, "too large"),
        ({"shape": (3, 3), "strides": (1 << 60, 1 << 60)}, "63 bits"),
        ({"shape": (3, 3), "strides": (1 << 60, -(1 << 60))}, "63 bits"),
        ({"ndim": -1}, "-1 dims"),
        ({"ndim": 17}, "17 dims; at most 16"),
        ({"lanes": 4}, "4 lanes"),
        ({"width": 33}, "33 bits"),
        ({"code": 99}, "code 99"),
        ({"code": 4, "width": 8}, "code 4"),
        ({"code": 5, "width": 128}, "128 bits"),
    ],
)
def test_forged_tensors_that_are_wrong(options, message):
    with pytest.raises(ts.UserError, match=message) as info:
        ts.NDArray(Forged(**options))
    assert str(info.value).startswith("NDArray: ") or "too large" in str(info.value)


class Producer:
    def __init__(self, device, capsule=None):
        self.device, self.capsule = device, capsule

    def __dlpack_device__(self):
        if isinstance(self.device, BaseException):
            raise self.device
        return self.device

    def __dlpack__(self, **_):
        if isinstance(self.capsule, BaseException):
            raise self.capsule
        return self.capsule


@pytest.mark.parametrize(
    "device",
    [5, None, (), (1,), (1, 0, 0), ("cpu", 0), (1.5, 0), (1 << 80, 0), "cpu", ValueError("no"), (2, 0), (-1, 0)],
)
def test_garbage_for_a_device(device):
    with pytest.raises(ts.UserError, match=r"^NDArray: "):
        ts.NDArray(Producer(device))


@pytest.mark.parametrize("capsule", [None, 5, b"dltensor", ValueError("no"), TypeError("no"), RecursionError("deep")])
def test_garbage_for_a_capsule(capsule):
    with pytest.raises(ts.DTypeError, match=r"^NDArray: "):
        ts.NDArray(Producer((1, 0), capsule))


def test_a_producer_that_refuses_is_asked_once():
    class Refusing(Producer):
        asked = 0

        def __dlpack__(self, **_):
            self.asked += 1
            raise TypeError("arrays with nulls are not exported")

    source = Refusing((1, 0))
    with pytest.raises(ts.DTypeError, match="with nulls"):
        ts.NDArray(source)
    assert source.asked == 1


# ---- __array__ and __array_interface__ ----


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (5, ts.DTypeError),
        (None, ts.DTypeError),
        ("abc", ts.DTypeError),
        ([1, 2], ts.DTypeError),
        (np.zeros((1,) * 17), ts.UserError),
        (np.array([None]), ts.DTypeError),
        (np.array(["2020"], "M8"), ts.DTypeError),
        (np.ma.masked_array([1, 2], [True, False]), ts.DTypeError),
        (np.zeros(2, ml_dtypes.float8_e5m2), ts.DTypeError),
    ],
)
def test_garbage_from_array(answer, error):
    for copy in (None, True, False):
        with pytest.raises(error, match=r"^NDArray: "):
            ts.NDArray(WithArray(answer), copy=copy)


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("x"), KeyError("x"), OSError("x"), MemoryError("x"), KeyboardInterrupt(), SystemExit(3)]
)
def test_errors_of_sources_pass_through(error):
    class Raising:
        def __array__(self, dtype=None, copy=None):
            raise error

    for copy in (None, False):
        with pytest.raises(type(error)) as info:
            ts.NDArray(Raising(), copy=copy)
        assert info.value is error
    with pytest.raises(type(error)):
        ts.NDArray(Producer((1, 0), error))


@pytest.mark.parametrize(
    "interface",
    [
        {},
        {"version": 3},
        {"version": 3, "shape": (-1,), "typestr": "<f4", "data": (0, False)},
        {"version": 3, "shape": "ab", "typestr": "<f4", "data": (0, False)},
        {"version": 3, "shape": (2,), "typestr": "nonsense", "data": (0, False)},
        {"version": 3, "shape": (2,), "typestr": "<f4", "data": ("x", False)},
        {"version": 3, "shape": (2,), "typestr": "|O", "data": (0, False)},
        5,
        None,
    ],
)
def test_garbage_for_an_interface(interface):
    class Lying:
        __array_interface__ = interface

    with pytest.raises(ts.UserError, match=r"^NDArray: "):
        ts.NDArray(Lying())


def test_a_shape_that_changes_while_it_is_read():
    class Growing:
        size = 0

        def __len__(self):
            self.size += 1
            return self.size

        def __getitem__(self, index):
            if index > 5:
                raise IndexError
            return index

    with pytest.raises((ts.UserError, ValueError)):
        ts.NDArray([Growing(), Growing(), [1]])


# ---- Ranks, from every side ----


@pytest.mark.parametrize("make", [lambda a: a, VersionedDLPack, WithArray, memoryview])
def test_ranks(make):
    for shape in ((), (1,) * 16, (2,) * 16, (0,) + (1,) * 15):
        a = np.ones(shape, np.int8)
        assert bits(ts.NDArray(make(a))) == bits(a)
    with pytest.raises(ts.UserError, match="17 dims"):
        ts.NDArray(make(np.ones((1,) * 17, np.int8)))


# ---- Threads ----


def test_threads_that_convert_the_same_object():
    memory = bytearray(np.arange(4096, dtype=np.float32).tobytes())
    a = np.frombuffer(memory, np.float32)
    sources = [a, memory, memoryview(memory), VersionedDLPack(a), WithArray(a), [1.0, 2.0]]
    counts = [sys.getrefcount(source) for source in sources]
    problems = []
    barrier = threading.Barrier(6)

    def work():
        try:
            barrier.wait()
            for _ in range(100):
                for source in sources:
                    nd = ts.NDArray(source)
                    if nd.dtype == "float32" and nd[4095] != 4095:
                        problems.append("wrong value")
                nd = ts.from_buffer(memory, (-1, 64))
                ts.ImageBatch([nd, nd]).to_ndarray("NCHW")
        except Exception as error:
            problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert [sys.getrefcount(source) for source in sources] == counts


def test_threads_that_run_on_the_same_feed():
    g = ts.Graph()
    x = g.placeholder((-1,))
    total = ts.sum(x)
    memory = bytearray(np.ones(1000, np.float32).tobytes())
    results = []

    def work():
        results.extend(float(g.run({x: ts.from_buffer(memory, -1)}, total)) for _ in range(50))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [1000.0] * 200
    memory.append(0)
