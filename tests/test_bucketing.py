"""BucketingModule: buckets train one set of parameters over one memory, in any order."""
from __future__ import annotations

import inspect
import random

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.io import DataBatch, DataDesc
from tests.recurrent import lstm
from tests.training import assert_same, everything

HIDDEN, BATCH, WORDS = 8, 3, 11


def generate(length):
    return lstm(length, HIDDEN, WORDS, 5, 4), ["data", "h0", "c0"], ["softmax_label"]


def descriptions(length):
    data = [DataDesc("data", (BATCH, length)), DataDesc("h0", (BATCH, HIDDEN)), DataDesc("c0", (BATCH, HIDDEN))]
    return data, [DataDesc("softmax_label", (BATCH,))]


def batch(length, seed=0):
    draw = np.random.RandomState(seed * 100 + length)
    zeros = mx.nd.zeros((BATCH, HIDDEN))
    data, label = descriptions(length)
    return DataBatch([mx.nd.array(draw.randint(0, WORDS, (BATCH, length))), zeros, zeros],
                     [mx.nd.array(draw.randint(0, 4, BATCH))], bucket_key=length, provide_data=data,
                     provide_label=label)


def prepared(key, poison=True, **kwargs):
    mx.random.seed(1)
    module = mx.mod.BucketingModule(generate, key, poison=poison, **kwargs)
    module.bind(*descriptions(key))
    module.init_params(mx.init.Xavier())
    module.init_optimizer(optimizer_params={"learning_rate": 0.5, "momentum": 0.9})
    return module


class Batches(mx.io.DataIter):
    """One batch of each length, in turn."""

    def __init__(self, lengths, default):
        super().__init__(BATCH)
        self.lengths, self.at = lengths, 0
        self.provide_data, self.provide_label = descriptions(default)

    def reset(self):
        self.at = 0

    def next(self):
        if self.at == len(self.lengths):
            raise StopIteration
        self.at += 1
        return batch(self.lengths[self.at - 1])


def test_fit_learns_batches_of_several_lengths():
    lengths = [3, 7, 5, 3]
    module = mx.mod.BucketingModule(generate, 7, poison=True)
    data = Batches(lengths, 7)
    module.fit(data, num_epoch=40, initializer=mx.init.Xavier(), optimizer="adam",
               optimizer_params={"learning_rate": 0.02})
    assert dict(module.score(Batches(lengths, 7), "acc"))["accuracy"] == 1.0
    assert set(module._buckets) == {3, 5, 7}


def test_a_bucket_computes_what_a_module_of_its_own_does():
    shared = prepared(6)
    alone = mx.mod.Module(*generate(4), poison=True)
    alone.bind(*descriptions(4))
    alone.set_params(*shared.get_params())
    alone.init_optimizer(optimizer_params={"learning_rate": 0.5, "momentum": 0.9})
    for seed in range(3):
        for module in (shared, alone):
            module.forward_backward(batch(4, seed))
            module.update()
        assert mx.test_utils.same(shared.get_outputs()[0], alone.get_outputs()[0])
    assert_same(everything(shared), everything(alone))


def test_whole_steps_in_buckets_equal_forward_backward_and_update():
    whole, apart = prepared(5), prepared(5)
    step = whole.training_step()
    for length in (5, 2, 4, 2, 5):
        step(batch(length))
        apart.forward_backward(batch(length))
        apart.update()
    assert_same(everything(whole), everything(apart))


def test_fit_calls_the_update_of_a_subclass():
    calls = []

    class Mine(mx.mod.BucketingModule):
        def update(self):
            calls.append(self._key)
            super().update()

    Mine(generate, 8).fit(Batches([8, 4, 8], 8), num_epoch=1)
    assert calls == [8, 4, 8]


SHUFFLED = list(range(1, 21))
random.Random(4).shuffle(SHUFFLED)


@pytest.mark.parametrize("order", [range(2, 13, 2), range(12, 1, -2), SHUFFLED], ids=["rising", "falling", "shuffled"])
def test_all_buckets_lie_in_arenas_as_large_as_the_largest_in_any_order(order):
    alone, module = (prepared(key, poison=False, verify=False) for key in (max(order), order[0]))
    alone.training_step()(batch(max(order)))
    step = module.training_step()
    for length in order:
        step(batch(length))
    assert len(module._buckets) == len(order)
    assert len({id(each._executor.group) for each in module._buckets.values()}) == 1
    found, largest = ({name: arena.size for name, arena in each._module._executor.group.memory.arenas.items()}
                      for each in (module, alone))
    assert found == largest


def test_a_bucket_met_again_is_not_made_again():
    module = prepared(4)
    module.forward(batch(2), is_train=False)
    first = module._module
    module.forward(batch(4), is_train=False)
    module.forward(batch(2), is_train=False)
    assert module._module is first
    assert module.data_shapes[0].shape == (BATCH, 2) and module.output_shapes == [("softmax_output", (BATCH, 4))]
    assert module.data_names == ["data", "h0", "c0"] and module.output_names == ["softmax_output"]


def test_predictions_of_several_lengths_are_joined():
    module = prepared(4)
    out = module.predict(Batches([2, 4, 3], 4))
    assert out.shape == (3 * BATCH, 4)


