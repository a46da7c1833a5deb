"""What an executor takes goes back when it dies, and a process ends in peace whatever is alive."""
from __future__ import annotations

import gc
import subprocess
import sys

import numpy as np
import pytest

import minigraph as mx
from minigraph.base import MXNetError, OutOfMemoryError
from minigraph.device.cuda import cuda_device
from minigraph.executor import Executor

from .processes import ROOT, SCHEDULES, counters, environment, run

ALIVE = """
import numpy as np
import minigraph as mx
exe = (mx.sym.Variable("x") * 2).simple_bind(mx.gpu(0), x=(1000,){options})
for k in range(3):
    exe.forward(is_train=True, x=np.full(1000, k))
"""
ENDINGS = {
    "executor": "kept = exe.outputs[0]",
    "cycle": "holder = {'exe': exe}; holder['self'] = holder; exe.cycle = holder; del exe, holder",
    "pinned": "array = exe.group.device.pinned\nwith exe.group.device.context: array = array.take(10000)",
    "module": "import sys; sys.modules['kept'] = exe",
    "thread": "from threading import Thread\nThread(target=lambda: exe.forward(x=np.ones(1000))).start()",
    "exit": "raise SystemExit(0)",
    "raise": "raise ValueError('planted')",
}


def end(script, **settings):
    return subprocess.run([sys.executable, "-c", script], env=environment(**settings), cwd=ROOT, capture_output=True,
                          text=True, timeout=500)


