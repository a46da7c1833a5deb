"""Operators on NDArrays: every public one runs at once by its NumPy definition, under MXNet's names and methods."""
from __future__ import annotations

import copy
import inspect

import numpy as np
import pytest

import minigraph as mx
from minigraph import nd
from minigraph.base import MXNetError
from minigraph.ops import get_op, public_names
from minigraph.symbol.methods import METHOD_FORMS

from .ops.test_registry import bound, draw

CASES = [pytest.param(op.name, k, id=f"{op.name}-{k}") for name, op in public_names()
         if name == op.name and not name.startswith("_") and name not in ("scaled_dot_product_attention",)
         for k in range(len(op.samples()))]


def same(array, expected, dtype=np.float32):
    assert array.dtype == dtype
    assert array.shape == np.shape(expected)
    np.testing.assert_allclose(array.asnumpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("name,number", CASES)
def test_an_operator_gives_on_ndarrays_what_an_executor_evaluates(name, number):
    op, sample = get_op(name), get_op(name).samples()[number]
    if name == "Dropout" and sample.params.get("mode") == "always":
        pytest.skip("each evaluation draws anew")
    executor, _, _ = bound(name, sample, np.float32, "null")
    expected = executor.forward(is_train=False)
    arrays = [nd.array(a, dtype=a.dtype) for a in draw(op, sample, np.float32)]
    found = getattr(nd, name)(*arrays, **sample.params)
    for mine, theirs in zip(found if isinstance(found, list) else [found], expected, strict=True):
        assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(mine.asnumpy(), theirs.asnumpy(), rtol=1e-4, atol=1e-5)


def test_aliases_and_namespaces_name_the_same_operators():
    x = nd.array([[1, -2], [3, 4]])
    same(nd.ElementWiseSum(x, x), [[2, -4], [6, 8]])
    same(nd.op.relu(x), [[1, 0], [3, 4]])
    same(nd._internal._plus_scalar(x, scalar=1), [[2, -1], [4, 5]])
    assert mx.nd is mx.ndarray and "relu" in dir(nd) and "_plus_scalar" not in dir(nd)
    with pytest.raises(AttributeError, match="'nothing'"):
        nd.nothing  # noqa: B018
    with pytest.raises(AttributeError, match="contrib has no 'nothing'"):
        nd.contrib.nothing  # noqa: B018


def test_the_function_tells_its_operators_inputs_and_parameters():
    assert list(inspect.signature(nd.FullyConnected).parameters)[:4] == ["data", "weight", "bias", "num_hidden"]
    assert "num_hidden" in nd.FullyConnected.__doc__ and "out" in nd.FullyConnected.__doc__


def test_parameters_go_by_position_or_name_and_inputs_too():
    x = nd.array([-2, 0, 2])
    same(nd.clip(x, -1, 1), [-1, 0, 1])
    same(nd.clip(data=x, a_min=-1, a_max=1), [-1, 0, 1])
    same(nd.elemwise_add(x, rhs=x), [-4, 0, 4])
    same(nd.sum(nd.ones((2, 3)), axis=np.int64(1)), [3, 3])
    same(nd.transpose(nd.ones((2, 3)), axes=tuple(np.array([1, 0]))), np.ones((3, 2)))


@pytest.mark.parametrize("call,text", [
    (lambda: nd.exp(np.ones(2)), "input 'data' must be an NDArray, got ndarray"),
    (lambda: nd.exp([1, 2]), "input 'data' must be an NDArray, got list"),
    (lambda: nd.exp(), "input 'data' is not given"),
    (lambda: nd.elemwise_add(nd.ones(2), nd.ones(3)), r"elemwise_add.*shapes \(2,\) and \(3,\) differ"),
    (lambda: nd.elemwise_add(nd.ones(2), nd.ones(2, dtype="float64"), name="n"),
     "elemwise_add n: inputs of one dtype .* lhs float32, rhs float64"),
    (lambda: nd.clip(nd.ones(2), 0, 1, a_min=0), "'a_min' is given by position and by name"),
    (lambda: nd.sum(nd.ones(2), axsi=0), "no parameter or input 'axsi'"),
    (lambda: nd.exp(nd.ones(2), out=nd.ones(3)), r"shapes \(2,\) and \(3,\) differ"),
    (lambda: nd.exp(nd.ones(2), out=nd.ones(2, dtype="float64")), "out is of shape .* float64"),
    (lambda: nd.split(nd.ones(2), num_outputs=2, axis=0, out=nd.ones(1)), "out must be 2 NDArrays"),
    (lambda: nd.take(nd.ones(2), nd.array([5]), mode="raise"), "take: .*5"),
])
def test_what_does_not_fit_is_told(call, text):
    with pytest.raises(MXNetError, match=text):
        call()


def test_out_takes_the_result_and_may_be_an_input():
    x = nd.array([1, 4])
    assert nd.sqrt(x, out=x) is x
    same(x, [1, 2])
    parts = [nd.zeros(1), nd.zeros(1)]
    assert nd.split(x, num_outputs=2, axis=0, out=parts) is parts
    same(parts[1], [2])
    wide = nd.zeros((2, 2), dtype="float64")
    nd.random_uniform(1, 2, out=wide)
    assert (wide.asnumpy() >= 1).all() and len(np.unique(wide.asnumpy())) == 4


def test_a_result_shares_no_memory_with_what_was_given():
    x = nd.array([[1, 2]])
    for made in (nd.Reshape(x, shape=(2,)), nd.Flatten(x), nd.identity(x), nd.Dropout(x), nd.slice_axis(x, 0, 0, 1)):
        made[:] = 7
    same(x, [[1, 2]])


def test_several_outputs_are_a_list():
    values, places = nd.topk(nd.array([3, 1, 2]), k=2, ret_typ="both")
    same(values, [3, 2])
    same(places, [0, 2])


def test_normalisation_uses_the_moving_statistics_and_holds_gamma_at_one():
    x, gamma = nd.array([[1, 2], [3, 4]]), nd.array([5, 5])
    mean, var = nd.array([1, 1]), nd.array([4, 4])
    same(nd.BatchNorm(x, gamma, nd.zeros(2), mean, var, eps=0), [[0, .5], [1, 1.5]])
    same(gamma, [1, 1])
    same(mean, [1, 1])
    same(nd.BatchNorm(x, nd.array([2, 2]), nd.zeros(2), mean, var, eps=0, fix_gamma=False), [[0, 1], [2, 3]])


def test_an_operator_in_python_runs_on_arrays():
    class Times(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], in_data[0] * (1 if is_train else 3))

    @mx.operator.register("times_of_nd_operators")
    class Properties(mx.operator.CustomOpProp):
        def create_operator(self, ctx, in_shapes, in_dtypes):
            return Times()

    same(nd.Custom(nd.array([1, 2]), op_type="times_of_nd_operators"), [3, 6])


