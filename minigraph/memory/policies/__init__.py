"""Policies: from an ordered graph and a budget to a schedule, one published strategy a file, and `auto`."""
from __future__ import annotations

from dataclasses import dataclass

from .auto import auto
from .capuchin import capuchin
from .lms import lms
from .openai import openai
from .parameters import place_homes
from .problem import Candidate, Evaluation, Policy, Problem, judge
from .rotor import rotor
from .sublinear import sublinear
from .superneurons import superneurons
from .vdnn import vdnn, vdnn_all, vdnn_conv


@dataclass(frozen=True)
class Strategy:
    """A policy, and which of its candidates is meant where no budget is given: the `fastest` or the `lowest` peak.

    With `moves_homes` parameters and states may be sent away from the device, too.
    """

    candidates: Policy
    without_budget: str
    moves_homes: bool = False


POLICIES: dict[str, Strategy] = {"auto": Strategy(auto, "fastest", moves_homes=True),
                                "sublinear": Strategy(sublinear, "lowest"),
                                "vdnn": Strategy(vdnn, "lowest"), "vdnn_all": Strategy(vdnn_all, "lowest"),
                                "vdnn_conv": Strategy(vdnn_conv, "lowest"),
                                "superneurons": Strategy(superneurons, "lowest"),
                                "capuchin": Strategy(capuchin, "lowest"),
                                "lms": Strategy(lms, "lowest"), "openai": Strategy(openai, "lowest"),
                                "rotor": Strategy(rotor, "lowest")}
"""Every policy by the name that `memory=` takes."""

__all__ = ["POLICIES", "Candidate", "Evaluation", "Policy", "Problem", "Strategy", "judge", "place_homes"]
