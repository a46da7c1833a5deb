"""Checkpoints go from the CPU to the GPU and back."""
from __future__ import annotations

import numpy as np

import minigraph as mx
from tests.training import batches, mlp, prepared

from .processes import run

SETTINGS = {"learning_rate": 0.1, "momentum": 0.9, "rescale_grad": 1 / 8}


def moved(folder, first, second):
    """The largest differences of outputs and of parameters, after two more steps on either side of a checkpoint."""
    context = {"cpu": mx.cpu(), "gpu": mx.gpu(0)}
    mod = prepared(mlp(dropout=0.3, norm=True), "sgd", SETTINGS, context=context[first])
    for batch in batches(2):
        mod.training_step()(batch)
    mod.save_checkpoint(f"{folder}/net", 1, save_optimizer_states=True)
    again = mx.mod.Module.load(f"{folder}/net", 1, load_optimizer_states=True, context=context[second])
    again.bind([("data", (8, 6))], [("softmax_label", (8,))])
    again.init_optimizer(optimizer="sgd", optimizer_params=SETTINGS)
    same = all(np.array_equal(array.asnumpy(), mod.get_params()[0][name].asnumpy())
               for name, array in again.get_params()[0].items())
    for batch in batches(2):
        for each in (mod, again):
            each.training_step()(batch)
    outputs = [each.get_outputs()[0].asnumpy() for each in (mod, again)]
    weights = [np.concatenate([part[name].asnumpy().ravel() for part in each.get_params() for name in sorted(part)])
               for each in (mod, again)]
    return same, [float(np.abs(a - b).max()) for a, b in (outputs, weights)]


def test_a_checkpoint_of_one_device_goes_on_on_the_other(tmp_path):
    for first, second in (("cpu", "gpu"), ("gpu", "cpu")):
        same, differences = run(moved, str(tmp_path), first, second)
        assert same and max(differences) < 1e-4
