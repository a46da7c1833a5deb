"""A network's chain stays in blocks: conversions stand at its edges only."""
from __future__ import annotations

import zoo
from minigraph import optimizer, planning
from tests.device.cpu.native.harness import the_library


def test_a_residual_network_is_converted_once_into_blocks_and_once_out_of_them() -> None:
    assert the_library()
    symbol = zoo.get("resnet")(num_classes=10, depth=20, image_shape=(3, 32, 32))
    plan = planning.plan(symbol, {"data": (8, 3, 32, 32)}, optimizer.create("sgd", momentum=0.9), "step")
    conversions = [op for op in plan.instructions.op if op in ("_to_blocked", "_to_plain")]
    assert len(conversions) <= 2, conversions
    assert any(layout for layout in plan.buffers.layout)


def test_a_recurrent_network_transposes_the_weights_of_its_states_once_a_layer() -> None:
    assert the_library()
    symbol = zoo.get("lstm")(num_classes=50, seq_len=20, layers=2, hidden=40, p=0.0)
    plan = planning.plan(symbol, {"data": (20, 20)}, optimizer.create("sgd", momentum=0.9), "step")
    code, layouts = plan.instructions, plan.buffers.layout
    transposed = [name for op, name in zip(code.op, code.name, strict=True) if op == "transpose"]
    assert [name.split("/")[0] for name in transposed] == ["lstm_l0_h2h_weight", "lstm_l1_h2h_weight"]
    steps = [layouts[reads[1]] for op, reads in zip(code.op, code.reads, strict=True) if op == "FullyConnected"]
    assert steps.count("transposed") == 2 * 20 and len(steps) == 2 * 20 + 3
