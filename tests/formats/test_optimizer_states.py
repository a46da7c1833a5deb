"""Files of optimizer states: what is kept, and what is refused."""
from __future__ import annotations

import pickle

import numpy as np
import pytest

from minigraph.base import MXNetError
from minigraph.formats import optimizer_states


def test_a_pickle_is_refused_unopened():
    with pytest.raises(MXNetError, match="Python pickle"):
        optimizer_states.loads(pickle.dumps({0: None}))


def test_states_files_keep_keys_counts_and_arrays():
    states = optimizer_states.OptimizerStates("adam", 7, {"a": 7, 3: 5},
                                              {"a": (np.eye(2, dtype=np.float32),), 3: ()}, 9)
    read = optimizer_states.loads(optimizer_states.dumps(states))
    assert (read.optimizer, read.num_update, read.counts, read.random_step) == ("adam", 7, {"a": 7, 3: 5}, 9)
    assert list(read.arrays) == ["a", 3] and read.arrays[3] == ()
    assert np.array_equal(read.arrays["a"][0], np.eye(2))


def test_damaged_states_files_give_one_error():
    whole = optimizer_states.dumps(optimizer_states.OptimizerStates("sgd", 1, {"a": 1}, {"a": (np.ones(2),)}))
    for damaged in (b"", whole[:-3], whole.replace(b'"version": 1', b'"version": 2'),
                    whole.replace(b"[[", b"[{", 1), whole.replace(b'"num_update"', b'"num_updote"')):
        with pytest.raises(MXNetError):
            optimizer_states.loads(damaged)
