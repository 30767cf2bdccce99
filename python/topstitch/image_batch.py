"""ImageBatch: images of one size, and their way into a tensor and back: layout, range and normalisation.

The counterpart of MPSImageBatch. Pillow's images are known by their attributes; Pillow itself stays optional.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from ._core import DType, DTypeError, NDArray, UserError, float16, float32, float64, uint8
from ._types import ArrayLike, DTypeLike

_Array = npt.NDArray[Any]

_LAYOUTS = ("NHWC", "NCHW")
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}  # Pillow's, by the number of channels
_WANTED_SHAPE = (
    "images are height x width or height x width x channels; for channels first, as torchvision has them, pass "
    "tensor.permute(1, 2, 0), which copies nothing"
)


def _is_pillow(image: Any) -> bool:
    return hasattr(image, "mode") and hasattr(image, "getbands") and hasattr(image, "convert")


def _from_pillow(image: Any, what: str) -> Any:
    """An array of the pixels. What has no plain uint8 channels is converted where nothing is lost, or refused."""
    mode = image.mode
    if mode == "P":  # numbers of colours: the colours themselves are the image
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    elif mode == "1":  # bits, as 0 and 255
        image = image.convert("L")
    elif mode.startswith("I;16"):
        raise DTypeError(
            f"{what} has Pillow's mode {mode}, 16-bit grey, and an ImageBatch has no 16-bit integers; keep the "
            "precision with (numpy.asarray(image) / 65535).astype('float32')"
        )
    elif mode not in _MODES.values():
        raise DTypeError(
            f"{what} has Pillow's mode {mode}; supported are L, LA, RGB, RGBA, and P and 1, which become RGB(A) and "
            "L; convert it with image.convert('RGB'), or pass its numbers as numpy.asarray(image)"
        )
    return np.asarray(image)


def _read(image: Any, what: str) -> NDArray:
    """One image as height x width x channels, a view wherever its memory can be viewed."""
    if isinstance(image, (str, bytes)) or hasattr(image, "__fspath__"):
        raise DTypeError(f"{what} is a {type(image).__name__}; open it first, e.g. with PIL.Image.open(path)")
    try:
        array = NDArray(_from_pillow(image, what) if _is_pillow(image) else image)
    except UserError as error:
        message = str(error)
        message = message if message.startswith(what) else f"{what}: {message.removeprefix('NDArray: ')}"
        raise type(error)(message) from error
    if array.dtype not in (uint8, float16, float32):
        mend = {"bool": "array.astype('uint8') * 255", "float64": "array.astype('float32')"}.get(
            array.dtype.name, "numbers in 0..255 with array.astype('uint8')"
        )
        raise DTypeError(f"{what} is {array.dtype}; images are uint8, float16 or float32, so convert: {mend}")
    if array.ndim == 2:
        return array[..., None]
    if array.ndim == 4:
        raise UserError(
            f"{what} has shape {array.shape}; unpack a batch with ImageBatch.from_ndarray, or pass it alone"
        )
    if array.ndim != 3:
        raise UserError(f"{what} has shape {array.shape}, but {_WANTED_SHAPE}")
    if array.shape[2] == 0:
        raise UserError(f"{what} has shape {array.shape}: no channels, but at least one is needed")
    return array


def _size_text(shape: Sequence[int]) -> str:
    return f"{shape[0]} x {shape[1]} with {shape[2]} channel{'s' * (shape[2] != 1)}"


def _layout(layout: str, what: str) -> str:
    if layout not in _LAYOUTS:
        raise UserError(f"{what}: layout must be 'NHWC' or 'NCHW', not {layout!r}")
    return layout


def _per_channel(values: ArrayLike | None, channels: int, dtype: np.dtype[Any], name: str) -> _Array | None:
    """A number for all channels or one for each, in the dtype of the computation."""
    if values is None:
        return None
    numbers = np.asarray(NDArray(values, dtype=float64))
    if numbers.shape not in ((), (1,), (channels,)):
        raise UserError(
            f"{name} has shape {numbers.shape}; it must be one number, or one for each of the {channels} channels"
        )
    if not np.isfinite(numbers).all():
        raise UserError(f"{name} is {numbers.tolist()}; it must be finite")
    if not name.endswith("mean") and not numbers.all():
        raise UserError(f"{name} is {numbers.tolist()}; it must not be 0")
    return numbers.astype(dtype)


def _working_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """In what pixels are computed: 16-bit floats are rounded once, at the end."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


