"""The profiler, under MXNet's names: while its state is "run", every instruction of every run is timed.

    mx.profiler.set_config(filename="trace.json")
    mx.profiler.set_state("run")
    ...                                         # forward, backward, steps
    mx.profiler.set_state("stop")
    mx.profiler.dump()                          # a Chrome trace
    print(mx.profiler.dumps())                  # a table by operator

Each instruction is waited for, so runs take longer while the profiler is on; their results do not change. One
program alone is timed by `executor.profile(n)`, which changes no state.
"""
from __future__ import annotations

import os
from typing import Any

from .profiling import Trace, recorder

__all__ = ["dump", "dumps", "pause", "resume", "set_config", "set_state"]

_SWITCHES = ("profile_all", "profile_symbolic", "profile_imperative", "profile_memory", "profile_api",
             "continuous_dump", "dump_period", "aggregate_stats", "profile_process",
             "gpu_memory_profile_filename_prefix")
"""MXNet's further settings, which mean nothing here: instructions are always timed, and dumped when asked."""
_config: dict[str, str | os.PathLike] = {"filename": "profile.json"}


def set_config(filename: str | os.PathLike | None = None, **kwargs: Any) -> None:
    """Choose the file of `dump`, profile.json at first. MXNet's switches (profile_all, aggregate_stats …) are taken
    and not needed; TypeError for any other."""
    unknown = sorted(set(kwargs) - set(_SWITCHES))
    if unknown:
        raise TypeError(f"profiler.set_config has no setting {unknown[0]!r}; it has filename, {', '.join(_SWITCHES)}")
    if filename is not None:
        _config["filename"] = filename


def set_state(state: str = "stop", profile_process: str = "worker") -> None:
    """"run" begins timing, or goes on with it; "stop" ends it."""
    _check_process(profile_process)
    if state not in ("run", "stop"):
        raise ValueError(f"the profiler's state is 'run' or 'stop', got {state!r}")
    recorder.running = state == "run"


def _check_process(profile_process: str) -> None:
    if profile_process != "worker":
        raise ValueError(f"profile_process={profile_process!r}: there is one process, the 'worker'; leave it out")


def pause(profile_process: str = "worker") -> None:
    """Stop timing for a while."""
    set_state("stop", profile_process)


def resume(profile_process: str = "worker") -> None:
    """Go on timing."""
    set_state("run", profile_process)


def dump(finished: bool = True, profile_process: str = "worker") -> None:
    """Write what was timed so far as a Chrome trace; `finished` ends the timing and begins anew."""
    _check_process(profile_process)
    recorder.trace.save(_config["filename"])
    if finished:
        recorder.running = False
        recorder.trace = Trace()


def dumps(reset: bool = False, format: str = "table", sort_by: str = "total", ascending: bool = False) -> str:
    """A table of runs and milliseconds by operator, the dearest first; `reset` forgets what was timed."""
    if (format, sort_by, ascending) != ("table", "total", False):
        raise ValueError(f"dumps gives a table sorted by falling total, got format={format!r}, sort_by={sort_by!r}, "
                         f"ascending={ascending!r}")
    text = recorder.trace.text()
    if reset:
        recorder.trace = Trace()
    return text
