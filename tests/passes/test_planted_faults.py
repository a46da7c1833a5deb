"""A fault planted in any pass is caught by the verifier, by the lint between passes, or by the packer's validator."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.binding import bind_graph
from minigraph.memory.layout import PersistentLayout
from minigraph.memory.schedule import from_order
from minigraph.optimizer import SGD
from minigraph.passes.compilation import Compilation, Request
from minigraph.passes.pipeline import PASSES, run_pass


def network() -> mx.sym.Symbol:
    """A small network with everything a plan may hold: views, in-place chains, states, a shared value."""
    x = mx.sym.Variable("data")
    h = mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=4, name="conv")
    h = mx.sym.BatchNorm(h, fix_gamma=False, name="bn")
    r = mx.sym.Activation(h, act_type="relu", name="relu")
    h = mx.sym.Convolution(r, kernel=(3, 3), pad=(1, 1), num_filter=4, name="conv2") + r
    h = mx.sym.FullyConnected(mx.sym.Flatten(h), num_hidden=5, name="fc")
    return mx.sym.SoftmaxOutput(h, name="softmax")


def compile_with(fault: Callable[[Compilation], None], after: str, program: str = "step") -> None:
    """Run the passes with a fault planted right after one of them."""
    symbol = network()
    graph = bind_graph(symbol, {"data": (2, 3, 6, 6)}, {})
    inputs = frozenset({"data", "softmax_label"})
    requests = {name: "null" if name in inputs else "write" for name in symbol.list_arguments()}
    state = Compilation(Request(program, requests, inputs, updater=SGD(momentum=0.9)), graph, PersistentLayout())
    for stage in PASSES:
        run_pass(stage, state)
        if stage.name == after:
            fault(state)


def node_named(state: Compilation, part: str) -> int:
    """The first node whose name holds a text."""
    return next(i for i, name in enumerate(state.graph.name) if part in name and state.graph.op[i] is not None)


def drop_a_read(state: Compilation) -> None:
    graph = state.graph
    node = node_named(state, "conv2/")
    graph.inputs[node] = graph.inputs[node][:-1]


def read_a_later_node(state: Compilation) -> None:
    graph = state.graph
    node = node_named(state, "conv2")
    graph.inputs[node] = (graph.first[len(graph) - 1], *graph.inputs[node][1:])


def swap_two_nodes(state: Compilation) -> None:
    order = list(state.schedule.order)
    order[3], order[4] = order[4], order[3]
    state.schedule = from_order(order)


def skip_a_node(state: Compilation) -> None:
    order = list(state.schedule.order)
    del order[2]
    state.schedule = from_order(order)


def share_with_a_living_value(state: Compilation) -> None:
    graph, sharing = state.graph, state.sharing
    relu, shortcut = node_named(state, "relu"), node_named(state, "conv2")
    entry, victim = graph.first[shortcut], graph.first[relu]
    storage_of, shares = list(sharing.storage_of), list(sharing.shares)
    storage_of[entry], shares[entry] = storage_of[victim], victim
    state.sharing = replace(sharing, storage_of=storage_of, shares=shares)


def end_a_life_too_early(state: Compilation) -> None:
    sharing = state.sharing
    relu = sharing.storage_of[state.graph.first[node_named(state, "relu")]]
    dies = list(sharing.dies)
    dies[relu] = sharing.born[relu] + 1
    state.sharing = replace(sharing, dies=dies)


def forget_the_workspace(state: Compilation) -> None:
    node = node_named(state, "conv2")
    state.workspace_offsets[node] = int(state.offsets[state.sharing.storage_of[state.graph.inputs[node][0]]])


def shift_an_offset(state: Compilation) -> None:
    offsets = state.offsets.copy()
    offsets[state.sharing.storage_of[state.graph.first[node_named(state, "relu")]]] += 1
    state.offsets = offsets


def move_onto_a_neighbour(state: Compilation) -> None:
    graph, offsets = state.graph, state.offsets.copy()
    relu, image = (state.sharing.storage_of[graph.first[i]] for i in
                   (node_named(state, "relu"), node_named(state, "conv2")))
    offsets[image] = offsets[relu]
    state.offsets = offsets


def shrink_the_arena(state: Compilation) -> None:
    state.transient_bytes -= 64


def change_a_buffer(state: Compilation) -> None:
    buffers = state.plan.buffers
    victim = next(b for b in range(len(buffers)) if buffers.buffer_class[b] == "activation" and buffers.shares[b] < 0)
    buffers.offset[victim] += 64 * (1 if buffers.offset[victim] == 0 else -1)


def lose_an_instruction(state: Compilation) -> None:
    for column in vars(state.plan.instructions).values():
        del column[4]


FAULTS = [("gradient", drop_a_read), ("fold views", read_a_later_node), ("schedule", swap_two_nodes),
          ("schedule", skip_a_node), ("share", share_with_a_living_value), ("share", end_a_life_too_early),
          ("pack", forget_the_workspace), ("pack", shift_an_offset), ("pack", move_onto_a_neighbour),
          ("pack", shrink_the_arena), ("lower", change_a_buffer), ("lower", lose_an_instruction)]


@pytest.mark.parametrize(("after", "fault"), [pytest.param(a, f, id=f"{a}-{f.__name__}") for a, f in FAULTS])
def test_a_fault_planted_after_a_pass_is_caught(after: str, fault: Callable[[Compilation], None]) -> None:
    with pytest.raises((MXNetError, ValueError)) as caught:
        compile_with(fault, after)
    assert str(caught.value)


@pytest.mark.parametrize("program", ["step", "train", "eval"])
def test_without_a_fault_every_program_verifies(program: str) -> None:
    compile_with(lambda state: None, "lower", program)


def test_a_pass_that_lacks_its_input_is_told_which_pass_provides_it() -> None:
    graph = bind_graph(network(), {"data": (2, 3, 6, 6)}, {})
    state = Compilation(Request("eval", {}), graph, PersistentLayout())
    with pytest.raises(MXNetError, match="requires `graph`, which expand provides"):
        run_pass(PASSES[1], state)


def test_planned_offsets_are_multiples_of_the_alignment() -> None:
    executor = network().simple_bind(mx.cpu(), data=(2, 3, 6, 6))
    assert not np.any(np.array(executor.plan.buffers.offset) % 64)
