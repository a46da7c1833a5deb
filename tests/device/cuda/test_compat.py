"""Models that MXNet trained run on the GPU as on the CPU. The files lie beside the project, in shared/compat."""
from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import minigraph as mx

from .processes import run

FILES = Path(__file__).resolve().parents[4] / "shared" / "compat"
MODELS = {"cifar_resnet20_v1": ((2, 3, 32, 32), 0), "cifar_resnet20_v2": ((2, 3, 32, 32), 0),
          "test_mnist_model": ((4, 1, 28, 28), 10)}


def logits(name: str, context: mx.Context) -> list[list[float]]:
    """The outputs of a stored model for fixed random pixels."""
    shape, epoch = MODELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gluon's files name a newer MXNet than is known here
        symbol, arguments, states = mx.model.load_checkpoint(str(FILES / name), epoch)
    executor = symbol.simple_bind(context, grad_req="null", data=shape)
    executor.copy_params_from(arguments, states)
    data = np.random.RandomState(0).rand(*shape).astype(np.float32)
    return executor.forward(is_train=False, data=data)[0].asnumpy().tolist()


def on_gpu(name: str) -> list[list[float]]:
    """`logits` on gpu(0), for a process of its own."""
    return logits(name, mx.gpu(0))


@pytest.mark.skipif(not FILES.is_dir(), reason="there is no folder shared/compat beside the checkout")
@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_stored_model_gives_the_same_outputs_on_both_devices(name: str) -> None:
    np.testing.assert_allclose(run(on_gpu, name), logits(name, mx.cpu()), rtol=2e-4, atol=2e-4)
