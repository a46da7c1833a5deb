"""The kernels of the LSTM cell give what NumPy gives."""
from __future__ import annotations

import numpy as np
import pytest

from .harness import check


@pytest.mark.parametrize("size", [(1, 1), (5, 7), (20, 200), (3, 5000), (0, 4), (4, 0)], ids=str)
def test_the_cell_and_its_gradient_agree_with_numpy(size: tuple[int, int]) -> None:
    rng = np.random.default_rng(sum(size))
    state, gates = size, (size[0], 4 * size[1])

    def draw(*shapes: tuple[int, ...]) -> list[np.ndarray]:
        return [rng.normal(0, 2, shape) for shape in shapes]
    check("lstm_cell", {}, draw(gates, gates, state), rtol=1e-6)
    check("_lstm_cell_backward", {}, draw(state, state, state, state, gates), rtol=2e-6)
    check("_lstm_cell_backward", {"with_cell": False}, draw(state, state, state, gates), rtol=2e-6)
