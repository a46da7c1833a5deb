"""Every operator against PyTorch: registry x samples, outputs and gradients, in float64 and float32."""
from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

import minigraph as mx
from minigraph.ops import get_op, names
from minigraph.ops.op import Op, Sample

from . import test_registry as registry
from .harness import execute, parsed

torch = pytest.importorskip("torch", reason="the oracle is PyTorch, which is not installed")
from . import (  # noqa: E402
    oracles,
    oracles_composed,  # noqa: F401
    oracles_encoded,  # noqa: F401
    oracles_layers,  # noqa: F401  (add to it)
    oracles_more,  # noqa: F401
    oracles_regions,  # noqa: F401
    oracles_rules,  # noqa: F401
    oracles_sequence,  # noqa: F401
    oracles_slices,  # noqa: F401
    oracles_update,  # noqa: F401
)

KEYED = ("Dropout", "LeakyReLU", "_random_normal", "_random_uniform")
"""Ops whose expansion reads the control buffer; their oracles take it as a last input."""
CASES = [case for case in registry.CASES if case.values[0] in oracles.ORACLES]
SINGLE = [case for case in CASES if case in registry.SINGLE]
EXPANDED = [case for case in CASES if case not in registry.SINGLE]
WITH_GRADIENT = [case for case in CASES if case in registry.DIFFERENTIABLE_OR_LOSS]


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """Tensors are tiny: threads of PyTorch would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tensors(arrays: list[np.ndarray], given: tuple[str, ...]) -> list[Any]:
    """Arrays as float64 tensors; control buffers keep their bits."""
    return [torch.tensor(a) if name in registry.CONTROL_NAMES else torch.tensor(a.astype(np.float64))
            for a, name in zip(arrays, given, strict=True)]


def key_of(executor: Any) -> Any:
    """The control buffer of an executor's last forward, as far as random ops read it."""
    control = np.zeros(8, np.float32)
    registry.set_key(control, *executor._key)
    return torch.tensor(control)


def agree(found: list[np.ndarray], expected: list[Any], rtol: float, atol: float) -> None:
    """Outputs equal the oracle's; those of fewer bits than float64 by what they can hold."""
    assert len(found) == len(expected)
    for array, tensor in zip(found, expected, strict=True):
        want = tensor.detach().numpy()
        assert array.shape == want.shape
        least = 1e-6 if array.dtype == np.float32 else 0
        np.testing.assert_allclose(array, want, max(rtol, least), max(atol, least))


def oracle_of(name: str) -> Any:
    return oracles.ORACLES[name]


def test_every_public_operator_has_an_oracle() -> None:
    assert [name for name in names() if not name.startswith("_") and name not in oracles.ORACLES] == []


@cache
def differentiated() -> frozenset[str]:
    """Operators that stand in the training graph of a sample whose gradient an oracle judges."""
    graphs = [registry.training_graph(*case.values)[0] for case in WITH_GRADIENT]
    return frozenset(op.name for graph in graphs for op in graph.op if op is not None)


def test_every_private_operator_has_an_oracle_or_makes_a_gradient_that_one_judges() -> None:
    assert [name for name in names() if name not in oracles.ORACLES and name not in differentiated()
            and get_op(name).transfer is None] == []


def test_every_operator_that_is_its_own_loss_has_one() -> None:
    assert set(oracles.LOSSES) == {name for name in names() if any(
        get_op(name).is_loss(parsed(get_op(name), s.params)) for s in get_op(name).samples())}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("name", "k"), SINGLE)
def test_outputs_are_those_of_torch(name: str, k: int, dtype: Any) -> None:
    op, sample = get_op(name), get_op(name).samples()[k]
    p = parsed(op, sample.params)
    arrays = registry.draw(op, sample, dtype)
    if p_dtype := getattr(p, "dtype", None):
        dtype = p_dtype
    given, _ = op.infer_dtype(p, [a.dtype if i == 0 else None for i, a in enumerate(arrays)], [None] * len(
        op.outputs(p)))
    arrays = [a.astype(t) for a, t in zip(arrays, given, strict=True)]
    expected = oracle_of(name)(p, *tensors(arrays, op.inputs(p)))
    tolerance = (1e-9, 1e-9) if dtype == np.float64 else (sample.rtol, sample.atol)
    agree(execute(op, p, arrays), expected, *tolerance)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("name", "k"), EXPANDED)
