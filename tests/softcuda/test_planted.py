"""Each planted bug shows, by the means that README.md's table names."""
from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from .programs import graph, planted

# ---- missing synchronisation ---------------------------------------------------------------------


def test_lazy_schedule_shows_a_kernel_that_does_not_wait_for_its_copy(run):
    assert run(planted.kernel_does_not_wait_for_copy, SCHED="lazy").value == 32 * 32


def test_random_schedule_shows_a_kernel_that_does_not_wait_for_some_seed(run):
    wrong = [run(planted.kernel_does_not_wait_for_copy, SCHED="random", SEED=seed).value for seed in range(8)]
    assert any(wrong) and not all(wrong)


@pytest.mark.parametrize("schedule", ["threads", "eager", "lazy", "random"])
def test_race_detector_shows_a_kernel_that_does_not_wait_in_every_schedule(run, schedule):
    outcome = run(planted.kernel_does_not_wait_for_copy, SCHED=schedule, RACE=1)
    assert outcome.counters["races"] >= 1
    message = "RACE read after write: matmul_8 on stream 2 vs a copy to the device on stream 1"
    assert message in outcome.messages


@pytest.mark.parametrize("schedule", ["threads", "eager", "lazy", "random"])
def test_race_detector_shows_reuse_of_a_pool_block_across_streams(run, schedule):
    outcome = run(planted.pool_reuses_block_across_streams, SCHED=schedule, RACE=1)
    assert "RACE write after read: a copy to the device on stream 1 vs axpy on stream 2" in outcome.messages
    assert "RACE write after write" in outcome.messages


def test_random_schedule_shows_reuse_of_a_pool_block_for_some_seed(run):
    outcomes = [run(planted.pool_reuses_block_across_streams, SCHED="random", SEED=seed) for seed in range(8)]
    assert any(outcome.value for outcome in outcomes)


def test_lazy_schedule_shows_a_pinned_source_overwritten_in_flight(run):
    assert run(planted.pinned_source_overwritten, SCHED="lazy").value == 64


def test_race_detector_shows_a_pinned_source_overwritten_in_flight(run):
    outcome = run(planted.pinned_source_overwritten, RACE=1)
    assert "RACE write after read: a write on the host vs a copy to the device" in outcome.messages


def test_lazy_schedule_shows_a_pinned_target_read_too_early(run):
    assert run(planted.pinned_target_read_before_sync, SCHED="lazy").value == 3.0


def test_race_detector_shows_a_pinned_target_read_too_early(run):
    outcome = run(planted.pinned_target_read_before_sync, RACE=1)
    assert "RACE read after write: a read on the host vs a copy to the host" in outcome.messages


# ---- memory --------------------------------------------------------------------------------------


def test_guard_page_names_kernel_block_and_thread_of_a_write_out_of_bounds(run):
    outcome = run(planted.write_out_of_bounds)
    assert outcome.error[1] == "cuCtxSynchronize failed: an illegal memory access was encountered"
    # 1000 floats end 96 bytes before the guard page; thread 0 of block 4 is the first behind it.
    assert "no_bounds_test: block (4,0,0) thread (0,0,0): illegal address" in outcome.messages
    assert "96 bytes behind the end of a 4000-byte allocation" in outcome.messages


def test_tighter_alignment_moves_the_guard_page_to_the_first_element_out_of_bounds(run):
    outcome = run(planted.write_out_of_bounds, ALIGN=16)
    assert "block (3,0,0) thread (232,0,0)" in outcome.messages     # element 1000


def test_context_is_dead_after_a_fault(run):
    outcome = run(planted.use_after_fault)
    assert outcome.error[1] == "cuMemAlloc failed: an illegal memory access was encountered"


def test_write_between_allocation_and_guard_page_shows_at_free(run):
    outcome = run(planted.write_one_behind)
    assert outcome.counters["overruns"] == 1
    assert "OVERRUN: bytes just behind the 400-byte allocation" in outcome.messages


def test_uninitialised_memory_is_nan(run):
    assert run(planted.read_uninitialised).value == 64


def test_freed_pointer_is_refused_as_argument(run):
    outcome = run(planted.use_freed_argument)
    assert outcome.error == ["LogicError", "cuLaunchKernel failed: invalid argument"]
    assert "axpy: argument 1" in outcome.messages
    assert "points to no live device allocation (within freed memory)" in outcome.messages


def test_address_kept_without_its_allocation_is_refused(run):
    outcome = run(planted.keep_only_the_address)
    assert outcome.error is not None and "invalid argument" in outcome.error[1]


def test_double_free_is_refused(run):
    assert run(planted.free_twice).value == 1


def test_forgotten_frees_are_counted_at_the_end_of_the_context(run):
    outcome = run(planted.leave_allocations, LEAKS=1)
    assert "LEAK: 2 device allocations (1024 bytes)" in outcome.messages
    assert outcome.counters["bytes_live"] == 0


# ---- launches ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (planted.launch_too_many_threads, "matmul_8: grid (1,1,1) of blocks (16,8,1) is out of range"),
        (planted.launch_too_much_shared, "reverse: 60000 bytes of dynamic shared memory, the limit is 49152"),
        (planted.launch_wrong_parameter_bytes, "axpy: 24 bytes of parameters, the kernel takes 28"),
    ],
)
def test_wrong_launch_is_refused_with_the_reason(run, program, message):
    outcome = run(program)
    assert outcome.error == ["LogicError", "cuLaunchKernel failed: invalid argument"]
    assert message in outcome.messages


