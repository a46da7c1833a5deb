"""Checkpoints are whole or not there: neither a killed process nor a full disk leaves a damaged file."""
from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError
from minigraph.formats import atomic
from tests.training import assert_same, batches, everything, mlp, prepared

ROOT = Path(__file__).parent.parent
KINDS = {"params": lambda mod, name: mod.save_params(name),
         "safetensors": lambda mod, name: mod.save_params(name),
         "states": lambda mod, name: mod.save_optimizer_states(name),
         "json": lambda mod, name: mod.symbol.save(name)}


def temporaries(folder):
    return [path.name for path in folder.iterdir() if path.name.endswith(".tmp")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fails", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_as_it_was(kind, fails, tmp_path, monkeypatch):
    mod = prepared(mlp(norm=True), params={"learning_rate": 0.1, "momentum": 0.9})
    name = tmp_path / f"model.{kind}"
    KINDS[kind](mod, str(name))
    before = name.read_bytes()
    mod.training_step()(batches(1)[0])

    class FullDisk:
        """A file that takes the first 100 bytes."""

        def __init__(self, file):
            self.file = file

        def write(self, data):
            self.file.write(data[:100])
            raise OSError(errno.ENOSPC, "No space left on device")

        def __enter__(self):
            return self

        def __exit__(self, *given):
            self.file.close()

    def refuse(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    if fails == "write":
        monkeypatch.setattr(atomic, "open", lambda *given: FullDisk(open(*given)), raising=False)
    else:
        monkeypatch.setattr(atomic.os, fails, refuse)
    with pytest.raises(OSError, match="No space left"):
        KINDS[kind](mod, str(name))
    monkeypatch.undo()
    assert name.read_bytes() == before and not temporaries(tmp_path)
    KINDS[kind](mod, str(name))
    assert (name.read_bytes() != before) == (kind != "json")


LIMITED = """
import resource, signal, sys
import minigraph as mx
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    mx.nd.save(sys.argv[1], {"w": mx.nd.ones((100, 100))})
except OSError as error:
    sys.exit(7)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="this system has no limit on the size of files")
def test_a_file_that_may_not_grow_leaves_the_old_one(tmp_path):
    name = tmp_path / "m.params"
    mx.nd.save(name, {"w": mx.nd.zeros((2,))})
    before = name.read_bytes()
    assert subprocess.run([sys.executable, "-c", LIMITED, str(name)], cwd=ROOT, check=False).returncode == 7
    assert name.read_bytes() == before and not temporaries(tmp_path)


@pytest.mark.parametrize("place", ["missing/m.params", "folder"])
def test_a_file_that_cannot_be_written_is_named_as_the_user_named_it(tmp_path, place):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError) as raised:
        mx.nd.save(tmp_path / place, {"w": mx.nd.zeros((2,))})
    assert raised.value.filename == str(tmp_path / place) and raised.value.filename2 is None
    assert not temporaries(tmp_path)


SAVING = """
import itertools, sys
import minigraph as mx
arrays = [{"w": mx.nd.full((250, 1000), k)} for k in (1, 2)]
mx.nd.save(sys.argv[1], arrays[0])
print("ready", flush=True)
for k in itertools.count():
    mx.nd.save(sys.argv[1], arrays[k % 2])
"""


def test_a_process_killed_while_it_saves_leaves_a_whole_file(tmp_path):
    name = tmp_path / "m.params"
    for delay in (0.003, 0.011, 0.026):
        with subprocess.Popen([sys.executable, "-c", SAVING, str(name)], stdout=subprocess.PIPE, cwd=ROOT) as child:
            assert child.stdout.readline() == b"ready\n"
            time.sleep(delay)
            child.kill()
        found = mx.nd.load(name)["w"].asnumpy()
        assert found.shape == (250, 1000) and found[0, 0] in (1, 2) and (found == found[0, 0]).all()


# -- loading elsewhere ---------------------------------------------------------------------------------------
def reloaded(prefix, batch_size, **kwargs):
    mod = mx.mod.Module.load(prefix, 1, load_optimizer_states=True, poison=True, **kwargs)
    mod.bind([("data", (batch_size, 6))], [("softmax_label", (batch_size,))])
    mod.init_optimizer(optimizer="adam", optimizer_params={"learning_rate": 0.01, "rescale_grad": 1 / 8})
    return mod


@pytest.fixture
def saved(tmp_path):
    mod = prepared(mlp(dropout=0.3, norm=True), "adam", {"learning_rate": 0.01})
    for batch in batches(3):
        mod.training_step()(batch)
    prefix = str(tmp_path / "net")
    mod.save_checkpoint(prefix, 1, save_optimizer_states=True)
    return mod, prefix


@pytest.mark.parametrize("memory", ["plain", "inplace", "naive"])
def test_a_checkpoint_goes_on_bit_for_bit_in_every_memory_mode(saved, memory):
    mod, prefix = saved
    again = reloaded(prefix, 8, memory=memory)
    assert_same(everything(mod), everything(again))
    for batch in batches(3):
        for each in (mod, again):
            each.training_step()(batch)
        assert np.array_equal(mod.get_outputs()[0].asnumpy(), again.get_outputs()[0].asnumpy())
    assert_same(everything(mod), everything(again))


def test_a_checkpoint_gives_the_same_outputs_at_another_batch_size(saved):
    mod, prefix = saved
    again = reloaded(prefix, 3)
    rows = batches(1)[0].data[0]
    mod.forward(mx.io.DataBatch([rows]), is_train=False)
    expected = mod.get_outputs()[0].asnumpy()
    found = []
    for first in (0, 3, 5):
        again.forward(mx.io.DataBatch([rows[first:first + 3]]), is_train=False)
        found.append(again.get_outputs()[0].asnumpy())
    np.testing.assert_allclose(np.concatenate([found[0], found[1][:2], found[2]]), expected, rtol=1e-6)


def test_names_that_do_not_fit_are_listed_all_at_once_and_nothing_changes(saved, tmp_path):
    mod, _ = saved
    arguments, states = mod.get_params()
    wrong = {**arguments, "extra": mx.nd.zeros((1,)), "fc1_bias": mx.nd.zeros((3,))}
    del wrong["fc2_weight"]
    name = str(tmp_path / "wrong.params")
    mx.model.save_params(name, wrong, states)
    before = everything(mod)
    with pytest.raises(MXNetError) as error:
        mod.load_params(name)
    for part in ("fc2_weight", "extra", "fc1_bias has shape (3,), the symbol needs (16,)"):
        assert part in str(error.value)
    assert_same(before, everything(mod))


def test_temporary_files_lie_beside_their_target(tmp_path, monkeypatch):
    seen = []
    replace = os.replace
    monkeypatch.setattr(atomic.os, "replace", lambda a, b: (seen.append((a, b)), replace(a, b)))
    mx.nd.save(tmp_path / "m.params", [mx.nd.zeros((1,))])
    (source, target), = seen
    assert os.path.dirname(source) == os.path.dirname(target) and not temporaries(tmp_path)
