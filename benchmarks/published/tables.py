"""The published figures, and what each is measured on: network, axis, machine, and the policy of that name here.

Sources: SuperNeurons (Wang et al., PPoPP 2018), Capuchin (Peng et al., ASPLOS 2020), TFLMS (Le et al.,
arXiv:1807.02037), vDNN (Rhu et al., MICRO 2016), TSPLIT (Nie et al., ICDE 2022), Checkmate (Jain et al., MLSys 2020),
MONeT (Shah et al., ICLR 2021), Chen et al. 2016 (arXiv:1604.06174).
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from minigraph.base import Shape
from minigraph.memory.machine import get_machine
from minigraph.networks import load_network

from .search import Build

GIB = 2**30
HOST_BYTES = 256 * GIB
"""Host memory of Capuchin's machine; the others do not state theirs, and get as much."""


@dataclass(frozen=True)
class Network:
    """A network of the zoo by its largest dimension: images of `size`, or texts of `words`, in batches; or, with
    `depth_batch`, a residual network in its number of units of the third stage, at that batch."""

    name: str
    module: str
    size: int = 224
    settings: Mapping[str, Any] = field(default_factory=dict)
    data: Shape | None = None
    depth_batch: int = 0

    def build(self) -> Build:
        """From n, a batch or a depth, to the symbol and its shapes."""
        if self.depth_batch:
            return self._by_depth
        symbol = load_network(f"zoo.{self.module}", dict(self.settings), {"data": self._shape(1)})
        return lambda n: (symbol, {"data": self._shape(n)})

    def _by_depth(self, depth: int) -> tuple[Any, Mapping[str, Shape]]:
        """Depth 3 * (6 + 32 + n3 + 6) + 2, rounded down to a number of units."""
        units = (6, 32, max((depth - 2) // 3 - 44, 1), 6)
        shape = self._shape(self.depth_batch)
        return load_network("zoo.resnet", {"units": units, **self.settings}, {"data": shape}), {"data": shape}

    def _shape(self, n: int) -> Shape:
        return (n, *(self.data or (3, self.size, self.size)))


_FIRST = {"stride_on": "1x1"}
NETWORKS = {network.name: network for network in (
    Network("AlexNet", "alexnet", 227, {"variant": "superneurons"}),
    Network("VGG16", "vgg", settings={"depth": 16}), Network("VGG19", "vgg", settings={"depth": 19}),
    *(Network(f"VGG{depth}", "vgg", settings={"depth": depth}) for depth in (116, 216, 316, 416)),
    *(Network(f"ResNet-{depth}", "resnet", settings={"depth": depth, **_FIRST}) for depth in (50, 101, 152)),
    Network("ResNet by depth", "resnet", settings=_FIRST, depth_batch=16),
    Network("ResNet by depth, batch 1", "resnet", settings=_FIRST, depth_batch=1),
    Network("ResNet, 1001 layers", "resnet", settings={"units": (3, 24, 303, 3), **_FIRST}),
    Network("InceptionV3", "inception_v3", 299), Network("InceptionV4", "inception_v4", 299),
    Network("GoogLeNet", "googlenet"), Network("MobileNet", "mobilenet", settings={"version": 1}),
    Network("MobileNetV2", "mobilenet", settings={"version": 2}),
    Network("BERT-base", "bert", data=(128,)),
    Network("3D U-Net 192^3", "unet", data=(4, 192, 192, 192), settings={
        "num_classes": 4, "dims": 3, "padded": True, "image_shape": (4, 192, 192, 192)}))}
"""Where a paper does not state a size, it is the usual one; BERT's texts are of 128 words, which agrees with the batch
that fits without a strategy."""
_QUICK = ("AlexNet", "VGG16", "VGG19", "GoogLeNet", "MobileNet", "MobileNetV2", "BERT-base", "3D U-Net 192^3")


@dataclass(frozen=True)
class Figure:
    """One published figure.

    `policy` is what stands for the system here; None for peers without one. `most` figures are the largest n within
    the capacity; others have `published_bytes` at a fixed n. `slowdown` bounds modelled time over that of the plain
    order, `host` says whether values may be swapped, and `momentum` whether the optimizer has any.
    """

    table: str
    network: str
    system: str
    policy: str | None
    published: int
    capacity_bytes: int
    machine: str
    published_bytes: int = 0
    slowdown: float = float("inf")
    host: bool = True
    momentum: bool = True

    @property
    def quick(self) -> bool:
        """Whether the quick form measures it too: its graph is small."""
        return self.network in _QUICK

    @property
    def by(self) -> str:
        """What n is."""
        return "depth" if "by depth" in self.network else "batch"


def _row(table: str, machine: str, capacity_bytes: int, system: str, policy: str | None, values: Mapping[str, int],
         **options: Any) -> list[Figure]:
    return [Figure(table, network, system, policy, n, capacity_bytes, machine, **options)
            for network, n in values.items()]


def _usable(machine: str) -> int:
    return get_machine(machine).memory_bytes


_K40C, _P100, _TITAN = _usable("K40c"), 14_750 * GIB // 1000, _usable("TITAN Xp")
"""Of the P100 of Capuchin its TensorFlow row fills 14.3 to 14.5 GiB with what is kept alone; a plain plan of VGG16 at
TensorFlow's largest batch, with the gradients under way, takes 14.74."""
_WIDE = ("AlexNet", "VGG16", "InceptionV4", "ResNet-50", "ResNet-101", "ResNet-152")
_CAPUCHIN = ("VGG16", "ResNet-50", "ResNet-152", "InceptionV3", "InceptionV4", "BERT-base")
_TSPLIT = ("VGG16", "VGG19", "ResNet-50", "ResNet-101", "InceptionV4")


def _wide(*values: int) -> dict[str, int]:
    return dict(zip(_WIDE, values, strict=True))


def _capuchin(*values: int) -> dict[str, int]:
    return {name: n for name, n in zip(_CAPUCHIN, values, strict=True) if n}


def _tsplit(*values: int) -> dict[str, int]:
    return dict(zip(_TSPLIT, values, strict=True))


def _figures() -> list[Figure]:
    four, five = "SuperNeurons, Table 4: depth at batch 16", "SuperNeurons, Table 5: batch"
    two, tsplit = "Capuchin, Table 2: batch", "TSPLIT, Table IV: batch"
    remat, monet = "Checkmate: batch with one extra forward", "MONeT: bytes at 10 % more time"
    titan = 24_220 * 2**20
    return [
        *_row(five, "K40c", _K40C, "TensorFlow", "plain", _wide(1408, 80, 64, 128, 80, 48)),
        *_row(five, "K40c", _K40C, "SuperNeurons", "superneurons", _wide(1792, 224, 240, 384, 256, 176)),
        *_row(two, "P100", _P100, "TensorFlow", "plain", _capuchin(228, 190, 86, 160, 88, 64)),
        *_row(two, "P100", _P100, "vDNN", "vdnn", _capuchin(272, 520, 330, 400, 220, 0)),
        *_row(two, "P100", _P100, "OpenAI", "openai", _capuchin(260, 540, 440, 400, 220, 210), host=False),
        *_row(two, "P100", _P100, "Capuchin", "capuchin", _capuchin(350, 1014, 798, 716, 468, 450)),
        *_row("TFLMS, Table 3: batch", "P100", _P100, "TFLMS", "lms", {"ResNet-50": 832, "3D U-Net 192^3": 1}),
        *_row("vDNN: batch", "TITAN Xp", _TITAN, "vDNN", "vdnn", {"VGG19": 256}),
        *_row(tsplit, "P100", titan, "vDNN-conv", "vdnn_conv", _tsplit(176, 164, 201, 138, 131)),
        *_row(tsplit, "P100", titan, "vDNN-all", "vdnn_all", _tsplit(413, 411, 783, 783, 864)),
        *_row(tsplit, "P100", titan, "Checkpoints", "sublinear", _tsplit(316, 293, 192, 124, 220), host=False),
        *_row(tsplit, "P100", titan, "SuperNeurons", "superneurons", _tsplit(462, 441, 591, 361, 882)),
        *_row(tsplit, "P100", titan, "TSPLIT", None, _tsplit(661, 661, 1278, 1096, 1372)),
        *_row(remat, "V100", _usable("V100"), "AP sqrt n", "sublinear",
              {"VGG19": 197, "ResNet-50": 116, "MobileNet": 452}, host=False, slowdown=4 / 3),
        *_row(remat, "V100", _usable("V100"), "Checkmate", None,
              {"VGG19": 289, "ResNet-50": 225, "MobileNet": 1105}, host=False, slowdown=4 / 3),
        *[figure for network, n, nbytes in (("ResNet-50", 184, 5.7e9), ("GoogLeNet", 320, 6.9e9), ("VGG16", 176, 5.5e9),
                                            ("MobileNetV2", 272, 4.8e9))
          for figure in _row(monet, "P100", _usable("P100"), "MONeT", None, {network: n}, host=False, slowdown=1.1,
                             published_bytes=int(nbytes))],
        *_row("vDNN: bytes at batch 32", "TITAN Xp", _TITAN, "vDNN", "vdnn",
              {f"VGG{depth}": 32 for depth in (116, 216, 316, 416)}, published_bytes=4_200_000_000, momentum=False),
        *_row("Chen et al.: bytes at batch 32", "TITAN Xp", _TITAN, "sublinear", "sublinear",
              {"ResNet, 1001 layers": 32}, published_bytes=7_000_000_000, host=False),
        *_row(four, "K40c", _K40C, "TensorFlow", "plain", {"ResNet by depth": 592}),
        *_row(four, "K40c", _K40C, "SuperNeurons", "superneurons", {"ResNet by depth": 1920}),
        *_row("SuperNeurons: depth at batch 1", "K40c", _K40C, "SuperNeurons", "superneurons",
              {"ResNet by depth, batch 1": 2498})]


FIGURES = tuple(_figures())
"""Every published figure that is measured. One extra forward is a third more time, as backward takes two forwards'."""
