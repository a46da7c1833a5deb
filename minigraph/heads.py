"""Which labels belong to which outputs of a symbol, and metrics of a module's batch by that.

MXNet pairs the first label with the first output, and so on, though labels come in an iterator's order (that of their
names, from a dict) and outputs in the symbol's. Here the symbol tells:

- An output that an operator computes as a prediction for its input `label`, as SoftmaxOutput and the regressions do,
  perhaps reshaped or behind BlockGrad or MakeLoss since, belongs to the label that this input is, or is computed from.
- Of the labels and outputs that are left, those belong together of which each output depends on one label, and each
  label is that of one output.
- Outputs and labels that are left then take no part, such as features beside a classifier, or weights of its samples.
  Where the symbol tells of no output at all, all are paired in order as in MXNet, and must be equally many.

This is for metrics that compare each prediction with a label, and for functions of the two. Metrics that a script
defines get all labels and all outputs in order, as in MXNet, for it may pick them by number. A metric with both
`label_names` and `output_names` compares those in their order; with one of the two, what it names is paired as above.
"""
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from .bound import repeated_name
from .metric_base import CompositeEvalMetric, EvalMetric
from .metric_labels import MetricError
from .symbol.node import NodeEntry, SymbolNode
from .symbol.symbol import Symbol


class Heads:
    """The outputs of a symbol, each with its label: `own` is that of a prediction, None for other outputs, and
    `reached` are all labels that an output depends on."""

    def __init__(self, symbol: Symbol, label_names: Collection[str]) -> None:
        labels = frozenset(label_names)
        self.names = symbol.list_outputs()
        self.own = [_own_label(node, labels) for node, _ in symbol.outputs]
        reached: dict[SymbolNode, frozenset[str]] = {}
        for node in symbol.nodes():
            below = {reached[child] for child, _ in node.inputs}
            reached[node] = labels & {node.name} if node.op is None else frozenset().union(*below)
        self.reached = [reached[node] for node, _ in symbol.outputs]

    def pairs(self, labels: Sequence[str], outputs: Sequence[int]) -> list[tuple[str, int]] | None:
        """Pairs of these labels and of the outputs of these numbers, in the order of the outputs; None where the symbol
        does not tell."""
        found = {k: own for k in outputs if (own := self.own[k]) is not None and own in labels}
        left = set(labels).difference(found.values())
        depending = {k: self.reached[k] & left for k in outputs if self.own[k] is None}
        single = {k: next(iter(on)) for k, on in depending.items() if len(on) == 1}
        if repeated_name([*single.values()]) is None and (found or len(single) == len(outputs) == len(left)):
            found.update(single)
        return [(found[k], k) for k in outputs if k in found] or None

    def by_name(self, outputs: Sequence[Any]) -> dict[str, Any]:
        """Values of the outputs by name; MetricError where two outputs have one name."""
        _refuse_repeated(self.names)
        return dict(zip(self.names, outputs, strict=True))


def update_metric(metric: Any, labels: Mapping[str, Any], outputs: Sequence[Any], heads: Heads) -> None:
    """Take a batch into a metric: labels by name in order, and outputs in the symbol's order, paired as told above.

    A metric with an `update_dict` of its own gets both by name, and then no two outputs may have one.
    """
    _update(metric, labels, outputs, heads, range(len(outputs)))


def _update(metric: Any, labels: Mapping[str, Any], outputs: Sequence[Any], heads: Heads,
            chosen: Sequence[int]) -> None:
    """Take in those outputs whose numbers are chosen."""
    by = type(metric).update_dict if isinstance(metric, EvalMetric) else None
    if by is CompositeEvalMetric.update_dict:
        if metric.label_names is not None:
            labels = {name: value for name, value in labels.items() if name in metric.label_names}
        if metric.output_names is not None:
            chosen = [k for k in chosen if heads.names[k] in metric.output_names]
        for part in metric.metrics:
            _update(part, labels, outputs, heads, chosen)
    elif by is EvalMetric.update_dict:
        _update_one(metric, labels, outputs, heads, chosen)
    else:
        metric.update_dict(labels, heads.by_name(outputs))


def _update_one(metric: EvalMetric, labels: Mapping[str, Any], outputs: Sequence[Any], heads: Heads,
                chosen: Sequence[int]) -> None:
    names = metric.selected({name: name for name in labels}, metric.label_names, "label")
    if metric.output_names:
        _refuse_repeated([heads.names[k] for k in chosen if heads.names[k] in metric.output_names])
        chosen = metric.selected({heads.names[k]: k for k in chosen}, metric.output_names, "output")
    told = bool(metric.label_names and metric.output_names)
    pairs = heads.pairs(names, chosen) if metric.compares_pairs and not told else None
    if pairs is not None:
        names, chosen = map(list, zip(*pairs, strict=True))
    metric.update([labels[name] for name in names], [outputs[k] for k in chosen])


def _refuse_repeated(names: Sequence[str]) -> None:
    repeated = repeated_name(names)
    if repeated is not None:
        raise MetricError(f"several outputs are called {repeated!r}, so a metric cannot tell them apart by that name; "
                          f"give the operators names of their own")


# -- the symbol ------------------------------------------------------------------------------------------------------
def _own_label(node: SymbolNode, labels: frozenset[str]) -> str | None:
    """The label of a prediction: what its operator, or the one that it only shows, takes as the input `label`."""
    while node.op is not None:
        taken = _label_input(node)
        if taken is not None:
            return _nearest(node.inputs[taken], labels)
        if len(node.inputs) != 1 or not (node.op.view(node.params) or node.op.is_loss(node.params)):
            return None
        node = node.inputs[0][0]
    return None


def _label_input(node: SymbolNode) -> int | None:
    """The number of a node's input `label`, if its output is a prediction, which does not depend on it."""
    assert node.op is not None
    names = node.op.inputs(node.params)
    number = names.index("label") if "label" in names else -1
    if number < 0 or not (number in node.op.unread(node.params) or node.op.is_loss(node.params)):
        return None
    return number


def _nearest(entry: NodeEntry, labels: frozenset[str]) -> str | None:
    """The label that a value is, or is computed from by the fewest operators; None if there is none, or no single one.

    A value that depends on a prediction does not thereby depend on that one's label.
    """
    level, seen = [entry[0]], {entry[0]}
    while level:
        found = {node.name for node in level if node.op is None and node.name in labels}
        if found:
            return found.pop() if len(found) == 1 else None
        following = []
        for node in level:
            skipped = _label_input(node) if node.op is not None else None
            for number, (child, _) in enumerate(node.inputs):
                if number != skipped and child not in seen:
                    seen.add(child)
                    following.append(child)
        level = following
    return None
