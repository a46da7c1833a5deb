"""Ids out of range on the GPU: with poison a run raises as on the CPU, without it goes on by the operator's rule."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError, OutOfMemoryError
from minigraph.device.cuda.checking import WORD, ids_check
from minigraph.device.cuda.launch import Operand
from minigraph.executor import Executor
from minigraph.ops.indexing import IdRange
from minigraph.ops.ordering import TopkBackwardParams
from minigraph.optimizer import SGD
from minigraph.plan.plan import AGAIN
from tests.plan.build import Maker

from .harness import Memory
from .plans import load, output
from .processes import counters, run

KERNELS = ("indexing",)


# -- the kernel ----------------------------------------------------------------------------------------------------

def first_wrong(kernels, wanted, ids):
    """(place, value) of what the kernel notes, or None."""
    memory, word = Memory(ids.shape, ids.dtype, ids), Memory((1,), WORD)
    kernels.launch(ids_check("take", wanted, Operand(memory.address, ids.shape, ids.dtype), word.address))
    assert not memory.changed()
    number, bits = word.read()[0]
    return (int(number) - 1, np.array([bits]).view(ids.dtype)[0]) if number else None


@pytest.mark.parametrize("kind", [np.float32, np.int32, np.int64])
@pytest.mark.parametrize("count", [1, 256, 257, 3000])
def test_the_first_id_out_of_range_is_noted_with_its_value(kernels, kind, count):
    ids = np.random.default_rng(count).integers(2, 9, count).astype(kind)
    wanted = IdRange("take: index", 1, (count,), 9, least=2)
    assert first_wrong(kernels, wanted, ids) is None
    lowest, highest = (-np.inf, np.inf) if kind == np.float32 else (np.iinfo(kind).min, np.iinfo(kind).max)
    for at in {0, count // 2, count - 1}:
        for bad in (-1, 0, 1, 9, lowest, highest):
            wrong = ids.copy()
            wrong[at:] = np.where(np.arange(count - at) % 3 == 0, bad, wrong[at:])
            assert first_wrong(kernels, wanted, wrong) == (at, kind(bad))


def test_fractions_are_cut_off_nan_is_out_of_range_and_an_ignored_number_is_not(kernels):
    ids = np.array([1.5, 4.999, 0.0, -0.0, -7, np.nan], np.float32)
    place, value = first_wrong(kernels, IdRange("", 0, (6,), 5, ignored=-7.0), ids)
    assert place == 5 and np.isnan(value)
    assert first_wrong(kernels, IdRange("", 0, (5,), 5, ignored=-7.0), ids) is None
    assert first_wrong(kernels, IdRange("", 0, (6,), 5), ids) == (4, -7)
    assert first_wrong(kernels, IdRange("", 0, (2,), 5, start=3), ids) == (1, -7)
    assert first_wrong(kernels, IdRange("", 0, (1,), 5, start=2, least=1), ids) == (0, 0)


# -- programs ------------------------------------------------------------------------------------------------------

def attention(x: Any, ids: Any) -> Any:
    return mx.sym.scaled_dot_product_attention(x, x, x, length=ids, use_length=True, name="op")


READERS: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...], int, int]] = {
    "Embedding": (lambda x, ids: mx.sym.Embedding(ids, weight=x, input_dim=4, output_dim=3, name="op"), (4, 3), (3,),
                  0, 4),
    "take": (lambda x, ids: mx.sym.take(x, ids, axis=1, mode="raise", name="op"), (2, 4, 3), (3,), 0, 4),
    "pick": (lambda x, ids: mx.sym.pick(x, ids, name="op"), (3, 4), (3,), 0, 4),
    "one_hot": (lambda x, ids: x + mx.sym.one_hot(ids, depth=4, name="op"), (3, 4), (3,), 0, 4),
    "SoftmaxOutput": (lambda x, ids: mx.sym.SoftmaxOutput(x, ids, name="op"), (3, 4), (3,), 0, 4),
    "softmax_cross_entropy": (lambda x, ids: mx.sym.softmax_cross_entropy(x, ids, name="op"), (3, 4), (3,), 0, 4),
    "SVMOutput": (lambda x, ids: mx.sym.SVMOutput(x, ids, name="op"), (3, 4), (3,), 0, 4),
    "gather_nd": (lambda x, ids: mx.sym.gather_nd(x, ids, name="op"), (4, 4, 2), (2, 3), 0, 4),
    "scatter_nd": (lambda x, ids: mx.sym.scatter_nd(x, ids, shape=(4, 4, 2), name="op"), (3, 2), (2, 3), 0, 4),
    "SequenceMask": (lambda x, n: mx.sym.SequenceMask(x, n, use_sequence_length=True, name="op"), (3, 3, 2), (3,), 0,
                     4),
    "SequenceReverse": (lambda x, n: mx.sym.SequenceReverse(x, n, use_sequence_length=True, name="op"), (3, 3, 2),
                        (3,), 0, 4),
    "SequenceLast": (lambda x, n: mx.sym.SequenceLast(x, n, use_sequence_length=True, name="op"), (3, 3, 2), (3,), 1,
                     4),
    "attention": (attention, (3, 3, 2), (3,), 0, 4)}
"""(symbol, shape of x, shape of ids, least, bound) by the name of what reads the ids."""


def bound(reader: str, context: Any, dtype: str = "float32", **options: Any) -> Executor:
    make, data, ids, _, _ = READERS[reader]
    exe = Executor(make(mx.sym.Variable("x"), mx.sym.Variable("ids")), context, {"x": data, "ids": ids},
                   inputs=("ids",), grad_req={"x": "write", "ids": "null"}, dtypes={"ids": np.dtype(dtype)}, **options)
    restore(exe)
    return exe


def restore(exe: Executor) -> None:
    draw = np.random.RandomState(0)
    exe.copy_params_from({"x": draw.uniform(-1, 1, exe.arg_dict["x"].shape).astype(np.float32)})


def trained(exe: Executor, ids: np.ndarray) -> list[np.ndarray]:
    """Output and gradient of one training pass."""
    found = [exe.forward(is_train=True, ids=ids)[0].asnumpy()]
    exe.backward([np.ones(found[0].shape, np.float32)])
    return [*found, exe.grad_dict["x"].asnumpy()]


def refusal(exe: Executor, ids: np.ndarray) -> str | None:
    """The text of the error about these ids; a pass that changes nothing before it leaves the executor usable."""
    try:
        trained(exe, ids)
    except MXNetError as error:
        return str(error)
    return None


def wrong_ids(reader: str, dtype: str, bad: float) -> np.ndarray:
    """Ids of which the last is out of range."""
    ids = np.full(READERS[reader][2], READERS[reader][3], dtype)
    ids.reshape(-1)[-1] = bad
    return ids


def cases(reader: str) -> list[tuple[str, float]]:
    least, limit = READERS[reader][3:]
    floats = [least - 1, limit, 2147483647, np.nan, limit - 0.5]
    return [("float32", bad) for bad in floats] + [(kind, bad) for kind in ("int32", "int64") for bad in floats[:3]]


def refusals(options: dict[str, Any]) -> list[list[Any]]:
    """For each reader and bad id: the errors of the CPU, of the GPU with poison and without, and whether the results
    after an error are those of an executor that never had one."""
    answers = []
    for reader in READERS:
        for dtype in ("float32", "int32", "int64"):
            cpu, checked = bound(reader, mx.cpu(), dtype), bound(reader, mx.gpu(0), dtype, poison=True, **options)
            plain, good = bound(reader, mx.gpu(0), dtype, **options), np.full(READERS[reader][2], 1, dtype)
            expected = [a.tobytes() for a in trained(plain, good)]
            for bad in (bad for kind, bad in cases(reader) if kind == dtype):
                ids = wrong_ids(reader, dtype, bad)
                texts = [refusal(exe, ids) for exe in (cpu, checked, plain)]
                restored = [[a.tobytes() for a in trained(exe, good)] == expected for exe in (checked, plain)]
                answers.append([reader, dtype, str(bad), *texts, all(restored)])
    return [*answers, counters()["races"]]


@pytest.mark.parametrize("options", [{}, {"graph": True}], ids=["calls", "graph"])
def test_with_poison_the_gpu_raises_the_error_of_the_cpu_and_without_it_nothing(options):
    *answers, races = run(refusals, options, SOFTCUDA_RACE=1, SOFTCUDA_SCHED="lazy")
    assert races == 0 and len(answers) == len(READERS) * 11
    for reader, dtype, bad, cpu, gpu, plain, restored in answers:
        case = f"{reader} of {dtype} {bad}"
        assert plain is None and restored, case
        if bad.endswith(".5"):
            assert cpu is None and gpu is None, case
            continue
        position = int(np.prod(READERS[reader][2])) - 1
        assert gpu.startswith(cpu), (case, cpu, gpu)
        assert f"(element {position} of the input " in gpu and "in `train` on gpu(0))" in gpu, gpu
        assert "correct or clip it before this operator reads it" in gpu, gpu


def beside_each_other() -> list[Any]:
    """Wrong ids of an executor without poison do not raise in one with it, and no error names the other's node."""
    quiet, other = bound("pick", mx.gpu(0)), bound("Embedding", mx.gpu(0), poison=True)
    checked, good = bound("pick", mx.gpu(0), poison=True), np.array([0, 1, 2], np.float32)
    texts = []
    for _ in range(3):
        quiet.forward(is_train=True, ids=wrong_ids("pick", "float32", 7))
        texts += [refusal(checked, good), refusal(other, good)]
        quiet.forward(is_train=True, ids=wrong_ids("pick", "float32", 7))
        texts.append(refusal(other, wrong_ids("Embedding", "float32", 9)))
        texts.append(refusal(checked, good))
    return texts


