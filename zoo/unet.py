"""U-Nets for images and volumes: a class for every pixel, from features of many sizes.

two dimensions: Ronneberger, Fischer, Brox. U-Net: convolutional networks for biomedical image segmentation. MICCAI
2015, arXiv:1505.04597. Both convolutions of a level have the level's filters, and the up-convolution halves them.
three dimensions: Cicek, Abdulkadir, Lienkamp, Brox, Ronneberger. 3D U-Net: learning dense volumetric segmentation from
sparse annotation. MICCAI 2016, arXiv:1606.06650. The second convolution of a level doubles the filters, and the
up-convolution, which has no bias, keeps them.

The network that Le et al. (TFLMS, arXiv:1807.02037) train on BraTS is the second with padded convolutions and without
normalisation: get_symbol(4, dims=3, padded=True, image_shape=(4, 192, 192, 192)), taken from Ellis's Keras code; where
that ends in a sigmoid for each of three labels and the Dice loss, here is a softmax over four classes.

Odd sizes. Pooling drops the last row of an odd image, so after an up-convolution the image may be smaller than the
features of its level. `odd="crop"` cuts the middle out of those features, as both papers do for convolutions without
padding: the output is then smaller than the input. `odd="pad"`, for padded convolutions, adds rows of zeros at the
end of the up-convolution's output instead, and the output has the input's size.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import minigraph as mx
from minigraph.base import MXNetError

from .layers import Symbol, convolution, join, max_pool, relu


@dataclass(frozen=True)
class _Image:
    """Features and their size, which decides what is cut."""

    body: Symbol
    size: tuple[int, ...]


@dataclass(frozen=True)
class _Form:
    """What all levels have in common."""

    dims: int
    padded: bool
    batch_norm: bool
    pad_odd: bool

    def convolve(self, image: _Image, name: str, *filters: int) -> _Image:
        """3x3 convolutions with ReLU, one for each number of filters."""
        body, size = image.body, image.size
        for k, count in enumerate(filters, start=1):
            if not self.padded:
                size = tuple(n - 2 for n in size)
            if min(size) < 1:
                raise MXNetError(f"unet: {name}_conv{k} has nothing left of its input {image.size}; give larger "
                                 f"images, fewer levels, or padded=True")
            body = convolution(body, f"{name}_conv{k}", count, 3, 1, int(self.padded), bias=not self.batch_norm,
                               dims=self.dims)
            if self.batch_norm:
                body = mx.sym.BatchNorm(body, fix_gamma=False, eps=1e-5, name=f"{name}_bn{k}")
            body = relu(body, f"{name}_relu{k}")
        return _Image(body, size)

    def halve(self, image: _Image, name: str) -> _Image:
        """The largest of each 2x2 pixels."""
        if min(image.size) < 2:
            raise MXNetError(f"unet: {name} cannot halve features of size {image.size}; give larger images or fewer "
                             f"levels")
        return _Image(max_pool(image.body, name, 2, 2, dims=self.dims), tuple(n // 2 for n in image.size))

    def double(self, image: _Image, name: str, filters: int) -> _Image:
        """The up-convolution 2x2."""
        two = (2,) * self.dims
        body = mx.sym.Deconvolution(image.body, kernel=two, stride=two, num_filter=filters, no_bias=self.dims == 3,
                                    name=name)
        return _Image(body, tuple(2 * n for n in image.size))

    def join(self, skip: _Image, up: _Image, name: str) -> _Image:
        """Both beside each other, of the same size by the rule for odd sizes."""
        if self.pad_odd and skip.size != up.size:
            widths = sum(((0, big - small) for big, small in zip(skip.size, up.size, strict=True)), (0, 0, 0, 0))
            up = _Image(mx.sym.Pad(up.body, mode="constant", pad_width=widths, name=f"{name}_pad"), skip.size)
        elif skip.size != up.size:
            starts = [(big - small) // 2 for big, small in zip(skip.size, up.size, strict=True)]
            ends = [start + small for start, small in zip(starts, up.size, strict=True)]
            body = mx.sym.slice(skip.body, begin=(None, None, *starts), end=(None, None, *ends), name=f"{name}_crop")
            skip = _Image(body, up.size)
        return _Image(join(skip.body, up.body, name=name), up.size)


def get_symbol(num_classes: int = 2, dims: int = 2, image_shape: Sequence[int] | None = None, padded: bool = False,
               batch_norm: bool = False, odd: str = "crop", levels: int | None = None,
               filters: int | None = None) -> Symbol:
    """A U-Net for images (N, C, H, W), or volumes (N, C, D, H, W) with dims=3, of `image_shape` without N.

    `levels` are the sizes below the first, 4 or 3, and `filters` those of the first convolution, 64 or 32. `padded`
    convolutions keep the size. `batch_norm` puts a normalisation before each ReLU. `odd` is told above. Labels have
    the output's shape without its channels. MXNetError says where an image is too small.
    """
    if dims not in (2, 3) or odd not in ("crop", "pad"):
        raise MXNetError(f"unet: dims must be 2 or 3 and odd 'crop' or 'pad', got {dims!r} and {odd!r}")
    if odd == "pad" and not padded:
        raise MXNetError("unet: odd='pad' needs padded=True; convolutions without padding always crop")
    shape = tuple(image_shape or ((1, 572, 572) if dims == 2 else (3, 132, 132, 116)))
    if len(shape) != dims + 1:
        raise MXNetError(f"unet: image_shape must be the channels and {dims} sizes, got {shape}")
    form = _Form(dims, padded, batch_norm, odd == "pad")
    body = _network(form, _Image(mx.sym.Variable("data"), shape[1:]), levels or (4 if dims == 2 else 3),
                    filters or (64 if dims == 2 else 32))
    logits = convolution(body, "last", num_classes, dims=dims)
    return mx.sym.SoftmaxOutput(logits, multi_output=True, normalization="valid", name="softmax")


def _network(form: _Form, image: _Image, levels: int, filters: int) -> Symbol:
    grow = 1 if form.dims == 2 else 2
    skips = []
    for level in range(1, levels + 1):
        image = form.convolve(image, f"down{level}", filters, filters * grow)
        skips.append(image)
        image = form.halve(image, f"pool{level}")
        filters *= 2
    image = form.convolve(image, "bottom", filters, filters * grow)
    for level, skip in reversed(list(enumerate(skips, start=1))):
        up = form.double(image, f"up{level}", filters // 2 if form.dims == 2 else filters * grow)
        filters //= 2
        image = form.convolve(form.join(skip, up, f"join{level}"), f"up{level}", filters * grow, filters * grow)
    return image.body
