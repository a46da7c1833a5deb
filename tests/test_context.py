"""Contexts are values, and the innermost `with` is the default of its thread."""
from __future__ import annotations

import threading

import pytest

from minigraph.base import MXNetError
from minigraph.context import Context, cpu, cpu_pinned, current_context, gpu, num_gpus
from minigraph.symbol import Variable


def test_contexts_are_equal_by_type_and_number_and_print_as_in_mxnet():
    assert gpu(1) == Context("gpu", 1) == Context(gpu(1))
    assert len({cpu(), cpu(0), gpu(0), cpu_pinned()}) == 3
    assert cpu() != gpu() and cpu(0) != cpu(1) and cpu() != "cpu(0)"
    assert (str(cpu()), repr(gpu(2)), str(Context("cpu_pinned", 0))) == ("cpu(0)", "gpu(2)", "cpu_pinned(0)")
    contexts = (cpu(), gpu(), cpu_pinned(), Context("cpu_shared"))
    assert [each.device_typeid for each in contexts] == [1, 2, 3, 5]


def test_with_sets_the_default_and_leaving_restores_it_even_after_an_error():
    assert current_context() == cpu(0)
    with pytest.raises(KeyError), gpu(1):
        with gpu(2):
            assert current_context() == gpu(2)
        assert current_context() == gpu(1)
        raise KeyError
    assert current_context() == cpu(0)


def test_a_context_entered_in_one_thread_is_not_seen_in_another():
    seen = []
    with gpu(3):
        thread = threading.Thread(target=lambda: seen.append(current_context()))
        thread.start()
        thread.join()
    assert seen == [cpu(0)]


@pytest.mark.parametrize("ctx", ["cpu", [cpu()]])
def test_binding_to_what_is_no_context_is_refused_by_name(ctx):
    with pytest.raises(MXNetError, match="is no context; give mx.cpu"):
        Variable("data").simple_bind(ctx, data=(2,))


def test_an_unknown_type_or_negative_number_is_refused_by_name():
    with pytest.raises(MXNetError, match="'tpu'.*known are cpu, gpu"):
        Context("tpu")
    with pytest.raises(MXNetError, match="negative"):
        cpu(-1)


def test_the_number_of_gpus_is_a_count():
    assert isinstance(num_gpus(), int) and num_gpus() >= 0
