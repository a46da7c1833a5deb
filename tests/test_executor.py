"""The executor against small networks whose results are known in full, with poisoned memory."""
from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.bind import bind
from tests.training import executor, linear


def values(arrays):
    return [None if array is None else array.asnumpy() for array in arrays]


def classifier():
    """conv 3x3 (4) - BatchNorm - relu - max pool - dense (3) - softmax cross-entropy."""
    data = mx.sym.Variable("data")
    net = mx.sym.Convolution(data, kernel=(3, 3), num_filter=4, pad=(1, 1), name="conv")
    net = mx.sym.BatchNorm(net, fix_gamma=False, name="bn")
    net = mx.sym.Activation(net, act_type="relu", name="relu")
    net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool")
    net = mx.sym.FullyConnected(net, num_hidden=3, name="fc")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def randomise(exe, seed=0):
    draw = np.random.RandomState(seed)
    for name in sorted(exe.arg_dict):
        exe.arg_dict[name][:] = draw.uniform(-1, 1, exe.arg_dict[name].shape)
    for name, state in exe.aux_dict.items():
        state[:] = 1 if name.endswith("var") else 0


# -- forward and outputs -------------------------------------------------------------------------------------


def test_forward_takes_arguments_by_keyword_and_keeps_the_others():
    exe = executor(mx.sym.Variable("a") + mx.sym.Variable("b"), {"a": (2,), "b": (2,)})
    exe.arg_dict["b"][:] = [10, 20]
    assert exe.forward(a=np.array([1, 2]))[0].asnumpy().tolist() == [11, 22]
    assert exe.forward(b=mx.nd.array([5, 5]))[0].asnumpy().tolist() == [6, 7]
    assert list(exe.output_dict) == exe.output_names == exe._symbol.list_outputs()


def test_unknown_argument_is_a_type_error():
    exe = executor(mx.sym.Variable("a") * 2, {"a": (2,)})
    with pytest.raises(TypeError, match="Unknown argument b; the arguments are a$"):
        exe.forward(b=np.zeros(2))


def test_an_auxiliary_state_is_no_argument_of_forward():
    exe = executor(classifier(), {"data": (2, 3, 8, 8)})
    with pytest.raises(TypeError, match="Unknown argument bn_moving_mean"):
        exe.forward(bn_moving_mean=np.zeros(4))


def test_argument_of_another_shape_is_refused_with_both_shapes():
    exe = executor(mx.sym.Variable("a") * 2, {"a": (2,)})
    with pytest.raises(ValueError, match=r"Shape not match! Argument a, need: \(2,\), received: \(3,\)"):
        exe.forward(a=np.zeros(3))


def test_input_that_was_not_fed_is_named():
    exe = executor(mx.sym.Variable("a") * 2, {"a": (2,)}, inputs=["a"])
    exe.forward(a=np.ones(2))
    with pytest.raises(MXNetError, match="input a was not given"):
        exe.forward()


def test_outputs_that_another_program_overwrote_are_refused():
    exe = executor(mx.sym.Variable("a") * 2, {"a": (2,)})
    kept = exe.forward(is_train=True, a=np.ones(2))[0]
    assert kept.asnumpy().tolist() == [2, 2]
    exe.forward(is_train=False)
    with pytest.raises(MXNetError, match="is gone: another program has run"):
        kept.asnumpy()


def test_a_kept_output_shows_the_next_run_of_the_same_program():
    exe = executor(mx.sym.Variable("a") * 2, {"a": (2,)})
    kept = exe.forward(a=np.ones(2))[0]
    exe.forward(a=np.full(2, 5))
    assert kept.asnumpy().tolist() == [10, 10]


@pytest.mark.parametrize("is_train", [False, True])
def test_outputs_that_are_copies_of_one_value_stay_apart(is_train):
    x = mx.sym.Variable("x")
    once = mx.sym.identity(x, name="once")
    same = [once, mx.sym.identity(mx.sym.identity(x, name="inner"), name="twice"), x,
            mx.sym.Reshape(once, shape=(2, 2), name="shaped"), mx.sym.Dropout(x, p=0.5, name="dropped")]
    exe = executor(mx.sym.Group(same[:4] if is_train else same), {"x": (4,)})
    expected = [1, 2, 3, 4]
    exe.forward(is_train=is_train, x=np.array(expected))
    exe.outputs[0][:] = 7
    for output in exe.outputs[1:]:
        assert output.asnumpy().ravel().tolist() == expected
    assert exe.arg_dict["x"].asnumpy().tolist() == expected
    exe.forward(is_train=is_train)
    assert exe.outputs[0].asnumpy().tolist() == expected