@pytest.mark.parametrize("schedule", ["lazy", "threads"])
def test_executors_do_not_raise_for_each_others_ids(schedule):
    texts = run(beside_each_other, SOFTCUDA_SCHED=schedule)
    for first, second, wrong, after in zip(*(texts[k::4] for k in range(4)), strict=True):
        assert (first, second, after) == (None, None, None)
        assert "Embedding: index: 9.0 at position (2,) is outside [0, 4)" in wrong


def language_model() -> Any:
    rows = body = mx.sym.Embedding(mx.sym.Variable("ids"), input_dim=5, output_dim=64, name="embedding")
    for k in range(4):
        body = mx.sym.tanh(mx.sym.FullyConnected(body, num_hidden=64, flatten=False, name=f"fc{k}"))
    body = mx.sym.FullyConnected(body * rows, num_hidden=5, name="out")
    return mx.sym.SoftmaxOutput(body, mx.sym.Variable("label"), name="softmax")


def model(**options: Any) -> Executor:
    symbol, inputs = language_model(), ("ids", "label")
    exe = Executor(symbol, mx.gpu(0), {"ids": (8, 6), "label": (8,)}, inputs=inputs,
                   grad_req={n: "null" if n in inputs else "write" for n in symbol.list_arguments()}, **options)
    exe.set_updater(SGD(learning_rate=0.1, momentum=0.9))
    set_parameters(exe)
    return exe


