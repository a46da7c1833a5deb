"""The training script: what it prints, what it learns, that it goes on from a checkpoint, and what it refuses."""
from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import minigraph as mx
from zoo import train

ROOT = Path(__file__).resolve().parent.parent.parent
SYNTHETIC = ["--data", "synthetic", "--image", "1,6,6", "--data-arg", "train_size=60", "--data-arg", "num_classes=3",
             "--data-arg", "validation_size=30", "--batch", "10", "--network", "mlp", "--arg", "hidden=8"]


def run(capsys, *words: str) -> list[str]:
    """Lines of a training that must succeed."""
    assert train.main([*SYNTHETIC, *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_each_epoch_has_a_line_and_the_last_tells_accuracy_and_bytes(capsys):
    lines = run(capsys, "--epochs", "3", "--lr", "0.1")
    assert len(lines) == 4
    for k, line in enumerate(lines[:3], start=1):
        assert re.fullmatch(rf"epoch {k}/3  train [01]\.\d{{4}}  validation [01]\.\d{{4}}  \d+\.\d s", line)
    found = re.fullmatch(r"validation accuracy ([01]\.\d{4}); a training step takes .* planned against .* naive .*",
                         lines[3])
    assert found is not None and float(found[1]) > 0.9


@pytest.mark.parametrize("optimizer", ["sgd", "nag", "adam"])
def test_every_optimizer_of_the_choice_trains(optimizer, capsys):
    lines = run(capsys, "--epochs", "2", "--optimizer", optimizer, "--lr-step", "1")
    assert len(lines) == 3


@pytest.mark.parametrize("scale", ["1024", "dynamic"])
def test_a_loss_scale_changes_no_parameter(scale, capsys, tmp_path):
    for name, words in (("without", ()), ("with", ("--loss-scale", scale))):
        run(capsys, "--epochs", "1", "--save-prefix", str(tmp_path / name), *words)
    without, with_one = (Path(tmp_path / f"{name}-0001.params").read_bytes() for name in ("without", "with"))
    assert without == with_one


def test_the_same_seed_gives_the_same_accuracies_under_every_memory_mode(capsys):
    words = ("--epochs", "2", "--augment", "pad=1", "--augment", "rand_crop=1", "--seed", "7")
    accuracies = {memory: [re.findall(r"\d\.\d{4}", line) for line in run(capsys, *words, "--memory", memory)]
                  for memory in ("plain", "inplace", "naive")}
    assert accuracies["plain"] == accuracies["inplace"] == accuracies["naive"]


def test_training_goes_on_from_a_checkpoint_with_its_states(capsys, tmp_path):
    prefix = str(tmp_path / "net")
    run(capsys, "--epochs", "2", "--save-prefix", prefix)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"net-symbol.json", *(f"net-000{k}.{kind}" for k in (1, 2) for kind in ("params", "states"))}
    lines = run(capsys, "--epochs", "4", "--save-prefix", prefix, "--resume", "2")
    assert [line[:9] for line in lines[:2]] == ["epoch 3/4", "epoch 4/4"]
    first, last = (mx.nd.load(f"{prefix}-000{k}.params") for k in (2, 4))
    assert first.keys() == last.keys()


@pytest.mark.parametrize("augmented", [[], ["--augment", "pad=1", "--augment", "rand_crop=1"]])
def test_training_that_was_interrupted_ends_in_the_bits_of_one_that_was_not(capsys, tmp_path, augmented):
    whole, parts = str(tmp_path / "whole"), str(tmp_path / "parts")
    lines = run(capsys, "--epochs", "4", "--save-prefix", whole, *augmented)
    run(capsys, "--epochs", "2", "--save-prefix", parts, *augmented)
    after = run(capsys, "--epochs", "4", "--save-prefix", parts, "--resume", "2", *augmented)
    figures = [[re.findall(r"[01]\.\d{4}", line) for line in each] for each in (lines[2:4], after[:2])]
    assert figures[0] == figures[1]
    for kind in ("params", "states"):
        assert Path(f"{whole}-0004.{kind}").read_bytes() == Path(f"{parts}-0004.{kind}").read_bytes()


@pytest.mark.parametrize("words, reason", [
    (["--image", "1,8"], "three whole numbers"), (["--image", "1,0,0"], "three whole numbers"),
    (["--lr", "nan"], "finite number"), (["--wd", "inf"], "finite number"), (["--momentum", "x"], "finite number"),
    (["--loss-scale", "1000"], "power of two"), (["--loss-scale", "static"], "power of two")])
def test_a_word_that_makes_no_sense_is_refused_with_its_option(words, reason, capsys):
    with pytest.raises(SystemExit):
        train.main(words)
    assert re.search(f"argument {words[0]}: .*{reason}", capsys.readouterr().err)


@pytest.mark.parametrize("words, reason", [
    (["--data", "digits"], "only the synthetic data set"), (["--network", "vgg0"], "vgg0"),
    (["--arg", "depth=3"], "depth"), (["--resume", "3"], "--save-prefix"), (["--data-arg", "colour=1"], "colour"),
    (["--batch", "61"], "batch_size 61"), (["--lr-step", "3,2"], "--lr-step"),
    (["--augment", "pad=-1"], "pad must not"),
    (["--augment", "pad=x"], "pad='x' must be a number"), (["--augment", "shift=1"], "shift"),
    (["--save-prefix", "/no/such/net", "--resume", "1"], "leaves nothing"),
    (["--save-prefix", "/no/such/net", "--resume", "1", "--epochs", "2"], "/no/such"), (["--data", "mnist"], "mnist")])
def test_what_cannot_be_trained_is_refused_in_one_line(words, reason, capsys):
    assert train.main([*SYNTHETIC, "--epochs", "1", *words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and reason in error


def test_it_runs_as_a_module_of_a_checkout():
    done = subprocess.run([sys.executable, "-m", "zoo.train", *SYNTHETIC, "--epochs", "1"], cwd=ROOT,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("validation accuracy")