def test_both_forms_of_ops_that_expand_are_those_of_torch(name: str, k: int, dtype: Any) -> None:
    op, sample = get_op(name), get_op(name).samples()[k]
    p = parsed(op, sample.params)
    executor, _, arrays = registry.bound(name, sample, dtype, "null", poison=True)
    tolerance = (1e-9, 1e-9) if dtype == np.float64 else (sample.rtol, sample.atol)
    found = registry.forward(executor)
    inputs = tensors(arrays, op.inputs(p)) + ([key_of(executor)] if name in KEYED else [])
    agree(found, oracle_of(name)(p, *inputs), *tolerance)
    if name in oracles.AUXILIARY:
        moved = oracles.AUXILIARY[name](p, *inputs)
        agree([a.asnumpy() for a in executor.aux_arrays], moved, *tolerance)
        inputs[-len(moved):] = moved
    found = [o.asnumpy() for o in executor.forward(is_train=False)]
    if name in KEYED:  # evaluations have keys of their own
        inputs[-1] = key_of(executor)
    agree(found, oracles.EVALUATION.get(name, oracle_of(name))(p, *inputs), *tolerance)


def expected_gradients(name: str, sample: Sample, inputs: list[Any], wanted: list[bool],
                       heads: list[np.ndarray]) -> list[Any]:
    """Gradients of the wanted inputs by autograd, of the promised loss where the op has one; zero for none."""
    p = parsed(get_op(name), sample.params)
    leaves = [t.requires_grad_() for t, ask in zip(inputs, wanted, strict=False) if ask]
    outs = list(oracle_of(name)(p, *inputs))[:len(heads)]
    if name in oracles.LOSSES:      # of its data: a label gets no gradient
        total = oracles.LOSSES[name](p, inputs[0], *(t.detach() for t in inputs[1:]))
    else:
        total = sum((o.double() * torch.tensor(h)).sum() for o, h in zip(outs, heads, strict=True))
    if not getattr(total, "requires_grad", False):
        return [torch.zeros_like(t) for t in leaves]
    found = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
    return [g * torch.tensor(heads[0]) for g in found] if getattr(p, "out_grad", False) else list(found)


def compare_gradients(name: str, sample: Sample) -> None:
    """Backward through the executor equals autograd through the oracle, to 1e-8 of the largest element."""
    executor, variables, arrays = registry.bound(name, sample, np.float64, "write", poison=True)
    registry.forward(executor)
    heads = registry.head_gradients(executor)
    executor.backward(heads)
    found = [g.asnumpy() for g in executor.grad_dict.values() if g is not None]
    wanted = [executor.grad_dict.get(v) is not None for v in variables]
    op = get_op(name)
    inputs = tensors(arrays, op.inputs(parsed(op, sample.params)))
    expected = expected_gradients(name, sample, inputs + ([key_of(executor)] if name in KEYED else []),
                                  wanted, heads)
    for gradient, want in zip(found, expected, strict=True):
        scale = max(float(want.abs().max()) if want.numel() else 0.0, 1e-3)
        np.testing.assert_allclose(gradient, want.numpy(), 1e-8, 1e-8 * scale)


@pytest.mark.parametrize(("name", "k"), WITH_GRADIENT)
def test_gradients_are_those_of_torch(name: str, k: int) -> None:
    compare_gradients(name, get_op(name).samples()[k])


def softmax_options() -> list[Any]:
    """Every combination of SoftmaxOutput's options, with labels that it takes."""
    cases = []
    for form, scale, out_grad in product(({}, {"multi_output": True}, {"preserve_shape": True}), (1.0, 2.5),
                                         (False, True)):
        for normalization, ignore, smooth in product(("null", "batch", "valid"), (None, 1, 2), (0.0, 0.2)):
            params: dict[str, Any] = {**form, "grad_scale": scale, "out_grad": out_grad, "smooth_alpha": smooth,
                                      "normalization": normalization, "use_ignore": ignore is not None}
            if ignore is not None:
                params["ignore_label"] = ignore
            label = (3, 4) if "multi_output" in form else (3, 3) if "preserve_shape" in form else (3,)
            data = (3, 3, 2, 2) if "multi_output" in form else (3, 3, 3) if form else (3, 3)
            cases.append(Sample(params, (data, label), integer={"label": 3}))
    return cases


@pytest.mark.parametrize("form", [{}, {"multi_output": True}, {"preserve_shape": True}])
def test_softmax_output_gradients_take_every_option(form: dict[str, Any]) -> None:
    for sample in softmax_options():
        if {k: v for k, v in sample.params.items() if k in ("multi_output", "preserve_shape")} == form:
            compare_gradients("SoftmaxOutput", sample)


