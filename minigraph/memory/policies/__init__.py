"""Policies: from an ordered graph and a budget to a schedule, one published strategy a file, and `auto`."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .auto import auto
from .capuchin import capuchin
from .lms import lms
from .mirror import mirror
from .openai import openai
from .parameters import place_homes
from .problem import Candidate, Evaluation, Policy, Problem, Slicing, judge
from .rotor import rotor
from .search import FULL_WORK
from .search import candidates as searched
from .slicing import alike, in_slices
from .sublinear import sublinear
from .superneurons import superneurons
from .vdnn import vdnn, vdnn_all, vdnn_conv


@dataclass(frozen=True)
class Strategy:
    """A policy, and which of its candidates is meant where no budget is given: the `fastest` or the `lowest` peak.

    With `moves_homes` parameters and states may be sent away from the device, too; a policy that `combines` weighs
    every other policy's candidates as well when it is asked for a full search. `further` adds candidates for budgets
    that the plain order does not fit, none of them faster than it.
    """

    candidates: Policy
    without_budget: str
    moves_homes: bool = False
    combines: bool = False
    further: Callable[[Problem, list[Candidate], bool], list[Candidate]] = lambda problem, known, free: known

    def offer(self, problem: Problem, free: bool, search: str = "default") -> list[Candidate]:
        """The candidates, with homes placed; `free` says that variables may be sent away.

        With the search `full` also those of all policies, dominated ones too: which of two packs into fewer bytes shows
        only when they are packed.
        """
        offered = _with_homes(problem, self.candidates(problem), free)
        if search == "full" and self.combines:
            offered += _with_homes(problem, judge(problem, searched(problem, FULL_WORK)), False)
            for other in POLICIES.values():
                if other is not self:
                    offered += _with_homes(problem, other.candidates(problem), False)
        return offered


def _with_homes(problem: Problem, candidates: list[Candidate], free: bool) -> list[Candidate]:
    return place_homes(problem, candidates, free) if candidates else []


POLICIES: dict[str, Strategy] = {"auto": Strategy(auto, "fastest", moves_homes=True, combines=True, further=in_slices),
                                "sublinear": Strategy(sublinear, "lowest"),
                                "vdnn": Strategy(vdnn, "lowest"), "vdnn_all": Strategy(vdnn_all, "lowest"),
                                "vdnn_conv": Strategy(vdnn_conv, "lowest"),
                                "superneurons": Strategy(superneurons, "lowest"),
                                "capuchin": Strategy(capuchin, "lowest"),
                                "lms": Strategy(lms, "lowest"), "openai": Strategy(openai, "lowest"),
                                "rotor": Strategy(rotor, "lowest")}
"""Every policy by the name that `memory=` takes."""

MARKED = Strategy(mirror, "lowest")
"""What a network's own marks ask for; it finds nothing by itself, so it is no policy."""

SEARCHES = ("default", "full")
"""How far `auto` looks: at its own candidates, or at those of every policy."""

__all__ = ["MARKED", "POLICIES", "SEARCHES", "Candidate", "Evaluation", "Policy", "Problem", "Slicing", "Strategy",
           "alike", "judge"]