def test_parameters_and_states_go_through_files(tmp_path):
    first, second = prepared(4), prepared(4)
    first.training_step()(batch(3))
    first.save_params(str(tmp_path / "p.params"))
    first.save_optimizer_states(str(tmp_path / "p.states"))
    second.load_params(str(tmp_path / "p.params"))
    second.load_optimizer_states(str(tmp_path / "p.states"))
    for module in (first, second):
        module.training_step()(batch(2))
    assert_same(everything(first), everything(second))


def test_a_parameter_that_the_default_bucket_lacks_is_named():
    def growing(key):
        net = mx.sym.Variable("data")
        for k in range(key):
            net = mx.sym.FullyConnected(net, num_hidden=2, name=f"fc{k}")
        return mx.sym.SoftmaxOutput(net, name="softmax"), ["data"], ["softmax_label"]

    module = mx.mod.BucketingModule(growing, 1)
    module.bind([("data", (2, 2))], [("softmax_label", (2,))])
    module.init_params()
    with pytest.raises(MXNetError, match="bucket 2 has the parameters fc1_bias, fc1_weight, which the default"):
        module.switch_bucket(2, [("data", (2, 2))], [("softmax_label", (2,))])


def test_what_is_missing_is_named():
    with pytest.raises(MXNetError, match="default_bucket_key"):
        mx.mod.BucketingModule(generate)
    module = prepared(4)
    with pytest.raises(MXNetError, match="first batch of bucket 2 has no provide_data"):
        module.forward(DataBatch(batch(2).data, bucket_key=2))
    with pytest.raises(AssertionError, match="not bound"):
        mx.mod.BucketingModule(generate, 3).switch_bucket(3, [])
    with pytest.raises(MXNetError, match="needs sym_gen, a function .* got NoneType"):
        mx.mod.BucketingModule(None, 3)
    with pytest.raises(MXNetError, match=r"sym_gen\(3\) must return \(symbol, data_names, label_names\), got Symbol"):
        mx.mod.BucketingModule(lambda key: generate(key)[0], 3).bind([("data", (2, 3))])


def test_every_option_of_memory_that_a_module_takes_a_bucketing_module_takes():
    options = [name for name, each in inspect.signature(mx.mod.Module).parameters.items()
               if each.kind is each.KEYWORD_ONLY]
    taken = inspect.signature(mx.mod.BucketingModule).parameters
    assert len(options) > 10 and set(options) <= set(taken)
    assert set(options) <= set(mx.mod.BucketingModule(generate, 3)._options)


def test_a_monitor_sees_every_bucket():
    module = prepared(3)
    monitor = mx.mon.Monitor(1, pattern="fc_output")
    module.install_monitor(monitor)
    for length in (3, 2):
        monitor.tic()
        module.forward_backward(batch(length))
        assert [name for _, name, _ in monitor.toc()] == ["fc_output"]


def test_training_from_a_checkpoint_goes_on_as_if_it_had_not_stopped(tmp_path):
    prefix = str(tmp_path / "net")
    whole = prepared(6)
    for length in (4, 6):
        whole.training_step()(batch(length))
    mx.callback.module_checkpoint(whole, prefix, save_optimizer_states=True)(0)
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "net-0001.params", "net-0001.states", "net-4-symbol.json", "net-6-symbol.json", "net.buckets"]
    assert mx.nd.load(f"{prefix}.buckets")[0].asnumpy().tolist() == [6, 4]
    again = mx.mod.BucketingModule.load(prefix, 1, generate, 6, load_optimizer_states=True, poison=True)
    assert again.params_initialized
    again.bind(*descriptions(6))
    again.init_optimizer(optimizer_params={"learning_rate": 0.5, "momentum": 0.9})
    for length in (2, 4):
        for module in (whole, again):
            module.training_step()(batch(length))
    assert_same(everything(whole), everything(again))


def test_saved_symbols_take_the_place_of_generated_ones(tmp_path):
    prefix = str(tmp_path / "net")
    prepared(4).save_checkpoint(prefix, 3)

    def other(length):
        return lstm(length, HIDDEN, WORDS, 5, 9), *generate(length)[1:]

    loaded = mx.mod.BucketingModule.load(prefix, 3, other, 4)
    loaded.bind(*descriptions(4))
    assert loaded.output_shapes == [("softmax_output", (BATCH, 4))] and loaded.label_names == ["softmax_label"]


def test_a_module_is_made_from_symbols_and_parameters_in_memory():
    first = prepared(4)
    arguments, states = first.get_params()
    second = mx.mod.BucketingModule.load_dict({4: generate(4)[0]}, generate, 4, arguments, states)
    second.bind(*descriptions(4))
    for module in (first, second):
        module.forward(batch(2), is_train=False)
    assert mx.test_utils.same(first.get_outputs()[0], second.get_outputs()[0])


def test_what_a_checkpoint_cannot_hold_or_lacks_is_named(tmp_path):
    module = prepared(4)
    module._buckets["long"] = module._module
    with pytest.raises(MXNetError, match="bucket key 'long' cannot be saved"):
        module.save_checkpoint(str(tmp_path / "net"), 1)
    with pytest.raises(AssertionError, match="sym_gen is required"):
        mx.mod.BucketingModule.load_dict({}, None, 4, {}, {})
