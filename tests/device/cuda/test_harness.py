"""The kernel tests can fail: each way in which a kernel may be wrong is noticed."""
from __future__ import annotations

import numpy as np
import pytest

from minigraph.base import Algorithm
from minigraph.device.cuda import launch, unary
from minigraph.device.cuda.launch import KernelOp, Launch, address, int64, pointer
from minigraph.ops.unary import Exp

KERNELS = ("unary", "basic")
assert unary and Exp       # they register what the tests replace
DATA = np.array([0.5, 1.0, 2.0], np.float32)


def unary_launch(kernel, source, target, elements=3):
    """A launch of kernel(source, target, elements)."""
    return Launch(kernel, (1, 1, 1), (32, 1, 1), (source, target, int64(elements)))


@pytest.fixture
def exp_is(monkeypatch):
    """Make the CUDA form of exp the given function of (input, output, workspace address)."""
    def replace(launches, workspace_bytes=0):
        class Wrong(KernelOp):
            def algorithm(self, p, ins, outs):
                return Algorithm("wrong", workspace_bytes)

            def launches(self, p, ins, outs, work):
                return launches(ins[0], outs[0], work)

        monkeypatch.setitem(launch._KERNEL_OPS, "exp", Wrong())
    return replace


def test_right_kernels_pass(kernels, exp_is):
    exp_is(lambda data, out, work: [unary_launch("exp_forward_float32", pointer(data), pointer(out))])
    kernels.check("exp", {}, [DATA])


def test_a_wrong_function_is_noticed(kernels, exp_is):
    exp_is(lambda data, out, work: [unary_launch("log_forward_float32", pointer(data), pointer(out))])
    with pytest.raises(AssertionError, match="exp: output"):
        kernels.check("exp", {}, [DATA])


def test_an_element_left_out_is_noticed(kernels, exp_is):
    exp_is(lambda data, out, work: [unary_launch("exp_forward_float32", pointer(data), pointer(out), 2)])
    with pytest.raises(AssertionError, match="exp: output"):
        kernels.check("exp", {}, [DATA])


def test_a_write_behind_the_end_is_noticed(kernels, exp_is):
    exp_is(lambda data, out, work: [unary_launch("exp_forward_float32", pointer(data), pointer(out), 5)])
    with pytest.raises(AssertionError, match="wrote behind a tensor"):
        kernels.check("exp", {}, [DATA])


def test_a_write_to_an_input_is_noticed(kernels, exp_is):
    exp_is(lambda data, out, work: [unary_launch("exp_forward_float32", pointer(data), pointer(out)),
                                    unary_launch("negative_forward_float32", pointer(data), pointer(data))])
    with pytest.raises(AssertionError, match="exp changed its input data"):
        kernels.check("exp", {}, [DATA])


def test_more_workspace_than_was_declared_is_noticed(kernels, exp_is):
    exp_is(lambda data, out, work: [unary_launch("exp_forward_float32", pointer(data), address(work)),
                                    unary_launch("copy_forward_bytes", address(work), pointer(out), 12)], 8)
    with pytest.raises(AssertionError, match="wrote behind a tensor"):
        kernels.check("exp", {}, [DATA])


def test_an_input_read_after_the_output_was_written_is_noticed_in_place(kernels, exp_is):
    exp_is(lambda data, out, work: [unary_launch("negative_forward_float32", pointer(data), pointer(out)),
                                    unary_launch("exp_forward_float32", pointer(data), pointer(out))])
    with pytest.raises(AssertionError, match="differs with output 0 in place over input 0"):
        kernels.check("exp", {}, [DATA])


def test_a_kernel_that_no_file_has_is_named(kernels, exp_is):
    exp_is(lambda data, out, work: [unary_launch("exp_forward", pointer(data), pointer(out))])
    with pytest.raises(AssertionError, match="no kernel exp_forward in unary.cu, basic.cu"):
        kernels.check("exp", {}, [DATA])


def test_a_grid_beyond_the_limits_is_refused(kernels, exp_is):
    exp_is(lambda data, out, work: [Launch("exp_forward_float32", (1, 65536, 1), (32, 1, 1), ())])
    with pytest.raises(AssertionError):
        kernels.check("exp", {}, [DATA])
