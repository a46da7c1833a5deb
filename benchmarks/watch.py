"""Running a process under a cap on its peak resident memory.

The kernel keeps the peak (VmHWM of /proc/PID/status), so nothing is missed between two looks; a process above the cap
is ended at the next look. Address space is not limited: libraries reserve much of it that they never touch. Pages that
a plan maps at further addresses count once for each: a peak is then above what is in use, and never below.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LOOK_SECONDS = 0.02
_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Watched:
    """How a process ended: `result` is the JSON object of its last line of output, None without one; `killed` says
    that it was ended for being above the cap; `peak_bytes` is its peak resident memory."""

    result: dict[str, Any] | None
    peak_bytes: int
    killed: bool
    error: str

    @property
    def fits(self) -> bool:
        """Whether it came to its end below the cap."""
        return self.result is not None and not self.killed


def peak_bytes(pid: int | str = "self") -> int:
    """Peak resident bytes of a process so far; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def watch(module: str, arguments: Sequence[str], cap_bytes: int | None, environment: Mapping[str, str] | None = None,
          timeout_seconds: float = 3600.0) -> Watched:
    """Run `python -m MODULE ARGUMENTS` from the repository's root, and end it above the cap or after the time."""
    command = [sys.executable, "-m", module, *arguments]
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, cwd=_ROOT, stdout=output, stderr=errors,
                                   env={**os.environ, **(environment or {})})
        peak, killed, reason = _until_end(process, cap_bytes, time.monotonic() + timeout_seconds)
        output.seek(0)
        errors.seek(0)
        lines = output.read().strip().splitlines()
        message = reason or errors.read().strip()[-2000:]
    result = json.loads(lines[-1]) if lines and process.returncode == 0 else None
    if result is not None:
        peak = max(peak, int(result.get("peak_bytes", 0)))
        killed = killed or (cap_bytes is not None and peak > cap_bytes)
    return Watched(result, peak, killed, message)


def _until_end(process: subprocess.Popen[bytes], cap_bytes: int | None, deadline: float) -> tuple[int, bool, str]:
    peak, killed, reason = 0, False, ""
    while process.poll() is None:
        peak = max(peak, peak_bytes(process.pid))
        if cap_bytes is not None and peak > cap_bytes:
            killed, reason = True, f"above the cap of {cap_bytes} bytes"
        elif time.monotonic() > deadline:
            reason = "out of time"
        if reason:
            process.kill()
            process.wait()
            break
        time.sleep(_LOOK_SECONDS)
    return peak, killed, reason
