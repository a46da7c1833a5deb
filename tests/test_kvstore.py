"""A kvstore of one worker stores, sums and updates values as MXNet's local one."""
from __future__ import annotations

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError


def pulled(store, key, shape=(2,)):
    out = mx.nd.zeros(shape)
    store.pull(key, out=out)
    return out.asnumpy().tolist()


def test_a_value_is_stored_replaced_and_summed():
    store, value = mx.kv.create("local"), mx.nd.full(2, 2)
    store.init(3, value)
    value[:] = 9
    assert pulled(store, 3) == [2, 2]
    store.push(3, mx.nd.full(2, 8))
    assert pulled(store, 3) == [8, 8]
    store.push(3, [mx.nd.ones(2)] * 4)
    assert pulled(store, 3) == [4, 4]
    outs = [mx.nd.zeros(2), mx.nd.zeros(2)]
    store.pull(3, outs)
    assert [out.asnumpy().tolist() for out in outs] == [[4, 4], [4, 4]]


def test_lists_of_keys_take_lists_of_values():
    store = mx.kv.create()
    store.init(["a", "b"], [mx.nd.ones(2), mx.nd.ones(2)])
    store.push(["a", "b"], [[mx.nd.ones(2), mx.nd.full(2, 2)], [mx.nd.full(2, 4)]])
    assert pulled(store, "a") == [3, 3] and pulled(store, "b") == [4, 4]
    store.push(["a", "b"], [mx.nd.ones(2), mx.nd.full(2, 2), mx.nd.full(2, 5), mx.nd.full(2, 6)])
    assert pulled(store, "a") == [3, 3] and pulled(store, "b") == [11, 11]
    outs = [mx.nd.zeros(2), mx.nd.zeros(2)]
    store.pushpull(["a", "b"], [mx.nd.full(2, 7), mx.nd.full(2, 8)], out=outs)
    assert [out.asnumpy().tolist() for out in outs] == [[7, 7], [8, 8]]
    fresh = mx.nd.zeros(2)
    store.broadcast("c", mx.nd.full(2, 5), fresh)
    assert fresh.asnumpy().tolist() == [5, 5]


def test_an_updater_changes_the_stored_value_by_what_is_pushed():
    store = mx.kv.create()
    store._set_updater(lambda key, pushed, stored: stored.__iadd__(pushed * 2))
    store.init("x", mx.nd.ones(2))
    store.push("x", [mx.nd.ones(2)] * 2)
    assert pulled(store, "x") == [5, 5]


def test_an_optimizer_trains_the_stored_values_and_its_states_are_saved(tmp_path):
    def store_with(value):
        store = mx.kv.create("device")
        store.set_optimizer(mx.optimizer.create("sgd", learning_rate=0.5, momentum=0.5))
        store.init(0, mx.nd.array(value))
        return store

    whole = store_with([1.0, 2.0])
    for _ in range(2):
        whole.push(0, mx.nd.ones(2))
    whole.save_optimizer_states(str(tmp_path / "states"))
    again = store_with(pulled(whole, 0))
    again.load_optimizer_states(str(tmp_path / "states"))
    for store in (whole, again):
        store.push(0, mx.nd.ones(2))
    assert pulled(whole, 0) == pulled(again, 0) == [1 - 0.5 - 0.75 - 0.875, 2 - 0.5 - 0.75 - 0.875]


def test_misuse_is_told():
    store = mx.kv.create()
    store.init(1, mx.nd.ones(2))
    for call, message in (
            (lambda: store.init(1, mx.nd.ones(2)), "of the key 1 already"),
            (lambda: store.push(2, mx.nd.ones(2)), "key 2"),
            (lambda: store.push(1, mx.nd.ones(3)), r"\(2,\), and \(3,\)"), (lambda: store.pull(1), "give out="),
            (lambda: store.init(1.5, mx.nd.ones(2)), "1.5"), (lambda: store.init([4, 5], mx.nd.ones(2)), "2 keys"),
            (lambda: store.init(4, [mx.nd.ones(2)] * 2), "got 2"),
            (lambda: store.save_optimizer_states("x"), "no optimizer"),
            (lambda: store.set_gradient_compression({"type": "2bit"}), "leave it out"),
            (lambda: store.row_sparse_pull(1), "use pull")):
        with pytest.raises(MXNetError, match=message):
            call()


def test_it_is_one_worker_and_modules_take_it():
    store = mx.kv.create("local")
    store.barrier()
    assert (store.rank, store.num_workers, store.type) == (0, 1, "local")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2),
                                                name="softmax"))
    data = mx.io.NDArrayIter(np.ones((4, 3)), np.zeros(4), batch_size=2)
    module.fit(data, num_epoch=1, kvstore=store)
    assert module.optimizer_initialized


def test_optimizers_and_scopes_have_their_further_names():
    assert mx.optimizer.Optimizer.opt_registry["sgd"] is mx.optimizer.SGD
    assert mx.attribute.AttrScope is mx.AttrScope
