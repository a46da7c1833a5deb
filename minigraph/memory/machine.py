"""Machines as small tables: enough to say how long an op or a copy takes, for machines one need not have.

Arithmetic, memory bandwidth and interface are the makers' published figures: float32 without tensor cores, and the
theoretical rate of the PCI Express link in one direction. Usable memory is what the driver reports as total, with
error correction on where the board has it; a CUDA context takes its own few hundred MiB of that. The launch cost is
no published figure: it is a round value for one kernel launch from a busy host.
"""
from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass

from ..base import MXNetError
from ..formats.atomic import write_atomically

_MIB = 2**20
_FORMAT, _FORMAT_VERSION = "minigraph-machine", 1
_LAUNCH_SECONDS = 5e-6
_DISK = 500e6
"""Bytes per second of a solid-state drive on SATA (6 Gb/s less 8b/10b coding is 600 MB/s, drives state 500 to 560)."""
_PCIE_3, _PCIE_4, _PCIE_5 = 15.75e9, 31.5e9, 63.0e9
"""Bytes per second of 16 lanes in one direction, after 128b/130b coding."""


@dataclass(frozen=True)
class Machine:
    """What the roofline needs to know of a machine.

    `memory_bytes` is usable device memory; `flops` the float32 peak in operations per second; `bandwidth` that of
    device memory in bytes per second; `copy_out` and `copy_in` those of the link to the host, each way;
    `launch_seconds` is added to every instruction that does something; `source` says where the figures are from.
    `disk_bytes_per_second` is that of the disk with the swap file, each way; `device`, "cpu" or "gpu", whose kernels
    plans for it are made of. `event_seconds` is what recording an event, or waiting for one that is there, takes of its
    stream.
    """

    name: str
    memory_bytes: int
    flops: float
    bandwidth: float
    copy_out: float
    copy_in: float
    launch_seconds: float
    source: str
    disk_bytes_per_second: float = _DISK
    device: str = "cpu"
    event_seconds: float = 0.0

    def seconds(self, flops: float, nbytes: float) -> float:
        """Time of one kernel by the roofline: the slower of arithmetic and memory traffic, and the launch."""
        return max(flops / self.flops, nbytes / self.bandwidth) + self.launch_seconds

    def copy_out_seconds(self, nbytes: int, space: str = "host") -> float:
        """Time of one copy from the device to "host" or "file"."""
        return nbytes / self._rate(self.copy_out, space) + self.launch_seconds

    def copy_in_seconds(self, nbytes: int, space: str = "host") -> float:
        """Time of one copy to the device from "host" or "file"."""
        return nbytes / self._rate(self.copy_in, space) + self.launch_seconds

    def _rate(self, link: float, space: str) -> float:
        """A file is as fast as the slower of link and disk, for copies go through both piece by piece."""
        return min(link, self.disk_bytes_per_second) if space == "file" else link


def _machine(name: str, memory_mib: int, teraflops: float, gigabytes: float, link: float, source: str) -> Machine:
    return Machine(name, memory_mib * _MIB, teraflops * 1e12, gigabytes * 1e9, link, link, _LAUNCH_SECONDS, source,
                   device="gpu")


MACHINES: dict[str, Machine] = {machine.name: machine for machine in (
    _machine("K40c", 11441, 4.29, 288, _PCIE_3,
             "NVIDIA Tesla K40 board specification (base clock); 12 GB less error correction; PCIe 3.0 x16"),
    _machine("TITAN Xp", 12196, 12.15, 547.7, _PCIE_3,
             "NVIDIA TITAN Xp specifications (boost clock); 12 GB, no error correction; PCIe 3.0 x16"),
    _machine("P100", 16280, 9.3, 732, _PCIE_3,
             "NVIDIA Tesla P100 for PCIe data sheet, 16 GB (boost clock); PCIe 3.0 x16"),
    _machine("V100", 16160, 15.7, 900, _PCIE_3,
             "NVIDIA V100 data sheet, SXM2 with 16 GB (boost clock); PCIe 3.0 x16"),
    _machine("A100", 40960, 19.5, 1555, _PCIE_4,
             "NVIDIA A100 data sheet, SXM4 with 40 GB; PCIe 4.0 x16"),
    _machine("H100", 81559, 67.0, 3350, _PCIE_5,
             "NVIDIA H100 data sheet, SXM5 with 80 GB; PCIe 5.0 x16"),
    _machine("H200", 143771, 67.0, 4800, _PCIE_5,
             "NVIDIA H200 data sheet, SXM5 with 141 GB; PCIe 5.0 x16"),
    Machine("cpu", 16 * 2**30, 180e9, 12e9, 8e9, 8e9, 5e-6,
            "a nominal two-core desktop: round figures, so that plans do not depend on where they are made"),
)}
"""The machines that ship with the project, by name."""


def get_machine(name: str) -> Machine:
    """The machine of a name, upper or lower case alike, or of a machine file, whose name ends in `.json`.

    MXNetError listing the names when there is none, or saying what is wrong with the file.
    """
    if not isinstance(name, str):
        raise MXNetError(f"a machine is given by its name or its file, got {name!r}; known are {', '.join(MACHINES)}")
    if name.endswith(".json"):
        return load_machine(name)
    wanted = name.strip().lower()
    for machine in MACHINES.values():
        if machine.name.lower() == wanted:
            return machine
    raise MXNetError(f"there is no machine {name!r}; known are {', '.join(MACHINES)}; a machine file ends in .json")


def save_machine(machine: Machine, path: str | os.PathLike) -> None:
    """Write a machine file: one JSON object with the fields of Machine."""
    document = {"format": _FORMAT, "version": _FORMAT_VERSION, **asdict(machine)}
    write_atomically(path, (json.dumps(document, indent=1) + "\n").encode())


def load_machine(path: str | os.PathLike) -> Machine:
    """Read a machine file; MXNetError when it is none, or when a figure is missing or not above zero."""
    where = f"machine file {os.fspath(path)!r}"
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        if document.pop("format", None) != _FORMAT or document.pop("version", None) != _FORMAT_VERSION:
            raise ValueError(f"it lacks \"format\": \"{_FORMAT}\", \"version\": {_FORMAT_VERSION}")
        machine = Machine(**document)
        if machine.device not in ("cpu", "gpu"):
            raise ValueError(f"device must be \"cpu\" or \"gpu\", got {machine.device!r}")
        wrong = [name for name, value in asdict(machine).items()
                 if name not in ("name", "source", "device", "event_seconds") and not 0 < value < math.inf]
        if wrong:
            raise ValueError(f"{wrong[0]} must be above zero, and finite")
        if not 0 <= machine.event_seconds < math.inf:
            raise ValueError("event_seconds must be zero or above, and finite")
    except OSError as error:
        raise MXNetError(f"{where} cannot be read: {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise MXNetError(f"{where} is no machine: {error}; write one with `minigraph machine --save`") from error
    return machine
