"""ts.ImageBatch: images of one size into a tensor and back, checked against formulas in NumPy.

The rows with Pillow skip where it is not installed; no test makes Pillow necessary for the package.
"""

import subprocess
import sys
import tracemalloc

import ml_dtypes
import numpy as np
import pytest

import topstitch as ts
from ndarray_cases import VersionedDLPack, address, bits

MEAN = [0.485, 0.456, 0.406]
STD = [0.229, 0.224, 0.225]


def images(count=3, shape=(5, 7, 3), dtype=np.uint8, seed=0):
    rng = np.random.default_rng(seed)
    if dtype == np.uint8:
        return [rng.integers(0, 256, shape, np.uint8) for _ in range(count)]
    return [rng.uniform(-1, 2, shape).astype(dtype) for _ in range(count)]


@pytest.fixture
def pil():
    return pytest.importorskip("PIL.Image")


# ---- The list ----


def test_a_batch_is_a_list_of_views():
    sources = images()
    batch = ts.ImageBatch(sources)
    assert (len(batch), batch.height, batch.width, batch.channels) == (3, 5, 7, 3)
    assert batch.dtype is ts.uint8
    assert repr(batch) == "<ImageBatch of 3: 5 x 7 with 3 channels, uint8>"
    for k, (image, source) in enumerate(zip(batch, sources, strict=True)):
        assert isinstance(image, ts.NDArray)
        assert image.shape == (5, 7, 3)
        assert address(image) == address(source) == address(batch[k])
    assert address(batch[-1]) == address(sources[2])
    part = batch[1:]
    assert isinstance(part, ts.ImageBatch)
    assert len(part) == 2
    assert address(part[0]) == address(sources[1])
    with pytest.raises(IndexError):
        batch[3]
    with pytest.raises(ts.UserError, match="no images"):
        batch[3:]
    sources[0][0, 0, 0] ^= 255
    assert batch[0][0, 0, 0] == sources[0][0, 0, 0]


def test_sources():
    a = images(1)[0]
    for source in (a, ts.NDArray(a), VersionedDLPack(a), a[::-1, ::-1], memoryview(a)):
        assert bits(ts.ImageBatch([source])[0]) == bits(np.asarray(source if not hasattr(source, "a") else source.a))
    grey = ts.ImageBatch([a[..., 0], a[..., 1:2]])
    assert grey.channels == 1
    assert grey[0].shape == (5, 7, 1)
    assert ts.ImageBatch(iter([a, a])).channels == 3
    assert ts.ImageBatch([np.zeros((2, 2, 9), np.float16)]).channels == 9
    assert ts.ImageBatch([np.zeros((0, 2, 1), np.float32)]).to_ndarray().shape == (1, 0, 2, 1)
    many = np.stack(images())
    for stack in (many, ts.NDArray(many)):
        batch = ts.ImageBatch(stack)
        assert len(batch) == 3
        assert address(batch[1]) == address(many[1])


def test_torch():
    torch = pytest.importorskip("torch")
    t = torch.arange(2 * 5 * 7, dtype=torch.uint8).reshape(2, 5, 7)
    batch = ts.ImageBatch([t.permute(1, 2, 0)])
    assert (batch.height, batch.width, batch.channels) == (5, 7, 2)
    assert address(batch[0]) == t.data_ptr()
    assert bits(batch.to_ndarray("NCHW", dtype="uint8")[0]) == bits(t.numpy())


