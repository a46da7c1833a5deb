"""What the environment says about the CPU's kernels. This is the one place that reads it:

- `MINIGRAPH_CPU_KERNELS`: `auto` (the default: the fastest that this CPU runs), `numpy`, or a level such as
  `x86-64-v3`;
- `MINIGRAPH_CPU_WINOGRAD`: `0` computes all convolutions directly, which takes longer and rounds less;
- `MINIGRAPH_CPU_THREADS`: threads of a kernel; by default one for each core that this process may use;
- `MINIGRAPH_BUILD_CACHE`: where a checkout keeps what it compiles, by default `~/.cache/minigraph`; `CXX`: with what.
"""
from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ....base import MXNetError


@dataclass(frozen=True)
class Settings:
    """What the environment asks for; see the module's docstring."""

    kernels: str
    threads: int
    build_cache: Path
    compiler: str
    winograd: bool = True

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """The settings of an environment, by default the process's own; MXNetError for what is no
        number of threads or no switch."""
        environment = os.environ if environment is None else environment
        threads = environment.get("MINIGRAPH_CPU_THREADS")
        if threads and not (threads.isdigit() and int(threads) > 0):
            raise MXNetError(f"MINIGRAPH_CPU_THREADS is {threads!r}; give a number of threads, 1 or more")
        winograd = environment.get("MINIGRAPH_CPU_WINOGRAD") or "1"
        if winograd not in ("0", "1"):
            raise MXNetError(f"MINIGRAPH_CPU_WINOGRAD is {winograd!r}; give 0 or 1")
        cache = environment.get("MINIGRAPH_BUILD_CACHE")
        return cls(environment.get("MINIGRAPH_CPU_KERNELS") or "auto", int(threads) if threads else available_cores(),
                   Path(cache) if cache else Path.home() / ".cache" / "minigraph", environment.get("CXX") or "g++",
                   winograd == "1")


def available_cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
