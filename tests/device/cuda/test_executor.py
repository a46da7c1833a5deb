"""Executors and modules on the GPU run the same programs as on the CPU."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.executor import Executor
from tests.training import with_values

from .processes import SCHEDULES, counters, run

BATCH, CLASSES = 6, 3
SHAPES = {"data": (BATCH, 3, 8, 8), "softmax_label": (BATCH,)}


def classifier():
    """conv 3x3 (4) - BatchNorm - relu - max pool - dense (3) - softmax cross-entropy."""
    net = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(3, 3), num_filter=4, pad=(1, 1), name="conv")
    net = mx.sym.BatchNorm(net, fix_gamma=False, name="bn")
    net = mx.sym.Activation(net, act_type="relu", name="relu")
    net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=CLASSES, name="fc"), name="softmax")


def batches(count, seed=1):
    draw = np.random.RandomState(seed)
    return [{"data": draw.randn(*SHAPES["data"]).astype(np.float32),
             "softmax_label": draw.randint(0, CLASSES, BATCH).astype(np.float32)} for _ in range(count)]


def bound(context, **options):
    exe = Executor(classifier(), context, SHAPES, inputs=tuple(SHAPES),
                   grad_req={n: "null" if n in SHAPES else "write" for n in classifier().list_arguments()}, **options)
    return with_values(exe)


def by_train(context, **options):
    """Outputs, gradients and statistics of forward, backward and evaluation."""
    exe = bound(context, **options)
    found = []
    for batch in batches(2):
        found += [array.asnumpy() for array in exe.forward(is_train=True, **batch)]
        exe.backward()
        found += [g.asnumpy() for g in exe.grad_dict.values() if g is not None]
        found += [array.asnumpy() for array in exe.forward(is_train=False, **batch)]
    return found + [array.asnumpy() for array in exe.aux_arrays]


def by_step(context, **options):
    """Outputs, parameters and statistics of whole steps of momentum SGD, by a Module, and its predictions after."""
    module = mx.mod.Module(classifier(), context=context, **options)
    data = [mx.io.DataBatch([mx.nd.array(b["data"])], [mx.nd.array(b["softmax_label"])]) for b in batches(4)]
    module.bind([("data", SHAPES["data"])], [("softmax_label", SHAPES["softmax_label"])])
    mx.random.seed(3)
    np.random.seed(3)
    module.init_params(mx.init.Xavier())
    module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-3})
    found = []
    for batch in data:
        module.forward_backward(batch)
        module.update()
        found.append(module.get_outputs()[0].asnumpy())
    module.forward(data[0], is_train=False)
    found.append(module.get_outputs()[0].asnumpy())
    arguments, auxiliary = module.get_params()
    return found + [{**arguments, **auxiliary}[name].asnumpy() for name in sorted({**arguments, **auxiliary})]


def compare(options):
    """Compares the GPU with the CPU; tells whether a second run and each option give the same bits."""
    answers = {}
    for way in (by_train, by_step):
        expected, found = way(mx.cpu()), way(mx.gpu(0))
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_allclose(b, a, rtol=2e-4, atol=2e-5)
        again = way(mx.gpu(0))
        answers[way.__name__] = [a.tobytes() for a in found] == [b.tobytes() for b in again]
    plain = by_train(mx.gpu(0))
    for option in options:
        other = by_train(mx.gpu(0), **option)
        answers[str(option)] = [a.tobytes() for a in plain] == [b.tobytes() for b in other]
    return answers, counters()["races"]


OPTIONS = [{"poison": True}, {"graph": True}, {"memory": "naive"}, {"memory": "inplace"}]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_programs_agree_with_the_cpu_and_repeat_to_the_bit_whatever_the_schedule(schedule):
    answers, races = run(compare, OPTIONS, SOFTCUDA_SCHED=schedule, SOFTCUDA_RACE=1, SOFTCUDA_ORDER="random")
    assert races == 0 and all(answers.values()), answers
    assert len(answers) == 2 + len(OPTIONS)


def test_an_allocation_for_each_buffer_gives_the_same_results_and_finds_no_overrun():
    answers, _ = run(compare, OPTIONS, MINIGRAPH_CUDA_POOL="off", SOFTCUDA_ALIGN=64)
    assert all(answers.values()), answers


def whole_steps():
    """`step` against `forward`, `backward`, `update`; both from the same parameters."""
    from minigraph.optimizer import create
    results = []
    for whole in (True, False):
        exe = bound(mx.gpu(0))
        optimizer = create("sgd", learning_rate=0.1, momentum=0.9)
        exe.set_updater(optimizer)
        results.append([])
        for batch in batches(3):
            if whole:
                outputs = exe.step(lambda names: control(names), **batch)
            else:
                outputs = exe.forward(is_train=True, **batch)
                exe.backward()
                exe.update(lambda names: control(names))
            results[-1].append(outputs[0].asnumpy())
        results[-1] += [exe.arg_dict[name].asnumpy() for name in sorted(exe.arg_dict)]
    return [a.tobytes() == b.tobytes() for a, b in zip(*results, strict=True)]


def control(names):
    from minigraph.ops.control import CLIP, RESCALE, control_size
    words = np.zeros(control_size(len(names)), np.float32)
    words[RESCALE], words[CLIP] = 1, -1
    words[8::2] = 0.1
    return words


@pytest.mark.parametrize("schedule", ["lazy", "threads"])
def test_a_whole_step_gives_the_bits_of_forward_backward_and_update(schedule):
    assert all(run(whole_steps, SOFTCUDA_SCHED=schedule, SOFTCUDA_RACE=1))


def handles():
    exe = bound(mx.gpu(0))
    weight = exe.arg_dict["fc_weight"]
    weight[1:2] = 7
    weight[0, 0] = 3
    seen = weight.asnumpy()
    kept = exe.forward(is_train=False, **batches(1)[0])[0]
    first = kept.asnumpy()
    exe.outputs[0][:] = 5
    changed = kept.asnumpy()
    larger = exe.reshape(allow_up_sizing=True, data=(2 * BATCH, 3, 8, 8), softmax_label=(2 * BATCH,))
    batch = {name: np.concatenate([value, value]) for name, value in batches(1)[0].items()}
    twice = larger.forward(is_train=False, **batch)[0].asnumpy()
    try:
        kept.asnumpy()
    except MXNetError as error:
        text = str(error)
    mx.nd.waitall()
    return (seen[0, 0].item(), set(seen[1].tolist()) == {7}, str(weight.context), set(changed.ravel().tolist()) == {5},
            bool(np.allclose(twice[:BATCH], first) and np.allclose(twice[BATCH:], first)), text)


def test_handles_write_parts_and_an_output_ends_when_another_program_runs():
    corner, row, context, changed, same, text = run(handles, SOFTCUDA_RACE=1)
    assert (corner, row, context, changed, same) == (3, True, "gpu(0)", True, True)
    assert "is gone: another program" in text


def random_masks():
    net = mx.sym.Dropout(mx.sym.Variable("x"), p=0.5, name="drop")
    results = []
    for context in (mx.cpu(), mx.gpu(0)):
        mx.random.seed(11)
        exe = net.simple_bind(context, x=(4, 50))
        results.append([exe.forward(is_train=True, x=np.ones((4, 50)))[0].asnumpy() for _ in range(3)])
    return [bool((a == b).all()) for a, b in zip(*results, strict=True)], bool((results[1][0] != results[1][1]).any())


def test_random_masks_are_those_of_the_cpu():
    same, differ = run(random_masks)
    assert same == [True] * 3 and differ


def graph_on_cpu():
    bound(mx.cpu(), graph=True).forward(**batches(1)[0])


def test_graph_replay_on_the_cpu_is_refused():
    with pytest.raises(MXNetError, match="the CPU has no graphs to replay"):
        graph_on_cpu()


def bind_views():
    from tests.test_bind_views import VIEWS, check_flat, check_shared
    for make in VIEWS:
        check_shared(mx.gpu(0), make)
    check_flat(mx.gpu(0))
    home = check_flat(mx.gpu(0), host_budget="1MB", memory="auto", budget=100_000)
    return home.group.layout.home_bytes > 0


def test_arrays_that_share_memory_go_on_sharing_it_on_the_gpu():
    assert run(bind_views)
