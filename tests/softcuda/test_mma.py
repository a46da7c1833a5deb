"""The wrappers of kernels/mma.h: their host side against numpy, and their PTX through nvcc."""
from __future__ import annotations

import shutil
import subprocess

import pytest

from .conftest import HERE, KERNEL_FLAGS
from .programs import planted, tensor


def test_tf32_product_is_that_of_operands_rounded_to_tf32(run):
    from_rounded, from_plain = run(tensor.mma_tf32).value
    assert from_rounded < 2e-6
    assert from_plain > 1e-4            # so the rounding is there


def test_poison_survives_rounding_to_tf32(run):
    assert run(tensor.mma_tf32_nan).value == 8


@pytest.mark.parametrize("kernel", ["mma_bf16", "mma_f16"])
def test_16_bit_product_is_added_to_the_accumulator(run, kernel):
    assert run(tensor.mma_16_bit, kernel).value < 5e-6


@pytest.mark.parametrize("tiles", [2, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_ldmatrix_gives_each_lane_its_elements(run, tiles, transposed):
    assert run(tensor.ldmatrix, tiles, transposed).value


def test_misaligned_ldmatrix_is_reported(run):
    outcome = run(planted.launch_faulty, "load_misaligned", "P", 32)
    assert outcome.error == ["LogicError", "cuCtxSynchronize failed: misaligned address"]
    assert "ldmatrix row" in outcome.messages and "is not aligned to 16 bytes" in outcome.messages


@pytest.mark.parametrize("order", ["asc", "desc", "random"])
def test_gemm_of_all_wrappers_agrees_with_numpy(run, order):
    difference, largest = run(tensor.gemm_bf16, ORDER=order).value
    assert difference < 1e-5 * largest


@pytest.mark.parametrize("count", [0, 1, 4, 17, 32])
def test_asynchronous_copies_fill_the_rest_with_zeroes(run, count):
    assert run(tensor.copy_edge, count).value


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("source", ["basic", "tensor"])
def test_nvcc_compiles_the_kernels(tmp_path, architecture, source):
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not on PATH")
    options = ["-std=c++17", f"-arch={architecture}", "-Werror", "all-warnings", *KERNEL_FLAGS]
    command = [nvcc, *options, "-cubin", "-o", tmp_path / "k.cubin", HERE / "kernels" / f"{source}.cu"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