# ---- To a tensor ----


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("dtype", [None, "float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("source", [np.uint8, np.float16, np.float32])
@pytest.mark.parametrize("normal", [{}, {"mean": MEAN, "std": STD}, {"mean": 0.5}, {"std": [2]}, {"scale": 0.25}])
def test_to_ndarray(layout, dtype, source, normal):
    sources = images(dtype=source)
    batch = ts.ImageBatch(sources)
    got = batch.to_ndarray(layout, dtype, **normal)
    target = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype or (np.float32, source)[source != np.uint8])
    work = np.float64 if dtype == "float64" else np.float32
    expected = np.stack(sources).astype(work)
    if "scale" in normal:
        expected = expected * work(normal["scale"])
    elif source == np.uint8:
        expected = expected / work(255)
    expected = (expected - np.asarray(normal.get("mean", 0), work)) / np.asarray(normal.get("std", 1), work)
    expected = expected.astype(target)
    assert isinstance(got, ts.NDArray)
    assert got.dtype == target
    assert got.numpy().flags.c_contiguous
    assert not got.readonly
    assert bits(got) == bits(expected if layout == "NHWC" else expected.transpose(0, 3, 1, 2))


def test_unorm_ends_are_exact():
    batch = ts.ImageBatch([np.array([[0, 51, 255]], np.uint8)])
    assert batch.to_ndarray().tolist() == [[[[0.0], [np.float32(0.2)], [1.0]]]]
    assert batch.to_ndarray(scale=1).tolist() == [[[[0.0], [51.0], [255.0]]]]
    assert batch.to_ndarray(dtype="uint8").tolist() == [[[[0], [51], [255]]]]
    assert batch.to_ndarray("NCHW", dtype=np.uint8).shape == (1, 1, 1, 3)
    assert np.isinf(batch.to_ndarray(dtype="float16", scale=1e6)[0, 0, 2, 0])


def test_memory_is_that_of_the_result():
    sources = images(8, (128, 128, 3))
    batch = ts.ImageBatch(sources)
    for dtype, scratch in (("float32", 0), ("float16", 4 * 128 * 128 * 3)):
        size = 8 * 128 * 128 * 3 * ts.DType.of(dtype).itemsize
        for layout in ("NHWC", "NCHW"):
            tracemalloc.start()
            result = batch.to_ndarray(layout, dtype, MEAN, STD)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert result.nbytes == size
            assert peak < size + scratch + 200_000  # NumPy converts in small blocks


def test_feeds_a_graph():
    g = ts.Graph()
    x = g.placeholder((-1, 5, 7, 3))
    sources = images()
    got = g.run({x: ts.ImageBatch(sources).to_ndarray()}, ts.mean(x, axis=(1, 2)))
    np.testing.assert_allclose(got, np.stack(sources).mean((1, 2)) / 255, rtol=1e-5)


# ---- Back ----


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("normal", [{}, {"mean": MEAN, "std": STD}, {"mean": 0.5, "std": 0.5}, {"scale": 1}])
def test_round_trip(layout, dtype, normal):
    sources = images()
    tensor = ts.ImageBatch(sources).to_ndarray(layout, dtype, **normal)
    back = ts.ImageBatch.from_ndarray(tensor, layout, **normal)
    assert back.dtype is ts.uint8
    assert [bits(image) for image in back] == [bits(source) for source in sources]


def test_every_uint8_survives_float16_and_bfloat16_rounds():
    source = np.arange(256, dtype=np.uint8).reshape(16, 16)
    batch = ts.ImageBatch([source])
    assert bits(ts.ImageBatch.from_ndarray(batch.to_ndarray(dtype="float16"))[0]) == bits(source)
    rounded = ts.ImageBatch.from_ndarray(batch.to_ndarray(dtype="bfloat16"))[0].numpy()[..., 0]
    assert np.abs(rounded.astype(int) - source).max() <= 1


def test_from_ndarray_clips_and_rounds():
    values = [-1, -0.001, 0, 0.5 / 255, 1.5 / 255, 2.5 / 255, 1, 1.001, 9, np.inf, -np.inf, np.nan]
    for dtype in (np.float32, np.float64):
        back = ts.ImageBatch.from_ndarray(np.array(values, dtype).reshape(1, 1, -1, 1))
        got = back[0].numpy().ravel().tolist()
        assert got[:3] == [0, 0, 0]
        assert got[6:] == [255, 255, 255, 255, 0, 0]
    halves = np.array([0.5, 1.5, 2.5, 253.5, 254.5, 255.5], np.float32).reshape(1, 1, -1, 1)
    assert ts.ImageBatch.from_ndarray(halves, scale=1)[0].numpy().ravel().tolist() == [0, 2, 2, 254, 254, 255]


def test_from_ndarray_of_floats():
    x = np.random.default_rng(1).uniform(-2, 2, (2, 3, 4, 5)).astype(np.float32)
    batch = ts.ImageBatch.from_ndarray(x, "NCHW", dtype="float32")
    assert (batch.height, batch.width, batch.channels) == (4, 5, 3)
    assert address(batch[0]) == address(x)  # nothing to compute: views
    mean, std = [1, 2, 3], [2, 3, 4]
    got = ts.ImageBatch.from_ndarray(x, "NCHW", mean, std, dtype="float16")
    expected = (x.transpose(0, 2, 3, 1) * np.float32(std) + np.float32(mean)).astype(np.float16)
    assert [bits(image) for image in got] == [bits(image) for image in expected]
    stack = np.stack(images())
    assert address(ts.ImageBatch.from_ndarray(stack)[1]) == address(stack[1])
    unorm = ts.ImageBatch.from_ndarray(stack, dtype="float32")
    assert bits(unorm[2]) == bits(stack[2] / np.float32(255))


# ---- Pillow ----


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("LA", 2), ("RGB", 3), ("RGBA", 4)])
def test_pillow_round_trip(pil, mode, channels):
    source = images(1, (5, 7, channels))[0]
    picture = pil.frombytes(mode, (7, 5), source.tobytes())
    batch = ts.ImageBatch([picture])
    assert (batch.height, batch.width, batch.channels) == (5, 7, channels)
    assert bits(batch[0]) == bits(source)
    (back,) = batch.to_pil()
    assert (back.mode, back.size) == (mode, (7, 5))
    assert back.tobytes() == picture.tobytes()
    own = ts.ImageBatch([source])
    (back,) = own.to_pil()
    source[...] = 0
    assert back.tobytes() == picture.tobytes()
    (back,) = ts.ImageBatch([batch[0].transpose(1, 0, 2)]).to_pil()
    assert back.tobytes() == picture.transpose(pil.Transpose.TRANSPOSE).tobytes()