@pytest.mark.parametrize("schedule", ["threads", "lazy"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_ends_in_peace_with(ending, schedule):
    done = end(ALIVE.format(options="") + ENDINGS[ending], SOFTCUDA_SCHED=schedule)
    if ending == "raise":
        assert done.returncode == 1 and done.stderr.splitlines()[-1] == "ValueError: planted"
        assert done.stderr.startswith("Traceback") and "softcuda" not in done.stderr and "PyCUDA" not in done.stderr
    else:
        assert (done.returncode, done.stderr) == (0, "")


def test_a_process_ends_in_peace_with_captured_graphs():
    done = end(ALIVE.format(options=", graph=True"))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_process_ends_in_peace_after_its_context_has_died():
    crash = """
import contextlib
device = exe.group.device
from minigraph.device.cuda.launch import Launch, address, int64
bad = Launch("elemwise_add_forward_float32", (1, 1, 1), (64, 1, 1), (address(0), address(0), address(0), int64(64)))
with device.context:
    function, arguments = device.kernels.call(bad, None, "elemwise")
    function(*arguments)
with contextlib.suppress(Exception):
    device.synchronize()  # the kernel runs when it runs
try:
    exe.outputs[0].asnumpy()
except mx.MXNetError as error:
    print(error)
"""
    done = end(ALIVE.format(options="") + crash)
    assert done.returncode == 0 and "an illegal memory access was encountered" in done.stdout
    assert "PyCUDA" not in done.stderr and "Traceback" not in done.stderr


def resident():
    """Pages of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])


def flat(count, graph):
    x = mx.sym.Variable("x")
    net = mx.sym.FullyConnected(x, num_hidden=32, name="fc")

    def once(k):
        exe = net.simple_bind(mx.gpu(0), x=(8, 64), graph=graph)
        exe.arg_dict["fc_weight"][:] = k
        exe.forward(is_train=True, x=np.ones((8, 64)))
        exe.backward(np.ones((8, 32)))
        return exe.outputs[0].asnumpy()[0, 0].item()

    device = cuda_device(0)
    for k in range(20):
        once(k)
    gc.collect()
    before, pages = counters(), resident()
    right = all(once(k) == 64 * k for k in range(count))
    gc.collect()
    with device.context:
        device.pool.collect()
    after = counters()
    kept = {name: after[name] - before[name] for name in ("bytes_live", "pinned_bytes_live", "allocations",
                                                          "pinned_allocations")}
    return right, kept, device.pool.used_bytes, (resident() - pages) * 4096, len(device.driver._kept)


@pytest.mark.parametrize("graph", [False, True], ids=["plain", "graph"])
def test_a_thousand_executors_leave_device_and_host_memory_as_it_was(graph):
    count = 200 if graph else 1000
    right, kept, used, grown, objects = run(flat, count, graph, SOFTCUDA_SCHED="eager")
    assert right and kept == dict.fromkeys(kept, 0) and used == 0
    assert grown < 16 << 20, "16 KiB an executor at most"
    assert objects < 200


def many_at_once():
    x = mx.sym.Variable("x")
    exes = [(x * k).simple_bind(mx.gpu(0), x=(100,)) for k in range(50)]
    for exe in exes:
        exe.forward(x=np.ones(100))
    right = [exe.outputs[0].asnumpy()[0] == k for k, exe in enumerate(exes)]
    blocks = counters()["allocations"]
    del exes, exe
    gc.collect()
    cuda_device(0).trim()
    return all(right), blocks, counters()["bytes_live"], counters()["pinned_bytes_live"]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_many_executors_share_few_blocks_and_all_goes_back(schedule):
    assert run(many_at_once, SOFTCUDA_SCHED=schedule, SOFTCUDA_RACE=1) == [True, 1, 0, 0]


def out_of_memory():
    """A model that fits, and one that does not, in one group and in groups of their own, again and again."""
    net = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=8, name="fc")
    small = Executor(net, mx.gpu(0), {"x": (4, 16)}, inputs=["x"])
    small.arg_dict["fc_weight"][:] = 1

    def larger(x):
        return small.reshape(x=x, allow_up_sizing=True)

    def new(x):
        return Executor(mx.sym.Variable("x") + 1, mx.gpu(0), {"x": x}, inputs=["x"])

    right, refused = True, 0
    for k in range(20):
        for bind, shape in ((larger, (1 << 21, 16)), (new, (1 << 25, 1))):
            try:
                bind(x=shape).forward(x=np.broadcast_to(np.float32(1), shape))
            except OutOfMemoryError as error:
                refused += error.asked_bytes > error.free_bytes >= 0
            gc.collect()
        right = right and (small.forward(x=np.full((4, 16), k))[0].asnumpy() == 16 * k).all()
    return bool(right), refused, counters()["bytes_peak"]


def test_running_out_of_memory_is_typed_and_what_fits_goes_on_running_twenty_times():
    right, refused, peak = run(out_of_memory, SOFTCUDA_MEM="32M")
    assert right and refused == 40 and peak <= 32 << 20


def interrupted():
    exe = mx.sym.BatchNorm(mx.sym.Variable("x") * 2, fix_gamma=False, name="bn").simple_bind(mx.gpu(0), x=(2, 1))
    exe.arg_dict["x"][:], exe.arg_dict["bn_gamma"][:] = [[1], [3]], 1
    exe.forward(is_train=True)
    program = exe.program("train")

    def interrupt():
        raise KeyboardInterrupt

    program._ready["forward"].append((interrupt, ()))
    with pytest.raises(KeyboardInterrupt):
        exe.forward(is_train=True)
    program._ready["forward"].pop()
    with pytest.raises(MXNetError) as caught:
        exe.forward(is_train=True)
    exe.copy_params_from({})
    return str(caught.value), exe.forward(is_train=True)[0].asnumpy()[1, 0].item()


def test_an_executor_whose_step_broke_off_refuses_to_run_until_parameters_are_set():
    text, value = run(interrupted, SOFTCUDA_SCHED="lazy")
    assert "a run broke off before (KeyboardInterrupt in `train`)" in text and abs(value - 1) < 1e-3


def serve_batches_of_many_sizes(sizes, options):
    """Results right throughout, and the bytes, places and allocations of the largest at the end."""
    from tests.test_lifetime import PARAMETER_BYTES, dense, own_bytes, reshape_through
    held = [dense().simple_bind(mx.gpu(0), x=(1, 64), **options)]
    gc.collect()
    gc.disable()
    reshape_through(held, sizes)
    layout, device = held[0].group.layout, held[0].group.device
    largest = own_bytes(max(sizes))
    device.synchronize()
    return [len(layout.places), layout.bytes <= 1.5 * (PARAMETER_BYTES + 2 * largest)]


@pytest.mark.parametrize("pool", ["on", "off"])
def test_batches_of_many_sizes_leave_the_bytes_of_the_largest(pool):
    sizes = [*range(1, 40), 40, 3, 17, 39, 1]
    settings = {"MINIGRAPH_CUDA_POOL": "off"} if pool == "off" else {}
    outcome = run(serve_batches_of_many_sizes, sizes, {}, **settings)
    assert outcome == [6, True]
