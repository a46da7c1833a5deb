"""What decides in the step-time benchmark: which turns count, the ratios, and that both sides are one network."""
from __future__ import annotations

import pytest

from benchmarks import step_networks, step_time
from benchmarks.step_time import Result, Side


def answers(*pairs: tuple[float, float]) -> list[dict[str, float]]:
    return [{"wall": wall, "cpu": wall, "others": others, "peak_bytes": 10.0} for wall, others in pairs]


def test_turns_beside_other_work_are_left_out_while_enough_are_quiet() -> None:
    side = Side("x")
    step_time._count(side, answers((1.0, 0.0), (9.0, 0.9), (2.0, 0.1), (3.0, 0.0)), "wall", always=False)
    assert side.seconds == [1.0, 2.0, 3.0] and side.thrown_away == 1
    step_time._count(side, answers((1.0, 0.9), (9.0, 0.9), (2.0, 0.0)), "wall", always=False)
    assert side.seconds == [1.0, 9.0, 2.0] and side.thrown_away == 0


def test_ratios_are_to_the_fastest_and_to_the_most_modest_mode_of_torch() -> None:
    sides = [Side("minigraph", [2.0], peak_bytes=30), Side("torch eager", [5.0], peak_bytes=60),
             Side("torch compile", [4.0], peak_bytes=90)]
    result = Result("net", 1, False, sides)
    assert result.ratio == 0.5 and result.memory_ratio == 0.5 and result.best.name == "torch compile"
    other = Result("net", 2, False, [Side("minigraph", [8.0], peak_bytes=60), *sides[1:]])
    assert step_time.summary([result, other]) == {"geomean_ratio": 1.0, "worst_ratio": 2.0, "memory_ratio": 0.75,
                                                  "worst_memory_ratio": 1.0}


def test_other_losses_stop_the_benchmark() -> None:
    step_time._check_losses("net", {"minigraph": [1.0, 2.0], "torch": [1.0005, 2.0]})
    with pytest.raises(RuntimeError, match="not the same network"):
        step_time._check_losses("net", {"minigraph": [1.0, 2.0], "torch": [1.0, 2.1]})


@pytest.mark.parametrize("name", ["mlp", "resnet20", "unet", "lstm"])
def test_both_sides_train_the_same_network(name: str) -> None:
    pytest.importorskip("torch", reason="the peer is PyTorch")
    network = step_networks.NETWORKS[name]
    own = step_networks.minigraph_peer(network, "plain", 1)
    peer = step_networks.torch_peer(network, "channels_last", 1)
    assert [own.step(), own.step()] == pytest.approx([peer.step(), peer.step()], rel=step_time.LOSS_TOLERANCE)