def test_pillow_images_of_palettes_and_bits(pil):
    colours = pil.new("P", (2, 1))
    colours.putpalette([10, 20, 30, 40, 50, 60])
    colours.putpixel((1, 0), 1)
    assert ts.ImageBatch([colours])[0].tolist() == [[[10, 20, 30], [40, 50, 60]]]
    colours.info["transparency"] = 1
    assert ts.ImageBatch([colours])[0].tolist() == [[[10, 20, 30, 255], [40, 50, 60, 0]]]
    black_and_white = pil.new("1", (2, 1))
    black_and_white.putpixel((1, 0), 1)
    assert ts.ImageBatch([black_and_white])[0].tolist() == [[[0], [255]]]


@pytest.mark.parametrize(
    ("mode", "hint"),
    [("I;16", "65535"), ("I", "convert"), ("F", r"numpy\.asarray"), ("CMYK", "convert"), ("YCbCr", "convert")],
)
def test_other_pillow_modes_are_refused(pil, mode, hint):
    with pytest.raises(ts.DTypeError, match=f"ImageBatch: image 1 has Pillow's mode {mode}.*{hint}"):
        ts.ImageBatch([pil.new("L", (2, 2)), pil.new(mode, (2, 2))])


@pytest.mark.usefixtures("pil")
def test_floats_to_pillow():
    batch = ts.ImageBatch([np.array([[0, 0.5, 1.0, 2, -1, np.nan]], np.float32)])
    (picture,) = batch.to_pil()
    assert list(picture.tobytes()) == [0, 128, 255, 255, 0, 0]
    with pytest.raises(ts.UserError, match=r"5 channels.*at most 4.*:3"):
        ts.ImageBatch([np.zeros((2, 2, 5), np.uint8)]).to_pil()


