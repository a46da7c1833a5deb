"""Callbacks: when they act, and the words that they log."""
from __future__ import annotations

import sys
import types

import pytest

from minigraph import callback, metric
from minigraph import ndarray as nd
from minigraph.callback import BatchEndParam


@pytest.fixture
def log(caplog):
    caplog.set_level("INFO")
    return caplog


def accuracy(right, wrong=0):
    made = metric.create("acc")
    made.update([nd.zeros(right + wrong)], [nd.array([0] * right + [1] * wrong)])
    return made


def run(function, batches, epoch=0, eval_metric=None):
    for nbatch in batches:
        function(BatchEndParam(epoch, nbatch, eval_metric, {}))


def test_speedometer_logs_every_frequent_batches_with_the_range_and_resets_local_sums(log):
    made = accuracy(3, 1)
    run(callback.Speedometer(32, 2), range(5), 7, made)
    assert len(log.messages) == 2
    first, second = (message.split("\t") for message in log.messages)
    assert first[0] == "Epoch[7] Batch [0-2]" and second[0] == "Epoch[7] Batch [2-4]"
    assert first[1].startswith("Speed: ") and first[1].endswith(" samples/sec")
    assert first[2] == "accuracy=0.750000" and second[2] == "accuracy=nan"
    assert made.get_global() == ("accuracy", 0.75)


def test_speedometer_without_reset_shows_the_epoch_so_far(log):
    run(callback.Speedometer(32, 2, auto_reset=False), range(5), 0, metric.create(["acc", "mae"]))
    ranges = [message.split("\t")[0] for message in log.messages]
    assert ranges == ["Epoch[0] Batch [0-2]", "Epoch[0] Batch [0-4]"]
    assert log.messages[0].count("=") == 2


def test_speedometer_starts_its_clock_anew_in_each_epoch(log):
    meter = callback.Speedometer(1, 2)
    run(meter, range(2))
    run(meter, range(1), epoch=1)  # batch 0 is a multiple, but only starts the clock
    assert log.messages == []


def test_speedometer_measures_samples_per_second(log, monkeypatch):
    clock = iter([10.0, 12.0, 12.0])
    monkeypatch.setattr(callback.time, "perf_counter", lambda: next(clock))
    run(callback.Speedometer(50, 4), [0, 4])
    assert log.messages == ["Iter[0] Batch [4]\tSpeed: 100.00 samples/sec"]


def test_do_checkpoint_saves_under_the_next_epochs_number_every_period(monkeypatch):
    saved = []
    model = types.ModuleType("minigraph.model")
    model.save_checkpoint = lambda *arguments: saved.append(arguments)
    monkeypatch.setitem(sys.modules, "minigraph.model", model)
    save = callback.do_checkpoint("net", period=2)
    for epoch in range(4):
        save(epoch, "symbol", {"w": 1}, {"m": 2})
    assert saved == [("net", 2, "symbol", {"w": 1}, {"m": 2}), ("net", 4, "symbol", {"w": 1}, {"m": 2})]


def test_module_checkpoint_asks_the_module():
    class Module:
        def __init__(self):
            self.saved = []

        def save_checkpoint(self, *arguments):
            self.saved.append(arguments)

    module = Module()
    save = callback.module_checkpoint(module, "net", save_optimizer_states=True)
    save(0)
    save(1, None, {}, {})
    assert module.saved == [("net", 1, True), ("net", 2, True)]


def test_log_train_metric_logs_every_period_and_may_reset(log):
    made = accuracy(1, 1)
    run(callback.log_train_metric(2, auto_reset=True), range(3), 4, made)
    assert log.messages == ["Iter[4] Batch[0] Train-accuracy=0.500000", "Iter[4] Batch[2] Train-accuracy=nan"]
    run(callback.log_train_metric(1), range(3), 4, None)
    assert len(log.messages) == 2


def test_progress_bar_fills_in_proportion(log):
    run(callback.ProgressBar(total=4, length=8), [0, 1, 4])
    assert log.messages == ["[--------] 0%\r", "[==------] 25%\r", "[========] 100%\r"]


def test_validation_figures_are_logged_each(log):
    run(callback.LogValidationMetricsCallback(), [0], 3, metric.create([accuracy(1)]))
    run(callback.LogValidationMetricsCallback(), [0], 3, None)
    assert log.messages == ["Epoch[3] Validation-accuracy=1.000000"]