def test_random_operators_draw_anew_and_a_seed_repeats_them():
    def drawn():
        return nd.random_normal(shape=(50,)).asnumpy(), nd.Dropout(nd.ones(50), mode="always").asnumpy()

    mx.random.seed(3)
    first, second = drawn(), drawn()
    mx.random.seed(3)
    again = drawn()
    for a, b, c in zip(first, second, again, strict=True):
        assert (a != b).any() and (a == c).all()


def test_integers_stay_integers_and_are_cut_to_whole_numbers():
    x = nd.array([1, 2, 4], dtype="int32")
    same(nd.exp(x), [2, 7, 54], np.int32)
    same(nd.mean(x), [2], np.int32)
    same(nd.square(x), [1, 4, 16], np.int32)


def test_the_context_is_that_of_the_inputs_or_the_one_asked_for():
    assert nd.exp(nd.ones(2, ctx=mx.gpu(1))).context == mx.gpu(1)
    assert nd.random_uniform(shape=(2,), ctx="gpu(2)").context == mx.gpu(2)
    with mx.gpu(3):
        assert nd.random_uniform(shape=(2,)).context == mx.gpu(3)


# -- methods -----------------------------------------------------------------------------------------------------
def test_operators_are_methods_too():
    x = nd.array([[1, -2], [3, 4]])
    same(x.sum(axis=1), [-1, 7])
    same(x.abs(), [[1, 2], [3, 4]])
    same(x.clip(0, 3), [[1, 0], [3, 3]])
    same(x.expand_dims(0).squeeze(), [[1, -2], [3, 4]])
    same(x.argmax(axis=1), [0, 1])
    same(x.split_v2(2)[1], [[3, 4]])
    same(x.norm(), [np.sqrt(30)])
    same(x.astype("int32").max(), [4], np.int32)
    same(x.reshape_like(nd.ones(4)), [1, -2, 3, 4])
    for name in METHOD_FORMS:
        assert callable(getattr(nd.NDArray, name)) and callable(getattr(mx.sym.Symbol, name))


