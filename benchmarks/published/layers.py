"""Networks as lists of layers: those of SuperNeurons as its released code has them, where every copy and every in-place
layer is one, and those that a symbol consists of."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigraph.base import Entry, MXNetError, Shape
from minigraph.binding import bind_graph
from minigraph.graph import Graph

from .rules import Layer

ALEXNET = (("conv", 96, 11, 4, 0), ("act",), ("lrn",), ("pool",), ("conv", 256, 5, 1, 2), ("act",), ("lrn",), ("pool",),
           ("conv", 384, 3, 1, 1), ("act",), ("conv", 384, 3, 1, 1), ("act",), ("conv", 256, 3, 1, 1), ("act",),
           ("pool",), ("fc", 4096), ("act",), ("drop",), ("fc", 4096), ("act",), ("drop",), ("fc", 1000), ("softmax",))
"""(kind, filters, kernel, stride, pad) or (kind, units) of AlexNet's layers for images of 227 x 227."""


class Stack:
    """Layers, each on the one before it unless another is named. All pools are of 3 x 3 by steps of 2, without pad."""

    def __init__(self, data: Shape) -> None:
        self.data = data
        self.layers: list[Layer] = []

    def add(self, kind: str, *size: int, on: tuple[int, int] | None = None) -> tuple[int, int]:
        """Add a layer of a kind and the sizes that the kind takes; its (first) output."""
        source = (len(self.layers) - 1, 0) if on is None else on
        shape = _shape(kind, self.data if source[0] < 0 else self.layers[source[0]].shape, size)
        return self._append(kind, (source,), shape)

    def fork(self, source: tuple[int, int]) -> tuple[int, int]:
        """A layer with two copies of its input; its number is in the first of the pair."""
        return self._append("fork", (source,), self.layers[source[0]].shape, 2)

    def join(self, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
        """The sum of two outputs."""
        return self._append("join", (left, right), self.layers[right[0]].shape)

    def _append(self, kind: str, inputs: tuple[tuple[int, int], ...], shape: Shape, outputs: int = 1,
                ) -> tuple[int, int]:
        self.layers.append(Layer(f"{kind}{len(self.layers) + 1}", kind, inputs, shape, outputs))
        return len(self.layers) - 1, 0


def _shape(kind: str, shape: Shape, size: Sequence[int]) -> Shape:
    if kind == "conv":
        filters, kernel, stride, pad = size
        return (shape[0], filters, *((n + 2 * pad - kernel) // stride + 1 for n in shape[2:]))
    if kind == "pool":
        kernel, stride = size or (3, 2)
        return (*shape[:2], *((n - kernel) // stride + 1 for n in shape[2:]))
    return (shape[0], size[0]) if kind == "fc" else shape


def alexnet(batch: int) -> Stack:
    """AlexNet's 23 layers."""
    stack = Stack((batch, 3, 227, 227))
    for kind, *size in ALEXNET:
        stack.add(kind, *size)
    return stack


def resnet(units: Sequence[int], batch: int) -> Stack:
    """A residual network of bottlenecks for images of 227 x 227, with steps on the first 1 x 1 convolution."""
    stack = Stack((batch, 3, 227, 227))
    for kind, *size in (("conv", 64, 7, 2, 3), ("bn",), ("act",), ("pool",)):
        stack.add(kind, *size)
    for stage, count in enumerate(units):
        for unit in range(count):
            _bottleneck(stack, 64 << stage, 2 if stage and not unit else 1, projected=not unit)
    stack.add("pool", 7, 1)
    stack.add("fc", 1000)
    stack.add("softmax")
    return stack


def _bottleneck(stack: Stack, filters: int, stride: int, projected: bool) -> None:
    fork = stack.fork((len(stack.layers) - 1, 0))[0]
    left = (fork, 0)
    if projected:
        stack.add("conv", 4 * filters, 1, stride, 0, on=left)
        left = stack.add("bn")
    stack.add("conv", filters, 1, stride, 0, on=(fork, 1))
    for size in ((filters, 3, 1, 1), (4 * filters, 1, 1, 0)):
        stack.add("bn")
        stack.add("act")
        stack.add("conv", *size)
    stack.join(left, stack.add("bn"))
    stack.add("act")


KINDS = {"Convolution": "conv", "FullyConnected": "fc", "BatchNorm": "bn", "Activation": "act", "LRN": "lrn",
         "Dropout": "drop", "Concat": "concat", "elemwise_add": "join", "SoftmaxOutput": "softmax"}
"""Kinds of layers by the operator."""


def of_symbol(symbol: Any, data: Shape) -> tuple[list[Layer], int]:
    """The layers of a symbol for a shape of its input `data`, and the bytes of its parameters.

    MXNetError for an operator that is no layer here.
    """
    graph = bind_graph(symbol, {"data": data}, {})
    made: dict[Entry, tuple[int, int]] = {graph.first[graph.variable("data")]: (-1, 0)}
    layers: list[Layer] = []
    for i, op in enumerate(graph.op):
        sources = tuple(made[e] for e in graph.inputs[i] if e in made)
        if op is None or not sources:
            continue
        if op.view(graph.params[i]):
            made[graph.first[i]] = sources[0]
            continue
        shape = graph.type_of(graph.first[i]).shape
        layers.append(Layer(graph.name[i], _kind(op.name, graph.params[i]), sources, shape))
        made[graph.first[i]] = (len(layers) - 1, 0)
    return layers, _parameter_bytes(graph)


def _kind(op: str, params: Any) -> str:
    if op == "Pooling":
        return "pool" if params.pool_type == "max" else "mean"
    if op not in KINDS:
        raise MXNetError(f"the layers of published systems have no {op}; known are Pooling, {', '.join(KINDS)}")
    return KINDS[op]


def _parameter_bytes(graph: Graph) -> int:
    return sum(graph.type_of(graph.first[i]).nbytes for i in graph.variables()
               if graph.variable_class[i] != "auxiliary" and graph.name[i] not in ("data", "softmax_label"))