class ImageBatch:
    """A list of images of one size: height x width x channels, of uint8, float16 or float32.

    `images` are NumPy arrays, NDArrays, torch tensors and whatever else ts.NDArray reads, of shape (height, width) or
    (height, width, channels) with any number of channels; or Pillow images, of modes L, LA, RGB and RGBA. Of Pillow's
    other modes, P (a palette) becomes RGB, or RGBA where it has a transparent colour; 1 (bits) becomes L with 0 and
    255; all others are refused with a hint. An array of four dims is a batch of its own, NHWC.

    Arrays are not copied: the batch sees later changes of their contents. Pillow gives a copy of its pixels.

    Raises UserError (a ValueError) when images differ in size, have a wrong number of dims, or when there is none;
    DTypeError (a TypeError) when they differ in dtype, or have one that images do not have.
    """

    def __init__(self, images: Iterable[Any]) -> None:
        if _is_pillow(images) or isinstance(images, (str, bytes)) or not isinstance(images, Iterable):
            raise DTypeError(f"ImageBatch: expected a list of images, not a {type(images).__name__}; pass [image]")
        rank = getattr(images, "ndim", 4)
        if rank != 4:
            raise UserError(
                f"ImageBatch: expected a list of images, not one array of {rank} dims; pass [array] for a batch of "
                "one, list(array) for one image in each entry of the first axis"
            )
        batch = [_read(image, f"ImageBatch: image {k}") for k, image in enumerate(images)]
        if not batch:
            raise UserError("ImageBatch: there are no images; a batch needs at least one to know its size")
        first = batch[0]
        for k, image in enumerate(batch):
            if image.shape != first.shape:
                raise UserError(
                    f"ImageBatch: image {k} is {_size_text(image.shape)}, but image 0 is {_size_text(first.shape)}; "
                    "all images of a batch have one size, so resize or crop them first"
                )
            if image.dtype != first.dtype:
                raise DTypeError(
                    f"ImageBatch: image {k} is {image.dtype}, but image 0 is {first.dtype}; convert them to one dtype"
                )
        self._images = batch

    @property
    def height(self) -> int:
        """Rows of pixels."""
        return self._images[0].shape[0]

    @property
    def width(self) -> int:
        """Pixels of a row."""
        return self._images[0].shape[1]

    @property
    def channels(self) -> int:
        """Numbers of a pixel."""
        return self._images[0].shape[2]

    @property
    def dtype(self) -> DType:
        """uint8, float16 or float32."""
        return DType.of(self._images[0].dtype)

    def __len__(self) -> int:
        return len(self._images)

    @overload
    def __getitem__(self, index: int) -> NDArray: ...
    @overload
    def __getitem__(self, index: slice) -> ImageBatch: ...
    def __getitem__(self, index: int | slice) -> NDArray | ImageBatch:
        """One image, as an NDArray of shape (height, width, channels), or a batch of some of them; never a copy."""
        return ImageBatch(self._images[index]) if isinstance(index, slice) else self._images[index]

    def __iter__(self) -> Iterator[NDArray]:
        return iter(self._images)

    def __repr__(self) -> str:
        return f"<ImageBatch of {len(self)}: {_size_text(self._images[0].shape)}, {self.dtype}>"

    def to_ndarray(
        self,
        layout: str = "NHWC",
        dtype: DTypeLike | None = None,
        mean: ArrayLike | None = None,
        std: ArrayLike | None = None,
        scale: float | None = None,
    ) -> NDArray:
        """One array of all images, of shape (N, H, W, C), or (N, C, H, W) with layout "NCHW".

        dtype      a floating one, or uint8 for uint8 images as they are; without it float32 for uint8 images, and
                   that of the images otherwise
        scale      what pixels are multiplied by; without it uint8 becomes 0..1, x / 255, and floats stay
        mean, std  then (x - mean) / std; one number, or one for each channel

        Computed in float32, or in float64 for that dtype; 16-bit floats are rounded once, at the end. Memory: the
        result, and for 16-bit floats the numbers of one image.
        """
        what = "ImageBatch.to_ndarray"
        nchw = _layout(layout, what) == "NCHW"
        source = self.dtype
        target = DType.of(dtype) if dtype is not None else float32 if source == uint8 else source
        plain = mean is None and std is None and scale is None
        if not target.is_floating and not (target == source and plain):
            raise DTypeError(
                f"{what}: dtype {target} is not a floating one; {source} images become floats"
                + (", or stay uint8 without mean, std and scale" if source == uint8 else "")
            )
        size = (self.channels, self.height, self.width) if nchw else (self.height, self.width, self.channels)
        result: _Array = np.empty((len(self), *size), target.numpy)
        pixels = result.transpose(0, 2, 3, 1) if nchw else result

        work = _working_dtype(target.numpy)
        factor = _per_channel(scale, 1, work, f"{what}: scale")
        offset = _per_channel(mean, self.channels, work, f"{what}: mean")
        deviation = _per_channel(std, self.channels, work, f"{what}: std")
        unorm = source == uint8 and target.is_floating and factor is None
        direct = target.numpy == work or (plain and not unorm)
        scratch = None if direct else np.empty(pixels.shape[1:], work)
        # What overflows becomes infinite, as everywhere; that is no reason to warn.
        with np.errstate(all="ignore"):
            for image, out in zip(self._images, pixels, strict=True):
                values = out if scratch is None else scratch
                if unorm:
                    np.divide(image.numpy(), work.type(255), out=values, dtype=work)
                elif factor is not None:
                    np.multiply(image.numpy(), factor, out=values, dtype=work)
                else:
                    values[...] = image.numpy()
                if offset is not None:
                    values -= offset
                if deviation is not None:
                    values /= deviation
                if scratch is not None:
                    out[...] = scratch
        return NDArray(result, copy=False)

    @classmethod
    def from_ndarray(
        cls,
        array: ArrayLike,
        layout: str = "NHWC",
        mean: ArrayLike | None = None,
        std: ArrayLike | None = None,
        dtype: DTypeLike = uint8,
        scale: float | None = None,
    ) -> ImageBatch:
        """The inverse of to_ndarray with the same arguments: (x * std + mean) / scale, of four dims in `layout`.

        For uint8 images, floats are taken as 0..1 unless there is a scale, clipped to 0..255 and rounded, half to
        even; NaN becomes 0. Floating images are neither clipped nor rounded. When there is nothing to compute, the
        images are views of `array`.
        """
        what = "ImageBatch.from_ndarray"
        _layout(layout, what)
        try:
            given = NDArray(array)
        except UserError as error:
            raise type(error)(f"{what}: {str(error).removeprefix('NDArray: ')}") from error
        source, target = DType.of(given.dtype), DType.of(dtype)
        if target not in (uint8, float16, float32):
            raise DTypeError(f"{what}: images are uint8, float16 or float32, not {target}")
        if not (source.is_floating or source == uint8):
            raise DTypeError(f"{what}: the array is {source}; pass floats or uint8, e.g. array.astype('float32')")
        if given.ndim != 4:
            raise UserError(f"{what}: the array has shape {given.shape}; {layout} has four dims, so add e.g. [None]")
        pixels = given.numpy().transpose(0, 2, 3, 1) if layout == "NCHW" else given.numpy()
        plain = mean is None and std is None and scale is None
        if source == target and plain:
            return cls(pixels)
        if source == target == uint8:
            raise UserError(
                f"{what}: mean, std and scale belong to floats, and both the array and the images are uint8"
            )

        work = _working_dtype(source.numpy)
        factor = _per_channel(scale, 1, work, f"{what}: scale")
        offset = _per_channel(mean, pixels.shape[3], work, f"{what}: mean")
        deviation = _per_channel(std, pixels.shape[3], work, f"{what}: std")
        result: _Array = np.empty(pixels.shape, target.numpy)
        values: _Array = np.empty(pixels.shape[1:], work)
        to_unorm = target == uint8
        with np.errstate(all="ignore"):
            for image, out in zip(pixels, result, strict=True):
                if source == uint8 and factor is None:
                    np.divide(image, work.type(255), out=values, dtype=work)
                else:
                    values[...] = image
                if deviation is not None:
                    values *= deviation
                if offset is not None:
                    values += offset
                if factor is not None:
                    values /= factor
                elif to_unorm:
                    values *= work.type(255)
                if to_unorm:
                    # fmax answers the number where the other is NaN.
                    np.fmax(values, work.type(0), out=values)
                    np.minimum(values, work.type(255), out=values)
                    np.rint(values, out=values)
                np.copyto(out, values, casting="unsafe")
        return cls(result)

    def to_pil(self) -> list[Any]:
        """Pillow images of modes L, LA, RGB or RGBA, by the number of channels, with memory of their own.

        Floating images are taken as 0..1, clipped and rounded as from_ndarray does. Raises ImportError without Pillow,
        and UserError (a ValueError) when there are more than 4 channels.
        """
        try:
            from PIL import Image
        except ImportError as error:
            raise ImportError(
                "ImageBatch.to_pil: Pillow is not installed; install it with: pip install pillow"
            ) from error
        mode = _MODES.get(self.channels)
        if mode is None:
            raise UserError(
                f"ImageBatch.to_pil: the images have {self.channels} channels, and Pillow's at most 4; pick some, e.g. "
                "with ImageBatch([image[..., :3] for image in batch])"
            )
        size = (self.width, self.height)
        pictures = []
        for image in self._images:
            pixels = image if self.dtype == uint8 else ImageBatch.from_ndarray(image[None])[0]
            pictures.append(Image.frombytes(mode, size, np.ascontiguousarray(pixels)))
        return pictures
