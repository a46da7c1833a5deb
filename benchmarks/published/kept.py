"""What TensorFlow kept at the largest batches that Capuchin's authors found for it: one rule for five networks."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from minigraph.base import Shape
from minigraph.memory.machine import MACHINES
from minigraph.memory.schedule import from_order
from minigraph.networks import load_network

from .layers import of_symbol
from .rules import TENSORFLOW, problem_of, training_graph
from .search import Setting, Step

PARAMETER_COPIES = 3
"""Weight, gradient and momentum."""
_NESTED = 786_432
"""Bytes an image of concatenations in the last blocks of Inception v3 and v4 that the published code makes and the
zoo's form does not: it joins pairs of branches before it joins the block."""


@dataclass(frozen=True)
class Kept:
    """A network at TensorFlow's largest batch; `nested_bytes` an image are of layers that the zoo's form lacks."""

    network: str
    batch: int
    size: int = 224
    settings: dict[str, Any] = field(default_factory=dict)
    nested_bytes: int = 0

    @property
    def shape(self) -> Shape:
        """Of the input."""
        return self.batch, 3, self.size, self.size

    def symbol(self) -> Any:
        """The zoo's network."""
        return load_network(f"zoo.{self.network}", self.settings, {"data": self.shape})


ROW = {"VGG16": Kept("vgg", 228, settings={"depth": 16}),
       "ResNet-50": Kept("resnet", 190, settings={"depth": 50, "stride_on": "1x1"}),
       "ResNet-152": Kept("resnet", 86, settings={"depth": 152, "stride_on": "1x1"}),
       "InceptionV3": Kept("inception_v3", 160, 299, nested_bytes=_NESTED),
       "InceptionV4": Kept("inception_v4", 88, 299, nested_bytes=_NESTED)}
"""Capuchin, Table 2, column TF-ori: a P100 with 16 GB."""


def kept_bytes(case: Kept) -> int:
    """The most that lives in forward by TensorFlow's rules, on the zoo's network, and all copies of parameters."""
    layers, parameter_bytes = of_symbol(case.symbol(), case.shape)
    found = problem_of(training_graph(layers, TENSORFLOW, case.shape), MACHINES["P100"], with_data=True)
    live = found.live(from_order(found.order))[:found.backward_start]
    return int(live.max()) + case.nested_bytes * case.batch + PARAMETER_COPIES * parameter_bytes


def plain_bytes(case: Kept) -> int:
    """What minigraph's plain plan of a step with momentum takes."""
    step = Step(lambda batch: (case.symbol(), {"data": case.shape}), case.batch,
                Setting("P100", 0, encode=False))  # TensorFlow keeps whole values
    return step.planned_bytes(step.candidates("plain")[0])