def set_parameters(exe: Executor) -> None:
    draw = np.random.RandomState(0)
    exe.copy_params_from({name: draw.uniform(-0.1, 0.1, array.shape).astype(np.float32)
                          for name, array in sorted(exe.arg_dict.items()) if name not in ("ids", "label")})
    exe.clear_states()


def stepped(exe: Executor, ids: float, label: float) -> Any:
    """The output's first number of a whole step, or the text of its error."""
    control = SGD(learning_rate=0.1, momentum=0.9).control
    try:
        numbers = np.full((8, 6), 1, np.float32), np.full(8, 2, np.float32)
        numbers[0][3, 2], numbers[1][5] = ids, label
        return float(exe.step(control, ids=numbers[0], label=numbers[1])[0].asnumpy()[0, 0])
    except MXNetError as error:
        set_parameters(exe)
        return str(error)


def whole_steps(options: dict[str, Any]) -> list[Any]:
    if "budget" in options:
        with pytest.raises(OutOfMemoryError) as refused:
            model(**{**options, "budget": 1}).program("step")
        options = {**options, "budget": refused.value.asked_bytes}
    exe = model(poison=True, **options)
    first = stepped(exe, 1, 1)
    set_parameters(exe)
    code = exe.program("step").plan.instructions
    again = [AGAIN in name for name, op in zip(code.name, code.op, strict=True) if op == "Embedding"]
    wrong = [stepped(exe, -1, 1), stepped(exe, 1, 5), stepped(exe, 7, 9)]
    return [first, *wrong, stepped(exe, 1, 1), any(again)]