# -- backward ------------------------------------------------------------------------------------------------


def test_backward_without_forward_is_refused():
    exe = executor(mx.sym.Variable("a") * 2, {"a": (2,)})
    with pytest.raises(MXNetError, match="forward"):
        exe.backward(np.ones(2))


def test_evaluation_between_forward_and_backward_is_refused():
    exe = executor(mx.sym.Variable("a") * 2, {"a": (2,)})
    exe.forward(is_train=True)
    exe.forward(is_train=False)
    with pytest.raises(MXNetError, match="backward needs the values of the forward"):
        exe.backward(np.ones(2))


def test_a_second_backward_from_one_forward_is_refused():
    exe = executor(mx.sym.Variable("a") * 2, {"a": (2,)})
    exe.forward(is_train=True)
    exe.backward(np.ones(2))
    with pytest.raises(MXNetError, match="backward needs the values of the forward"):
        exe.backward(np.ones(2))


def test_missing_head_gradient_names_the_output():
    exe = executor(linear(), {"a": (2,), "b": (2,)})
    exe.forward(is_train=True)
    with pytest.raises(MXNetError, match="c_output is no loss"):
        exe.backward()


@pytest.mark.parametrize("wrap", [lambda h: h, lambda h: [h], lambda h: {"c_output": h}, mx.nd.array])
def test_head_gradients_are_taken_as_array_list_or_dict(wrap):
    exe = executor(linear(), {"a": (2,), "b": (2,)})
    exe.forward(is_train=True)
    exe.backward(wrap(np.array([4.0, 7.0])))
    assert [g.tolist() for g in values(exe.grad_arrays)] == [[8, 14], [4, 7]]


@pytest.mark.parametrize("heads, error, message", [
    (np.ones(3), ValueError, r"shape \(3,\)"), ([np.ones(2)] * 2, MXNetError, "2 arrays for 1 outputs"),
    ({"d": np.ones(2)}, MXNetError, "'d'")])
def test_head_gradients_that_do_not_fit_are_refused(heads, error, message):
    exe = executor(linear(), {"a": (2,), "b": (2,)})
    exe.forward(is_train=True)
    with pytest.raises(error, match=message):
        exe.backward(heads)


def test_a_blocked_extra_output_changes_no_gradient():
    data, label = mx.sym.Variable("data"), mx.sym.Variable("softmax_label")
    hidden = mx.sym.FullyConnected(data, num_hidden=6, name="fc")
    loss = mx.sym.SoftmaxOutput(mx.sym.relu(hidden), label, name="softmax")
    results = []
    for symbol in (loss, mx.sym.Group([loss, mx.sym.BlockGrad(hidden, name="shown")])):
        exe = executor(symbol, {"data": (1, 4)})
        exe.forward(is_train=True, data=np.ones((1, 4)), fc_weight=np.ones((6, 4)),
                    softmax_label=np.array([1]), fc_bias=np.array([1, 4, 4, 4, 5, 6]))
        exe.backward()
        results.append([exe.grad_dict[name].asnumpy() for name in ("fc_weight", "fc_bias")])
    assert np.abs(results[0][0]).max() > 0
    assert all((one == other).all() for one, other in zip(*results, strict=True))


# -- runs after runs -----------------------------------------------------------------------------------------


def batch(seed, size=2):
    draw = np.random.RandomState(seed)
    return {"data": draw.randn(size, 3, 8, 8), "softmax_label": draw.randint(0, 3, size)}


def train(exe, seed):
    exe.forward(is_train=True, **batch(seed))
    output = exe.outputs[0].asnumpy()
    exe.backward()
    assert (exe.outputs[0].asnumpy() == output).all()
    return [output, *values(exe.grad_arrays)]


def same(one, other):
    assert not any(np.isnan(array).any() for array in one)
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("other_size", [2, 5])
def test_training_after_evaluation_repeats_bit_for_bit(other_size):
    exe = executor(classifier(), {"data": (2, 3, 8, 8)})
    randomise(exe)
    before = train(exe, 1)
    evaluator = exe if other_size == 2 else exe.reshape(allow_up_sizing=True, data=(other_size, 3, 8, 8),
                                                                  softmax_label=(other_size,))
    for _ in range(2):
        evaluator.forward(is_train=False, **batch(2, other_size))
    randomise(exe)
    assert same(before, train(exe, 1))


