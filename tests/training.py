"""Small networks, data, and modules and executors prepared for them, always with poisoned memory."""
from __future__ import annotations

import os
import signal

import numpy as np

import minigraph as mx
from minigraph.executor import Executor
from minigraph.io import NDArrayIter


def mlp(dropout=0.0, norm=False):
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=16, name="fc1")
    if norm:
        net = mx.sym.BatchNorm(net, fix_gamma=False, name="bn")
    net = mx.sym.Activation(net, act_type="relu", name="relu")
    if dropout:
        net = mx.sym.Dropout(net, p=dropout, name="drop")
    net = mx.sym.FullyConnected(net, num_hidden=2, name="fc2")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def samples(count=64, seed=0):
    draw = np.random.RandomState(seed)
    data = draw.randn(count, 6).astype(np.float32)
    return data, (data[:, 0] * data[:, 1] > 0).astype(np.float32)


def iterator(count=64, batch_size=8, **kwargs):
    return NDArrayIter(*samples(count), batch_size=batch_size, **kwargs)


def with_values(exe):
    """The executor, with arguments that are always the same, and statistics of a standard normal distribution."""
    draw = np.random.RandomState(0)
    for name in sorted(exe.arg_dict):
        exe.arg_dict[name][:] = draw.uniform(-0.5, 0.5, exe.arg_dict[name].shape)
    for name, state in exe.aux_dict.items():
        state[:] = 1 if name.endswith("var") else 0
    return exe


def module(symbol=None, **kwargs):
    return mx.mod.Module(mlp() if symbol is None else symbol, poison=True, **kwargs)


def prepared(symbol=None, optimizer="sgd", params=(("learning_rate", 0.1),), batch_size=8, **kwargs):
    """A module with the same parameters each time."""
    mx.random.seed(3)
    mod = module(symbol, **kwargs)
    data = iterator(batch_size=batch_size)
    mod.bind(data.provide_data, data.provide_label)
    mod.init_params(mx.init.Xavier())
    mod.init_optimizer(optimizer=optimizer, optimizer_params=params)
    return mod


def batches(count=3, batch_size=8):
    return list(iterator(count * batch_size, batch_size))


def in_a_forked_child(call):
    """The error that a call raises in a forked child, as text; "nothing" without one. A child that hangs is killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            call()
            told = "nothing"
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(writer, told.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as file:
        return file.read()


def everything(mod):
    return {name: array.asnumpy() for part in mod.get_params() for name, array in part.items()}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert not np.isnan(array).any(), name
        assert np.array_equal(array, other[name]), name


def executor(symbol, shapes, grad_req="write", **options):
    """The symbol bound to these shapes."""
    return Executor(symbol, None, shapes, grad_req=grad_req, poison=True, **options)


def linear():
    """c = 2 a + b."""
    a, b = mx.sym.Variable("a"), mx.sym.Variable("b")
    return mx.sym.elemwise_add(a * 2, b, name="c")