def test_elements_storage_types_and_what_needs_a_tape():
    x = nd.array([[1, 2.5]])
    assert x.item(1) == 2.5 and isinstance(x.item(1), float) and x.stype == "default" and x.grad is None
    same(x.tostype("default"), [[1, 2.5]])
    same(copy.deepcopy(x), [[1, 2.5]])
    shared = x.detach()
    shared[:] = 0
    same(x, [[0, 0]])
    x += 5
    x %= 3
    same(x, [[2, 2]])
    with pytest.raises(MXNetError, match="'csr'"):
        x.tostype("csr")
    for call in (x.attach_grad, x.backward):
        with pytest.raises(MXNetError, match="tape"):
            call()


def test_parts_are_written_by_their_bounds():
    x = nd.zeros((3, 4))
    assert x.slice_assign(nd.ones((1, 2)), (1, 0), (2, 3), (None, 2)) is x
    assert x.slice_assign_scalar(5, (None, -1), (2, None)) is x
    same(x, [[0, 0, 0, 5], [1, 0, 1, 5], [0, 0, 0, 0]])
    made = nd._internal._crop_assign(x, nd.ones((1, 2)), begin=(1, 1), end=(2, 3))
    same(made, [[0, 0, 0, 5], [1, 1, 1, 5], [0, 0, 0, 0]])
    assert nd._internal._slice_assign_scalar(x, scalar=2, begin=(0,), end=(2,), out=x) is x
    same(x, [[2, 2, 2, 2], [2, 2, 2, 2], [0, 0, 0, 0]])


# -- functions of NDArrays alone ---------------------------------------------------------------------------------
@pytest.mark.parametrize("name,arrays,numbers", [
    ("add", [4, 5], 5), ("subtract", [2, 1], -1), ("multiply", [3, 6], 6), ("divide", [3, 1.5], 2 / 3),
    ("true_divide", [3, 1.5], 2 / 3), ("modulo", [0, 1], 2), ("power", [3, 9], 8), ("maximum", [3, 3], 3),
    ("minimum", [1, 2], 2), ("equal", [0, 0], 0), ("not_equal", [1, 1], 1), ("greater", [1, 1], 0),
    ("greater_equal", [1, 1], 0), ("lesser", [0, 0], 1), ("lesser_equal", [0, 0], 1), ("logical_and", [1, 1], 1),
    ("logical_or", [1, 1], 1), ("logical_xor", [0, 0], 0), ("hypot", [10 ** .5, 13 ** .5], 13 ** .5),
])
def test_functions_of_two_values_take_arrays_and_numbers(name, arrays, numbers):
    function, three, one_two = getattr(nd, name), nd.array([3, 3]), nd.array([1, 2])
    same(function(three, one_two), arrays)
    same(function(3, one_two), arrays)
    assert function(2, 3) == pytest.approx(numbers)
    assert function(three.reshape((2, 1)), one_two).shape == (2, 2)
    with pytest.raises(MXNetError, match="takes two values.* got list and int"):
        function([1, 2], 3)


def test_makers_give_rows_of_numbers_and_fill_what_is_given():
    same(nd.linspace(0, 1, 5), [0, .25, .5, .75, 1])
    same(nd.linspace(0, 1, 4, endpoint=False), [0, .25, .5, .75])
    same(nd.eye(2, 3, 1, dtype="int32"), [[0, 1, 0], [0, 0, 1]], np.int32)
    same(nd.full_like(nd.ones((1, 2), dtype="int8"), 7), [[7, 7]], np.int8)
    out = nd.zeros(2)
    assert nd.ones(2, out=out) is out and nd.full((2,), 3, out=out) is out
    same(out, [3, 3])
    values = np.arange(3)
    shared = nd.from_numpy(values)
    values[0] = 9
    same(shared, [9, 1, 2], np.int64)
    for call in (lambda: nd.ones((-1, 2)), lambda: nd.ones(2, out=nd.ones(3))):
        with pytest.raises(MXNetError):
            call()
    with pytest.raises(MXNetError, match="row_sparse"):
        nd.zeros(2, stype="row_sparse")