def test_every_step_equals_that_of_a_fresh_executor():
    exe = executor(classifier(), {"data": (2, 3, 8, 8)})
    randomise(exe)
    for seed in range(3):
        fresh = executor(classifier(), {"data": (2, 3, 8, 8)})
        randomise(fresh)
        for name, state in exe.aux_dict.items():
            fresh.aux_dict[name][:] = state
        assert same(train(exe, seed), train(fresh, seed))


@pytest.mark.parametrize("memory", ["naive", "inplace"])
def test_memory_modes_agree_bit_for_bit(memory):
    results = []
    for mode in ("plain", memory):
        exe = executor(classifier(), {"data": (2, 3, 8, 8)}, memory=mode)
        randomise(exe)
        results.append([*train(exe, 0), *values(exe.aux_arrays)])
    assert same(*results)


def test_an_executor_of_another_shape_shares_parameters_and_memory():
    exe = executor(classifier(), {"data": (2, 3, 8, 8)})
    randomise(exe)
    larger = exe.reshape(allow_up_sizing=True, data=(4, 3, 8, 8), softmax_label=(4,))
    exe.arg_dict["fc_bias"][:] = [9, 0, 0]
    assert larger.arg_dict["fc_bias"].asnumpy().tolist() == [9, 0, 0]
    assert larger.group is exe.group
    output = larger.forward(data=batch(0, 4)["data"], softmax_label=np.zeros(4))[0]
    assert output.shape == (4, 3) and output.asnumpy().argmax(1).tolist() == [0] * 4


def test_arrays_whose_shape_changes_get_bytes_of_their_own():
    exe = executor(linear(), {"a": (2,), "b": (2,)})
    longer = exe.reshape(allow_up_sizing=True, a=(3,), b=(3,))
    for one in (exe, longer):
        size = one.arg_dict["a"].size
        one.arg_dict["a"][:] = np.arange(size)
        one.forward(is_train=True, b=np.ones(size))
        one.backward(np.ones(size))
    assert exe.arg_dict["a"].asnumpy().tolist() == [0, 1] and exe.grad_dict["a"].asnumpy().tolist() == [2, 2]
    assert longer.arg_dict["a"].asnumpy().tolist() == [0, 1, 2]
    assert longer.grad_dict["a"].asnumpy().tolist() == [2, 2, 2]


def test_an_array_changes_its_shape_unasked_only_with_partial_shaping():
    exe = executor(linear(), {"a": (2,), "b": (2,)})
    with pytest.raises(MXNetError, match="b is bound with shape"):
        exe.reshape(a=(3,), allow_up_sizing=True)
    assert exe.reshape(a=(3,), partial_shaping=True, allow_up_sizing=True).arg_dict["b"].shape == (3,)