STEPS: list[dict[str, Any]] = [{}, {"graph": True}, {"memory": "auto", "budget": 0}]


def all_steps() -> list[Any]:
    return [[whole_steps(options) for options in STEPS], counters()["races"]]


def test_a_whole_step_tells_the_first_operator_that_read_an_id_out_of_range():
    answers, races = run(all_steps, SOFTCUDA_RACE=1)
    assert races == 0
    for options, (good, ids, label, both, after, again) in zip(STEPS, answers, strict=True):
        assert good == after and isinstance(good, float), options
        assert again == ("budget" in options), options
        assert "Embedding: index: -1.0 at position (3, 2) is outside [0, 5) (element 20 of the input data" in ids
        assert label.startswith("softmax") and "SoftmaxOutput: label: 5.0 at position (5,) is outside [0, 5)" in label
        assert "Embedding: index: 7.0" in both and "in `step` on gpu(0)" in both


def hand_made(ids: list[float], poison: bool) -> Any:
    """The gradient of the largest elements of 16, at places that come from outside; or the text of the error."""
    m = Maker()
    grad, places = m.value("grad", 3, buffer_class="input"), m.value("places", 3, buffer_class="input")
    data, out = m.value("data", buffer_class="input"), m.value("out", buffer_class="output")
    m.run("_topk_backward", (grad, places, data), (out,), unread=(2,), params=TopkBackwardParams(None), name="best")
    program = load(m.plan(inputs=(grad, places, data), outputs=(out,)), poison=poison)
    program.feed("grad", np.array([1, 2, 3], np.float32))
    program.feed("places", np.array(ids, np.float32))
    try:
        program.run("step")
        return output(program).tolist()
    except MXNetError as error:
        return str(error)


def without_poison() -> list[Any]:
    """Whether wrong ids give zero rows and no gradient; launches and copies of a forward pass; calls and
    instructions of the program."""
    exe, followed = bound("Embedding", mx.gpu(0)), []
    for bad in (-1, 4, 2147483647, np.nan):
        out, grad = trained(exe, np.array([2, bad, 1], np.float32))
        followed.append(not out[1].any() and out[[0, 2]].all() and grad.sum(axis=1).tolist() == [0, 3, 3, 0])
    before, program = counters(), exe.program("train")
    exe.forward(is_train=True, ids=np.zeros(3, np.float32))
    spent = [counters()[name] - before[name] for name in ("launches", "copies")]
    return [all(followed), *spent, sum(map(len, program._calls.values())), len(program.plan)]


def places_and_rule() -> list[Any]:
    checked = [hand_made([4, 5, 15], True), hand_made([4, 16, -1], True)]
    return [*checked, hand_made([4, 5, 15], False), hand_made([4, 16, 15], False), without_poison()]


def test_without_poison_results_follow_the_rule_and_nothing_runs_beside_the_plan():
    good, error, plain, ruled, (followed, launches, copies, calls, instructions) = run(places_and_rule)
    assert good == plain == [0] * 4 + [1, 2] + [0] * 9 + [3]
    assert ruled == [0] * 4 + [1, 0] + [0] * 9 + [3]
    assert "best: topk: index: 16.0 at position (1,) is outside [0, 16)" in error
    assert followed and (launches, copies) == (1, 2) and calls == instructions == 2
