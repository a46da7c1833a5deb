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