def test_a_run_that_breaks_off_must_be_mended_before_the_next_where_it_changes_what_is_kept():
    symbol = mx.sym.BatchNorm(mx.sym.Variable("a"), fix_gamma=False, name="bn")
    exe = executor(symbol, {"a": (4, 2)})

    def breaks_off(is_train):
        program = exe.program("train" if is_train else "eval")
        program.run = lambda name: (_ for _ in ()).throw(KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            exe.forward(is_train)
        del program.run

    breaks_off(is_train=False)
    assert exe.forward()[0].shape == (4, 2)  # an evaluation changes nothing
    breaks_off(is_train=True)
    with pytest.raises(MXNetError, match="broke off before .KeyboardInterrupt"):
        exe.forward()
    exe.copy_params_from({"a": mx.nd.ones((4, 2))}, {name: array.copy() for name, array in exe.aux_dict.items()})
    assert exe.forward()[0].shape == (4, 2)


def test_a_second_thread_that_runs_at_the_same_time_is_refused():
    exe = executor(mx.sym.Variable("a") * 2, {"a": (2,)})
    exe.forward(a=np.ones(2))
    program, told = exe.program("eval"), []
    run = program.run

    def meanwhile(part):
        def other():
            try:
                exe.forward()
            except MXNetError as error:
                told.append(str(error))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        run(part)

    program.run = meanwhile
    assert exe.forward()[0].asnumpy().tolist() == [2, 2]
    del program.run
    assert len(told) == 1 and "another thread runs a program over the same memory" in told[0]
    assert exe.forward()[0].asnumpy().tolist() == [2, 2]


# -- arrays --------------------------------------------------------------------------------------------------


def test_handles_read_and_write_the_executors_memory():
    exe = executor(linear(), {"a": (2,), "b": (2,)})
    handle = exe.arg_dict["a"]
    handle[:] = [1, 2]
    assert exe.arg_dict["a"].asnumpy().tolist() == [1, 2]
    assert [array.asnumpy().tolist() for array in exe.arg_arrays] == [[1, 2], [0, 0]]
    exe.forward()
    assert exe.outputs[0].asnumpy().tolist() == [2, 4]
    handle[0:1] = 5
    assert exe.forward()[0].asnumpy().tolist() == [10, 4]


def test_parameters_are_set_by_name_and_unknown_names_refused():
    exe = executor(linear(), {"a": (2,), "b": (2,)})
    exe.copy_params_from({"a": mx.nd.ones(2), "z": mx.nd.ones(2)}, allow_extra_params=True)
    assert exe.arg_dict["a"].asnumpy().tolist() == [1, 1]
    with pytest.raises(ValueError, match="'z' is none of the arguments"):
        exe.copy_params_from({"z": mx.nd.ones(2)})


@pytest.mark.parametrize("wrong, reason", [({"z": np.ones(2)}, "'z' is none"), ({"b": np.ones(3)}, r"b has shape")])
def test_nothing_is_set_by_a_call_that_names_something_wrong(wrong, reason):
    exe = executor(linear(), {"a": (2,), "b": (2,)})
    with pytest.raises(ValueError, match=reason):
        exe.copy_params_from({"a": np.ones(2), **wrong})
    with pytest.raises((TypeError, ValueError), match="need: |Unknown argument"):
        exe.forward(a=np.ones(2), **wrong)
    assert exe.arg_dict["a"].asnumpy().tolist() == [0, 0]


@pytest.mark.parametrize("as_dict", [False, True])
def test_bind_makes_the_users_arrays_handles_with_their_contents_kept(as_dict):
    a, b, ga, gb = mx.nd.array([1, 2]), mx.nd.array([3, 4]), mx.nd.zeros(2), mx.nd.zeros(2)
    args, grads = ([a, b], [ga, gb]) if not as_dict else ({"b": b, "a": a}, {"a": ga, "b": gb})
    exe = bind(linear(), mx.cpu(), args, grads, "write", None, poison=True)
    assert exe.forward(is_train=True)[0].asnumpy().tolist() == [5, 8]
    exe.backward(np.array([1, 10]))
    assert ga.asnumpy().tolist() == [2, 20] and gb.asnumpy().tolist() == [1, 10]
    a[:] = 0
    assert exe.forward()[0].asnumpy().tolist() == [3, 4]


def test_bind_asks_only_for_gradients_that_have_an_array():
    exe = bind(linear(), None, [mx.nd.ones(2), mx.nd.ones(2)], {"b": mx.nd.zeros(2)}, "write", None,
               poison=True)
    assert exe.grad_dict["a"] is None
    exe.forward(is_train=True)
    exe.backward(np.ones(2))
    assert exe.grad_dict["b"].asnumpy().tolist() == [1, 1]


@pytest.mark.parametrize("shape", [(), (4,), (5, 1)])
def test_bind_refuses_an_array_of_another_shape(shape):
    with pytest.raises(MXNetError, match=r"\(5,\)"):
        bind(linear(), None, {"a": mx.nd.array(np.ones(5)), "b": np.ones(shape)}, None, "null", None)
    with pytest.raises(MXNetError, match=r"gradient of a has shape .* needs \(5,\)"):
        bind(linear(), None, {"a": np.ones(5), "b": np.ones(5)}, {"a": np.ones(shape)}, "write", None)


def test_bind_refuses_one_array_for_two_arguments_and_what_is_no_array():
    a = mx.nd.ones(2)
    with pytest.raises(MXNetError, match="b and a are given one NDArray"):
        bind(linear(), None, {"a": a, "b": a}, None, "null", None)
    with pytest.raises(MXNetError, match="gradient of b and a are given one NDArray"):
        bind(linear(), None, {"a": a, "b": mx.nd.ones(2)}, {"b": a}, "write", None)
    with pytest.raises(MXNetError, match="args: a must be an NDArray or a numpy array, got list"):
        bind(linear(), None, {"a": [1, 2], "b": mx.nd.ones(2)}, None, "null", None)


def test_arrays_bound_to_a_second_executor_are_shared_if_asked_and_else_told_of():
    arrays = {"a": mx.nd.ones(2), "b": mx.nd.ones(2)}
    first = bind(linear(), None, arrays, None, "null", None)
    shared = bind(linear(), None, arrays, None, "null", None, shared_exec=first)
    arrays["a"][:] = 3
    assert first.forward()[0].asnumpy().tolist() == shared.forward()[0].asnumpy().tolist() == [7, 7]
    with pytest.warns(UserWarning, match="bind: a, b lay in the memory of another executor"):
        alone = bind(linear(), None, arrays, None, "null", None)
    arrays["a"][:] = 0
    assert alone.forward()[0].asnumpy().tolist() == [1, 1] and first.forward()[0].asnumpy().tolist() == [7, 7]


@pytest.mark.parametrize("values", [np.full(2, None), np.array(["1", "2"]), np.ones(2, complex)])
def test_arguments_of_other_than_real_numbers_are_refused_by_name(values):
    with pytest.raises(TypeError, match="argument a takes real numbers, got an array of dtype"):
        executor(linear(), {"a": (2,), "b": (2,)}).forward(a=values)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_executor_is_neither_copied_nor_pickled(copied):
    with pytest.raises(TypeError, match="holds memory of its device"):
        copied(executor(linear(), {"a": (2,), "b": (2,)}))


def test_bind_names_what_is_missing_or_unknown():
    with pytest.raises(MXNetError, match="b missing"):
        bind(linear(), None, {"a": np.ones(2)}, None, "null", None)
    with pytest.raises(MXNetError, match="z unknown"):
        bind(linear(), None, {"a": np.ones(2), "b": np.ones(2), "z": np.ones(2)}, None, "null", None)


def test_shapes_that_leave_arguments_unknown_are_named():
    with pytest.raises(MXNetError, match="data"):
        executor(classifier(), {"softmax_label": (2,)})


def test_a_shape_for_a_name_that_is_no_argument_is_refused():
    with pytest.raises(MXNetError, match="'zeta' is no argument"):
        executor(linear(), {"a": (2,), "zeta": (2,)})


def test_an_argument_named_like_the_gradient_of_another_is_refused():
    with pytest.raises(MXNetError, match="a/grad is an argument, and also the name of the gradient of a"):
        executor(mx.sym.Variable("a") + mx.sym.Variable("a/grad"), {"a": (2,), "a/grad": (2,)})


def test_arguments_may_be_called_like_gradients_and_states_of_others_are_elsewhere():
    names = ["w", "w_grad", "w_mom", "w_grad_grad", "w_mom_mom"]
    net = mx.sym.MakeLoss(mx.sym.add_n(*(mx.sym.Variable(name) * k for k, name in enumerate(names, 1))))
    mod = mx.mod.Module(net, data_names=["w"], label_names=None)
    mod.bind([("w", (2,))], inputs_need_grad=True)
    mod.init_params(mx.init.One(), {name: mx.nd.ones(2) for name in names[1:]})
    mod.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": 1, "momentum": 0.5, "rescale_grad": 1})
    for _ in range(2):
        mod.forward_backward(mx.io.DataBatch([mx.nd.ones(2)]))
        mod.update()
    assert mod.get_input_grads()[0].asnumpy().tolist() == [1, 1]
    for k, name in enumerate(names[1:], 2):  # steps of k and 1.5 k
        assert mod.get_params()[0][name].asnumpy().tolist() == [1 - 2.5 * k] * 2


@pytest.mark.parametrize("shape", [(3, 2, 0, 5), (0, 2, 4, 5)])
def test_images_without_pixels_are_normalised_to_none(shape):
    bound = mx.sym.BatchNorm(mx.sym.Variable("x"), fix_gamma=False).simple_bind(mx.cpu(), x=shape)
    assert bound.forward(is_train=True)[0].shape == shape
    bound.backward(np.ones(shape))
    assert bound.forward()[0].shape == shape


@pytest.mark.parametrize("op", ["sqrt", "mean", "softmax"])
def test_an_operator_that_does_not_take_integers_says_so_with_node_types_and_what_to_do(op):
    symbol = getattr(mx.sym, op)(mx.sym.Variable("x", dtype="int32"), name="node")
    exe = symbol.simple_bind(mx.cpu(), grad_req="null", x=(2, 3))
    with pytest.raises(MXNetError, match=r"node.*makes no int32 of int32.*Cast\(dtype='float32'\)"):
        exe.forward()


def test_outputs_before_the_first_run_have_shapes_and_types_and_values_once_it_has_been():
    a = mx.sym.Variable("a")
    exe = executor(mx.sym.Group([a * 2, mx.sym.Cast(a, dtype="int32")]), {"a": (2,)})
    first, second = exe.outputs
    assert (first.shape, second.dtype) == ((2,), np.int32)
    with pytest.raises(MXNetError, match="no outputs yet; call forward first"):
        first.asnumpy()
    exe.forward(a=np.array([1, 2]))
    assert first.asnumpy().tolist() == [2, 4] and second.asnumpy().tolist() == [1, 2]