def test_pillow_is_optional():
    code = (
        "import sys\nclass Refuse:\n    def find_spec(self, name, *rest):\n"
        "        if name.split('.')[0] == 'PIL': raise ImportError('refused')\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "import numpy as np, topstitch as ts\nassert 'PIL' not in sys.modules\n"
        "batch = ts.ImageBatch([np.zeros((2, 2), np.uint8)])\nbatch.to_ndarray()\n"
        "try: batch.to_pil()\nexcept ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert "pip install pillow" in done.stdout


# ---- Refusals ----


A = np.zeros((4, 6, 3), np.uint8)


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        ([], ts.UserError, "no images"),
        ([A, A, A[1:]], ts.UserError, "image 2 is 3 x 6 with 3 channels, but image 0 is 4 x 6 with 3 channels"),
        ([A, A[..., 0]], ts.UserError, "image 1 is 4 x 6 with 1 channel, but"),
        ([A, A.astype("f")], ts.DTypeError, "image 1 is float32, but image 0 is uint8"),
        ([A.astype("d")], ts.DTypeError, r"image 0 is float64.*astype\('float32'\)"),
        ([A.astype(bool)], ts.DTypeError, r"image 0 is bool.*\* 255"),
        ([A, A.astype("i8")], ts.DTypeError, "image 1 is int64.*uint8"),
        ([A.astype(ml_dtypes.bfloat16)], ts.DTypeError, "bfloat16"),
        ([A[0, 0]], ts.UserError, r"image 0 has shape \(3,\).*permute"),
        ([A[None]], ts.UserError, r"\(1, 4, 6, 3\).*from_ndarray"),
        ([A[None, None]], ts.UserError, "height x width"),
        ([A[..., :0]], ts.UserError, "no channels"),
        ([np.float32(3)], ts.UserError, "shape"),
        ([A, None], ts.DTypeError, "image 1: got None"),
        ([A, "cat.png"], ts.DTypeError, r"image 1 is a str.*open"),
        ([A, object()], ts.DTypeError, "image 1: "),
        ([np.ma.masked_array(A)], ts.DTypeError, "image 0: .*masked"),
        ("cat.png", ts.DTypeError, r"not a str.*\[image\]"),
        (5, ts.DTypeError, "not a int"),
        (A, ts.UserError, r"one array of 3 dims.*\[array\].*list\(array\)"),
        (np.zeros((), np.uint8), ts.UserError, "0 dims"),
    ],
    ids=lambda value: repr(value)[:20].replace("\n", ""),
)
def test_what_is_no_batch(bad, error, message):
    with pytest.raises(error, match=message) as info:
        ts.ImageBatch(bad)
    assert str(info.value).startswith("ImageBatch: ")
    assert type(info.value) is error


def test_one_pillow_image_is_no_batch(pil):
    with pytest.raises(ts.DTypeError, match=r"\[image\]"):
        ts.ImageBatch(pil.new("L", (2, 2)))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"layout": "CHWN"}, ts.UserError, "'NHWC' or 'NCHW', not 'CHWN'"),
        ({"dtype": "int32"}, ts.DTypeError, "int32 is not a floating one"),
        ({"dtype": "uint8", "mean": 1}, ts.DTypeError, "without mean, std and scale"),
        ({"mean": [1, 2]}, ts.UserError, r"mean has shape \(2,\).*3 channels"),
        ({"std": [1, 0, 1]}, ts.UserError, "must not be 0"),
        ({"std": np.nan}, ts.UserError, "finite"),
        ({"scale": 0}, ts.UserError, "scale.*must not be 0"),
        ({"scale": [1, 2, 3]}, ts.UserError, "scale has shape"),
        ({"mean": "grey"}, ts.DTypeError, "text"),
    ],
)
def test_wrong_arguments(options, error, message):
    with pytest.raises(error, match=message):
        ts.ImageBatch([A]).to_ndarray(**options)


@pytest.mark.parametrize(
    ("array", "options", "error", "message"),
    [
        (np.zeros((4, 6, 3), "f"), {}, ts.UserError, r"shape \(4, 6, 3\).*\[None\]"),
        (np.zeros((1, 4, 6, 3), "i"), {}, ts.DTypeError, "int32.*astype"),
        (np.zeros((1, 4, 6, 3), "f"), {"dtype": "float64"}, ts.DTypeError, "not float64"),
        (np.zeros((1, 4, 6, 3), "f"), {"layout": None}, ts.UserError, "layout"),
        (np.zeros((1, 4, 6, 3), "B"), {"mean": 1}, ts.UserError, "uint8"),
        (np.zeros((0, 4, 6, 3), "f"), {}, ts.UserError, "no images"),
        (np.zeros((0, 4, 6, 3), "B"), {}, ts.UserError, "no images"),
        (object(), {}, ts.DTypeError, "from_ndarray: "),
    ],
)
def test_what_does_not_become_a_batch(array, options, error, message):
    with pytest.raises(error, match=message):
        ts.ImageBatch.from_ndarray(array, **options)
