"""Kernels of the loss scale agree with NumPy, and training on the GPU leaves steps out as the CPU does."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph as mx
from minigraph.device.cuda.families import import_families
from minigraph.device.cuda.loss_scale import PART
from minigraph.ops import get_op
from minigraph.ops.control import CLIP, LOSS_SCALE, RESCALE, control_size

from .harness import every_sample, family_ops, ops_without_kernel, random_arrays
from .processes import run
from .test_executor import batches, bound

import_families()
KERNELS = ("loss_scale", "optimizer", "optimizer_more", "optimizer_layerwise")
UPDATES = [*(name for name in family_ops("optimizer") if name.endswith("_update")), *family_ops("optimizer_more"),
           *family_ops("optimizer_layerwise")]


def control(scale=2.0 ** 16):
    words = np.full(control_size(1), 0.1, np.float32)
    words[LOSS_SCALE], words[RESCALE], words[CLIP] = scale, 0.5, -1
    return words


def test_every_op_of_the_family_has_a_kernel():
    assert ops_without_kernel("loss_scale") == set()


@pytest.mark.parametrize(("op_name", "sample"), every_sample("loss_scale"))
def test_every_sample_agrees_with_numpy(kernels, op_name, sample):
    kernels.check_sample(op_name, sample)


@pytest.mark.parametrize("size", [0, 1, 5, 1031])
@pytest.mark.parametrize("inverse", [False, True])
def test_factors_are_those_of_numpy_to_the_bit(kernels, inverse, size):
    kernels.check("_scale_gradient", {"inverse": inverse}, [*random_arrays((size,)), control()], rtol=0, atol=0)


@pytest.mark.parametrize("size", [0, 1, 255, PART, PART + 1, 3 * PART + 5])
@pytest.mark.parametrize("bad", [np.float32(3.4028234e38), np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_found_wherever_it_is(kernels, bad, size):
    for place in {0, size // 2, size - 1} if size else {None}:
        (array,) = random_arrays((size,))
        if place is not None:
            array[place] = bad
        kernels.check("_find_nonfinite", {}, [array], rtol=0, atol=0)
        for found in (0, 1):
            kernels.check("_find_nonfinite", {"goes_on": True}, [array, np.full(1, found, np.float32)], rtol=0, atol=0)


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("found", [0, 1])
def test_the_check_is_that_of_numpy(kernels, found, scaled):
    arrays = [np.full(1, value, np.float32) for value in (np.nan, found)]
    kernels.check("_check_finite", {"scaled": scaled}, [*arrays, control()], rtol=0, atol=0)


@pytest.mark.parametrize("op_name", UPDATES)
@pytest.mark.parametrize("unscale", [0.0, 2.0 ** -16])
def test_updates_undo_the_scale_or_change_nothing(kernels, unscale, op_name):
    tensors = random_arrays(*[(1031,)] * (2 + len(get_op(op_name).states)), low=0.5, high=0.6)
    tensors[1] *= np.float32(2.0 ** 16)
    if not unscale:
        tensors[1][::5] = np.nan
    factors = [np.full(1, value, np.float32) for value in (0.75, unscale)]
    outs = kernels.check(op_name, {"index": 0, "has_scale": True, "has_unscale": True}, [*tensors, control(), *factors],
                         rtol=1e-5, atol=1e-6)
    if not unscale:
        changed = [source for source, _ in get_op(op_name).mutates(get_op(op_name).Params(index=0))]
        assert all(np.array_equal(a, tensors[k]) for a, k in zip(outs, changed, strict=True))


def test_the_sum_of_squares_undoes_the_scale(kernels):
    gradient = random_arrays((50021,))[0] * np.float32(2.0 ** 70)
    kernels.check("_sum_squares", {"scaled": True}, [gradient, control(2.0 ** 70)], rtol=5e-7, atol=0)


def steps(context, whole, spoil, norm, **options):
    """Parameters and states after six steps by Adam, two of which are left out, and what the optimizer knows."""
    executor = bound(context, **options)
    scale = None if spoil is None else mx.optimizer.LossScaler(2.0 ** 12, growth_interval=2)
    optimizer = mx.optimizer.create("adam", learning_rate=0.01, clip_global_norm=norm, loss_scale=scale)
    executor.set_updater(optimizer)
    for k, batch in enumerate(batches(6)):
        if k in (1, 4):
            if spoil is None:
                executor.forward(is_train=True, **batch)
                continue
            batch["data"][2, 0, 0, 0] = spoil
        if whole:
            executor.step(optimizer.control, **batch)
        else:
            executor.forward(is_train=True, **batch)
            executor.backward()
            executor.update(optimizer.control)
    states = [state.asnumpy() for name in sorted(executor.states) for state in executor.states[name]]
    arrays = [executor.arg_dict[name].asnumpy() for name in sorted(executor.arg_dict)] + states
    return arrays, (optimizer.num_update, optimizer.loss_scaler.state() if optimizer.loss_scaler else None)


def left_out():
    """Whether whole steps, steps apart and a replayed graph, with the clip of the norm and without, give the bits of
    training without the steps that are left out, and of the scale what the CPU says."""
    answers = {}
    for norm, ways in ((None, WAYS), (0.05, WAYS[:1])):
        plain, (count, _) = steps(mx.gpu(0), True, None, norm)
        told = steps(mx.cpu(), True, np.inf, norm)[1]
        answers[f"count, {norm}"] = count == told[0] == 4
        for whole, options in ways:
            arrays, state = steps(mx.gpu(0), whole, np.inf, norm, **options)
            same = [a.tobytes() == b.tobytes() for a, b in zip(arrays, plain, strict=True)]
            answers[f"{whole} {options}, {norm}"] = all(same) and state == told
    return answers


WAYS = [(True, {}), (False, {}), (True, {"graph": True})]


@pytest.mark.parametrize("schedule", ["lazy", "threads"])
def test_steps_are_left_out_on_the_gpu_as_on_the_cpu_and_else_the_bits_are_those_without_a_scale(schedule):
    answers = run(left_out, SOFTCUDA_SCHED=schedule, SOFTCUDA_RACE=1)
    assert all(answers.values()), answers
