"""The chain in little memory: stages within stages, told as one chain of units, and a least that rises with depth."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.memory.policies import POLICIES
from minigraph.memory.policies.narrow import MOST_FORWARD, best_times, schedules
from minigraph.memory.policies.rotor import BACKWARD, KEEP_ALL, KEEP_INPUT, LONGEST, Stage
from minigraph.memory.schedule import from_order
from tests.memory.problems import problem_of
from tests.memory.test_policies import chain
from zoo import resnet


def units_of(count: int, seed: int) -> list[Stage]:
    """A chain of units whose sizes and times come from a few kinds, as in a network of stages."""
    draw = np.random.default_rng(seed)
    kinds = [(float(draw.integers(1, 9)), int(draw.integers(60, 90)), int(draw.integers(10, 30)),
              int(draw.integers(0, 20))) for _ in range(3)]
    return [Stage(k, k + 1, frozenset(), *kinds[3 * k // count]) for k in range(count)]


def most_kept(units: list[Stage], commands: list[tuple[str, int]]) -> int:
    """The most bytes that commands keep at once: all of a unit until its backward, or the input of one."""
    kept, inputs, most = dict[int, int](), set[int](), 0
    for kind, k in commands:
        if kind == KEEP_ALL:
            kept[k] = units[k].kept_bytes
        elif kind == KEEP_INPUT:
            inputs.add(k)
        elif kind == BACKWARD:
            del kept[k]
            inputs -= {k}
        most = max(most, sum(kept.values()) + sum(units[k - 1].output_bytes for k in inputs if k and k - 1 not in kept))
    return most


@pytest.mark.parametrize("count", [LONGEST // 2, 3 * LONGEST, 9 * LONGEST + 5])
def test_every_unit_is_kept_whole_before_its_backward_and_commands_take_the_time_that_was_found(count: int) -> None:
    units = units_of(count, count)
    best = best_times(units)
    for slots in best.sizes(5, MOST_FORWARD):
        commands = list(best.commands(slots))
        seconds = sum(units[k].seconds for kind, k in commands if kind != BACKWARD)
        assert seconds == pytest.approx(best.seconds[0, best.count - 1][slots])
        assert seconds <= MOST_FORWARD * sum(unit.seconds for unit in units)
        assert [k for kind, k in commands if kind == BACKWARD] == list(reversed(range(count)))
        assert most_kept(units, commands) <= slots * best.slot_bytes


def test_a_chain_ten_times_as_deep_takes_hardly_more_at_least() -> None:
    least = []
    for count in (40, 400):
        problem = problem_of(chain(count, width=32), {"data": (4096, 32)})
        peaks = [problem.quick(schedule).peak_bytes for schedule in schedules(problem, 4)]
        plain = problem.quick(from_order(problem.order)).peak_bytes
        held = sum(problem.size_bytes[e] for e in problem.variables)
        assert min(peaks) == peaks[0] < plain / 3
        least.append(min(peaks) - held)
    assert least[0] <= least[1] <= 2 * least[0]


def test_auto_needs_no_less_for_a_deeper_residual_network_at_least() -> None:
    least = []
    for units in (27, 28):
        symbol = resnet.get_symbol(num_classes=10, units=(units,) * 3, version=2, image_shape=(3, 32, 32),
                                   bottleneck=False)
        problem = problem_of(symbol, {"data": (32, 3, 32, 32)})
        least.append(min(c.peak_bytes for c in POLICIES["auto"].candidates(problem)))
    assert least == sorted(least)