@pytest.mark.parametrize("image", ["\x7fELF, of a cubin", "P\xedU\xba fatbin", ".version 8.0"])
def test_module_that_is_no_host_object_is_refused(run, image):
    outcome = run(planted.load_foreign_image, image)
    assert "no kernel image is available" in outcome.error[1]


def test_fatbin_of_nvcc_is_refused(run, tmp_path):
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not on PATH")
    (tmp_path / "k.cu").write_text('extern "C" __global__ void nothing() {}')
    command = [nvcc, "-fatbin", "-arch=sm_80", "-o", tmp_path / "k.fatbin", tmp_path / "k.cu"]
    subprocess.run(list(map(str, command)), check=True)
    outcome = run(planted.load_file, str(tmp_path / "k.fatbin"))
    assert "no kernel image is available" in outcome.error[1]
    assert "isn't a host object" in outcome.messages


# ---- kernels -------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["asc", "desc", "random"])
def test_missing_barrier_gives_wrong_results_in_every_order(run, order):
    assert run(planted.missing_barrier, ORDER=order).value < 256


@pytest.mark.parametrize(
    ("kernel", "types", "threads", "message"),
    [
        ("divergent_barriers", "P", 64, r"divergent __syncthreads\(\): lines \d+ and \d+ meet"),
        ("exit_before_barrier", "P", 64, r"__syncthreads\(\) at line \d+ isn't reached by all threads"),
        ("deadlock", "P", 32, r"deadlock: 32 threads of the block wait for ever, this one at line \d+"),
        ("different_masks", "P", 32, "lanes of one warp operation name different masks"),
    ],
)
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_threads_that_cannot_meet_are_reported(run, kernel, types, threads, message, order):
    outcome = run(planted.launch_faulty, kernel, types, threads, ORDER=order)
    assert outcome.error == ["LaunchError", "cuCtxSynchronize failed: unspecified launch failure"]
    assert re.search(rf"{kernel}: block \(0,0,0\) thread \(\d+,0,0\): .*{message}", outcome.messages)


def test_index_beyond_dynamic_shared_memory_faults(run):
    outcome = run(planted.launch_faulty, "dynamic_shared_index", "P", 40, 128)
    assert "dynamic_shared_index: block (0,0,0) thread (32,0,0): illegal address" in outcome.messages


def test_integer_division_by_zero_is_reported(run):
    outcome = run(planted.launch_faulty, "divide", "PP", 1)
    assert "divide: block (0,0,0) thread (0,0,0): integer division by zero" in outcome.messages


def test_stack_overflow_is_reported(run):
    outcome = run(planted.launch_faulty, "stack_overflow", "P", 1)
    assert "stack_overflow: block (0,0,0) thread (0,0,0): stack overflow" in outcome.messages


@pytest.mark.parametrize(
    ("kernel", "types", "thread"), [("shared_index", "P", 32), ("misaligned_vector", "PP", 0)]
)
def test_sanitized_module_names_the_thread(run, sanitized_kernels, kernel, types, thread):
    outcome = run(planted.launch_faulty, kernel, types, 64, module=sanitized_kernels)
    assert outcome.error == ["LaunchError", "cuCtxSynchronize failed: unspecified launch failure"]
    assert f"{kernel}: block (0,0,0) thread ({thread},0,0): misaligned access or" in outcome.messages


def test_misaligned_vector_access_is_reported_by_a_plain_module_too(run):
    outcome = run(planted.launch_faulty, "misaligned_vector", "PP", 64)
    assert outcome.error == ["LogicError", "cuCtxSynchronize failed: misaligned address"]
    assert "misaligned_vector: block (0,0,0) thread (0,0,0): misaligned vector access" in outcome.messages


def test_missing_wait_for_asynchronous_copies_reads_nan(run):
    assert run(planted.missing_copy_wait, "sum_columns_waiting").value == [0, 128]
    assert run(planted.missing_copy_wait, "sum_columns_hasty").value[0] == 128
    assert run(planted.missing_copy_wait, "sum_columns_lax").value[0] == 128


# ---- graphs --------------------------------------------------------------------------------------


def test_race_inside_a_captured_graph_is_reported_at_each_launch(run):
    outcome = run(graph.graph_fork_and_join, False, 2, RACE=1)
    reader, writer = "axpy on branch 1 of graph 1", "a copy to the device on branch 0 of graph 1"
    assert outcome.messages.count(f"RACE read after write: {reader} vs {writer}") == 2


@pytest.mark.parametrize("schedule", ["lazy", "random"])
def test_adverse_schedules_show_a_missing_wait_inside_a_graph(run, schedule):
    def sums(seed):
        return run(graph.graph_fork_and_join, False, 1, SCHED=schedule, SEED=seed).value[1]

    assert [0.0, 10.0] in map(sums, range(4))       # z was added before it was copied


def test_race_between_a_graph_and_other_work_is_reported(run):
    outcome = run(graph.graph_beside_unordered_work, False, RACE=1)
    assert "RACE read after write: axpy on stream 2 vs axpy on branch 0 of graph 1" in outcome.messages


def test_fork_that_is_not_joined_is_refused(run):
    outcome = run(graph.capture_not_joined)
    assert outcome.value == 904         # CUDA_ERROR_STREAM_CAPTURE_UNJOINED
    assert "not joined" in outcome.messages