def test_axes_are_moved_and_parts_cut():
    assert nd.moveaxis(nd.zeros((2, 3, 4)), 0, -1).shape == (3, 4, 2)
    assert nd.moveaxis(nd.zeros((2, 3, 4)), [0, 1], [-1, 0]).shape == (3, 4, 2)
    first, last = nd.split_v2(nd.arange(6).reshape((2, 3)), (1,), axis=1)
    same(first, [[0], [3]])
    same(last, [[1, 2], [4, 5]])
    same(nd.split_v2(nd.ones((2, 3)), 2, squeeze_axis=True)[0], [1, 1, 1])
    with pytest.raises(MXNetError, match="4 equal parts"):
        nd.split_v2(nd.ones((2, 6)), 4, axis=1)
    counts, edges = nd.histogram(nd.arange(6), 3)
    same(counts, [2, 2, 2], np.int64)
    same(edges, [0, 5 / 3, 10 / 3, 5])


def test_one_element_of_each_row_is_read_and_written():
    x, places = nd.arange(6).reshape((2, 3)), nd.array([0, 2])
    same(nd.choose_element_0index(x, places), [0, 5])
    same(nd.fill_element_0index(x, nd.array([8, 9]), places), [[8, 1, 2], [3, 4, 9]])
    same(x, [[0, 1, 2], [3, 4, 5]])
    out = nd.zeros((2, 3))
    assert nd.onehot_encode(places, out) is out
    same(out, [[1, 0, 0], [0, 0, 1]])
    with pytest.raises(MXNetError, match=r"\[0, 3\]"):
        nd.fill_element_0index(x, nd.array([8, 9]), nd.array([0, 3]))
    with pytest.raises(MXNetError, match="ImageRecordIter"):
        nd.imdecode(b"")


def test_slices_are_chosen_by_a_mask_whose_values_are_there():
    x = nd.arange(6).reshape((3, 2))
    same(nd.contrib.boolean_mask(x, nd.array([1, 0, 2])), [[0, 1], [4, 5]])
    same(nd.contrib.boolean_mask(x, nd.array([0, 1]), axis=1), [[1], [3], [5]])
    with pytest.raises(MXNetError, match="boolean_mask takes a number for each"):
        nd.contrib.boolean_mask(x, nd.array([1, 0]))


@pytest.mark.parametrize("name,instead", [("sparse", "dense"), ("cast_storage", "dense"), ("CachedOp", "bind")])
def test_what_there_is_not_tells_what_serves_in_its_place(name, instead):
    with pytest.raises(AttributeError, match=f"'{name}': .*{instead}"):
        getattr(nd, name)


def test_the_statistic_that_monitors_are_given_in_scripts():
    values = nd.array([[3, 4]])
    same(nd.norm(values) / np.sqrt(values.size), [5 / np.sqrt(2)])


def test_memory_is_shared_with_other_libraries():
    torch = pytest.importorskip("torch")
    from torch.utils.dlpack import from_dlpack, to_dlpack

    x = nd.array([1, 2, 3])
    copied, shared = from_dlpack(x.to_dlpack_for_read()), from_dlpack(x.to_dlpack_for_write())
    shared[0] = 7
    same(x, [7, 2, 3])
    assert copied.tolist() == [1, 2, 3]
    tensor = torch.ones(2)
    for made in (nd.from_dlpack(tensor), nd.from_dlpack(to_dlpack(tensor))):
        tensor += 1
        same(made, tensor.numpy())
    executor = mx.sym.exp(mx.sym.Variable("x")).simple_bind(mx.cpu(), x=(2,))
    with pytest.raises(MXNetError, match="no executor holds"):
        nd.to_dlpack_for_write(executor.arg_dict["x"])