@pytest.mark.parametrize("params", [{}, {"grad_scale": 3.0}, {"multi_output": True}, {"preserve_shape": True},
                                    {"out_grad": True, "normalization": "batch"}])
def test_softmax_output_takes_probabilities_as_labels(params: dict[str, Any]) -> None:
    compare_gradients("SoftmaxOutput", Sample(params, ((2, 3, 4), (2, 3, 4)), low=0.0))


@pytest.mark.parametrize("normalization", ["null", "batch", "valid"])
def test_make_loss_takes_every_option(normalization: str) -> None:
    params = {"normalization": normalization, "grad_scale": 1.5, "valid_thresh": 0.2}
    compare_gradients("MakeLoss", Sample(params, ((4, 5),)))


@pytest.mark.parametrize("name", ["LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput"])
@pytest.mark.parametrize("shapes", [((4, 2, 3), (4, 2, 3)), ((4, 6), (4, 2, 3)), ((5, 1), (5,)), ((5,), (5,))])
def test_regression_losses_are_a_mean_over_the_outputs_of_a_sample(name: str, shapes: Any) -> None:
    compare_gradients(name, Sample({"grad_scale": 0.7}, shapes))


# -- random numbers ------------------------------------------------------------------------------------------
SIZE = 60_000


def drawn(name: str, **params: Any) -> np.ndarray:
    mx.random.seed(2 ** 40 + 11)
    symbol = getattr(mx.sym, name)(**params) if "shape" in params else getattr(mx.sym, name)(
        mx.sym.Variable("x"), **params)
    shapes = {} if "shape" in params else {"x": (SIZE,)}
    executor = symbol.simple_bind(mx.cpu(), grad_req="null", poison=True, **shapes)
    for array in executor.arg_arrays:
        array[:] = -1.0
    return executor.forward(is_train=True)[0].asnumpy().astype(np.float64)


def test_scalar_philox_gives_the_published_answers() -> None:
    words = oracles.philox_words((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0))
    assert words == (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)


def even(numbers: np.ndarray, cells: int = 50) -> bool:
    """Whether numbers in [0, 1) fill equal cells evenly: chi-squared within 5 deviations of its mean."""
    assert numbers.min() >= 0 and numbers.max() < 1
    counts = np.bincount((numbers * cells).astype(int), minlength=cells)
    chi = ((counts - numbers.size / cells) ** 2).sum() / (numbers.size / cells)
    return abs(chi - (cells - 1)) < 5 * np.sqrt(2 * (cells - 1))


def test_samples_have_their_distribution() -> None:
    uniform = drawn("random_uniform", low=-2.0, high=3.0, shape=(SIZE,))
    assert even((uniform + 2) / 5)
    normal = torch.tensor(drawn("random_normal", loc=1.0, scale=0.5, shape=(SIZE,)))
    assert even(torch.special.ndtr((normal - 1) / 0.5).numpy())
    slopes = -drawn("LeakyReLU", act_type="rrelu", lower_bound=0.25, upper_bound=0.75)
    assert even((slopes - 0.25) / 0.5)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_keeps_its_share_of_elements(p: float) -> None:
    kept = -drawn("Dropout", p=p) * (1 - p)
    assert set(np.round(kept, 6)) == {0.0, 1.0}
    assert abs(kept.mean() - (1 - p)) < 5 * np.sqrt(p * (1 - p) / SIZE)


@pytest.mark.parametrize("seed, step", [(0, 0), (1, 2), (2 ** 63 + 5, 2 ** 31 + 3)])
@pytest.mark.parametrize("size", [1, 6, 16_390])
def test_uniform_samples_and_masks_have_the_bits_of_scalar_philox(seed: int, step: int, size: int) -> None:
    control = np.zeros(8, np.float32)
    registry.set_key(control, seed, step)
    numbers = oracles.uniforms(torch.tensor(control), 3, (size,)).numpy()
    found, = run_single("_uniform_keyed", {"shape": (size,), "ordinal": 3}, [control])
    np.testing.assert_array_equal(found, numbers.astype(np.float32))
    mask, = run_single("_dropout", {"p": 0.5, "ordinal": 3}, [np.ones(size, np.float32), control])
    np.testing.assert_array_equal(mask, np.where(numbers >= 0.5, np.float32(2), 0))


def run_single(name: str, params: dict[str, Any], arrays: list[np.ndarray]) -> list[np.ndarray]:
    op: Op = get_op(name)
    return execute(op, parsed(op, params), arrays)
