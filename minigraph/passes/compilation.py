"""What is handed from pass to pass: one typed record that fills up, from a symbol's graph to a verified plan."""
from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..base import Algorithm, Builder, Entry, MXNetError, parse_bytes
from ..graph import Graph
from ..memory.layout import GRADIENT, OF, PersistentLayout
from ..memory.policies import POLICIES, SEARCHES, Candidate
from ..memory.schedule import Schedule
from ..ops.choices import AlgorithmChoices, FusionChoices, LayoutChoices
from ..plan.plan import Extent, Plan

if TYPE_CHECKING:
    from .schedule import Offers

MEMORY_MODES = ("plain", "inplace", "naive")
"""`naive`: every tensor has bytes of its own; `inplace`: outputs may take over dying inputs, nothing else is reused;
`plain`: in-place sharing and reuse of dead bytes."""
MIRROR = "mirror"
"""As `plain`, and what the network marks with `force_mirroring` runs again in backward."""
MODES = (*MEMORY_MODES, MIRROR, *POLICIES)
"""Everything that `memory=` takes."""
PROGRAMS = ("step", "train", "eval", "update")
"""`step`: forward, backward and updates as one; `train`: forward and backward, with visible gradients; `eval`: forward
in evaluation form; `update`: the optimizer's update from visible gradients."""


class IgnoredMarksWarning(UserWarning):
    """A network is marked, and the memory mode that was asked for does not look at marks."""


@dataclass(frozen=True)
class MemoryChoice:
    """What a user says of memory: a mode or policy, bounds in bytes of the arenas and of what is swapped out, how far
    `auto` looks, one of SEARCHES, and into how many slices the batch is cut."""

    memory: str
    budget_bytes: int | None
    host_budget_bytes: int
    swap_space: str
    search: str = "default"
    slices: int = 1

    @classmethod
    def parse(cls, memory: str | None, budget: int | str | None, host_budget: int | str | None,
              disk: str | None, search: str = "default", slices: int = 1, marked: bool = False) -> MemoryChoice:
        """Defaults: `plain` without a budget, or `mirror` for a network that is `marked`, and `auto` with one; no host
        memory; all of a disk that is named. Any other choice for a marked network warns that its marks do nothing.

        MXNetError for what is no byte count, and for what is no number of slices.
        """
        if isinstance(slices, bool) or not isinstance(slices, (int, np.integer)) or slices < 1:
            raise MXNetError(f"slices={slices!r}: the batch can be cut into a whole number of slices, one or more")
        host_bytes = _bytes_of("host_budget", host_budget)
        if host_bytes is None:
            host_bytes = 0 if disk is None else UNBOUNDED
        chosen = memory or ("auto" if budget is not None else MIRROR if marked else "plain")
        if marked and chosen != MIRROR:
            warnings.warn(f"memory={chosen!r}: the network is marked with force_mirroring, or by "
                          f"MXNET_BACKWARD_DO_MIRROR, and {chosen} does not look at marks; leave memory= and budget= "
                          f"out, or give memory='{MIRROR}', to go by them", IgnoredMarksWarning, stacklevel=4)
        return cls(chosen, _bytes_of("budget", budget), host_bytes, "host" if disk is None else "file", search,
                   int(slices))

    @property
    def may_move_homes(self) -> bool:
        """Whether parameters and states may be given homes outside the device."""
        policy = POLICIES.get(self.memory)
        return policy is not None and policy.moves_homes and self.budget_bytes is not None \
            and self.host_budget_bytes > 0


UNBOUNDED = 1 << 60
"""Bytes that nothing reaches."""


def _bytes_of(name: str, given: int | str | None) -> int | None:
    """The byte count that a user gave as the argument `name`; what is above UNBOUNDED bounds no more than that does."""
    try:
        return None if given is None else min(parse_bytes(given), UNBOUNDED)
    except ValueError as error:
        raise MXNetError(f"{name}: {error}") from error


class Updater(Protocol):
    """An optimizer in graph form: what the update part of a step is made of."""

    @property
    def clips_global_norm(self) -> bool:
        """Whether gradients are scaled by a norm over all of them."""
        ...

    @property
    def scales_loss(self) -> bool:
        """Whether gradients are times a loss scale on their way, and a step is left out unless all are finite."""
        ...

    @property
    def loss_scale(self) -> float:
        """The present loss scale."""
        ...

    def await_check(self, is_skipped: Callable[[], bool]) -> None:
        """Have the step that has begun checked when its outcome matters: by `is_skipped`."""
        ...

    def settle(self) -> None:
        """Take note of the outcome of the last step."""
        ...

    @property
    def form(self) -> Any:
        """What the nodes of the updates are made by: another value asks for programs to be compiled again."""
        ...

    def state_names(self) -> tuple[str, ...]:
        """Suffixes of the states kept for each parameter ("mom"), each of the parameter's shape."""
        ...

    def add_update(self, b: Builder, index: int, name: str, weight: Entry, gradient: Entry, states: Sequence[Entry],
                   control: Entry, scale: Entry | None, unscale: Entry | None) -> None:
        """Add the node that updates the parameter `name`, number `index`, and its states in place.

        `scale` clips the global norm; `unscale` undoes the loss scale, or by 0 says that nothing is to change.
        """
        ...


@dataclass(frozen=True)
class Request:
    """What a program is compiled for.

    `requests` maps argument names to write, add or null; names in `inputs` are fed before each run and live in the
    transient arena. `memory` is one of MODES. `updater` is needed for `step` and `update`; `skip`
    names arguments that `update` leaves alone, since no output depends on them. `algorithms` gives a device's own ways
    to compute an op; the default are those that the op declares. `fuse` lets operators take over what their readers do,
    where `fuses` (a device's word; by default always) agrees; `encode` lets backward read encodings of values where
    that saves bytes; `fold` puts what follows weights in evaluation into them; `layouts` are those that a device takes
    operands in, by default plain ones alone. `budget_bytes` bounds both arenas together; `machine` names the machine
    model whose times a policy weighs, and `profile` a file of measured times that replace its own where there are any;
    `host_budget_bytes` bounds what may be swapped out, to the `swap_space` "host" or "file"; `search` is one of
    SEARCHES. `slices` cuts the batch into about so many, wherever a tensor of an operator has `slice_bytes` or more:
    they bound memory, and change no bit. `page_bytes` are those of the least pages that the device can map at further
    addresses, 0 where it maps none: under a budget, tensors may then lie in pieces.
    """

    program: str
    requests: Mapping[str, str]
    inputs: frozenset[str] = frozenset()
    memory: str = "plain"
    updater: Updater | None = None
    skip: frozenset[str] = frozenset()
    verify: bool = True
    algorithms: AlgorithmChoices | None = None
    fuse: bool = True
    encode: bool = True
    fold: bool = False
    fuses: FusionChoices | None = None
    layouts: LayoutChoices | None = None
    budget_bytes: int | None = None
    machine: str = "cpu"
    profile: str | None = None
    host_budget_bytes: int = 0
    swap_space: str = "host"
    search: str = "default"
    slices: int = 1
    slice_bytes: int = 0
    page_bytes: int = 0

    def __post_init__(self) -> None:
        if self.program not in PROGRAMS:
            raise MXNetError(f"there is no program {self.program!r}; choose from {', '.join(PROGRAMS)}")
        if self.memory not in (MIRROR, *MEMORY_MODES, *POLICIES):
            raise MXNetError(f"unknown memory mode {self.memory!r}; choose from {', '.join(MODES)}")
        if self.search not in SEARCHES:
            raise MXNetError(f"there is no search {self.search!r}; choose from {', '.join(SEARCHES)}")
        if self.program in ("step", "update") and self.updater is None:
            raise MXNetError(f"the program `{self.program}` holds the optimizer's update; compile it with an optimizer")

    @property
    def scales_loss(self) -> bool:
        """Whether the optimizer asks for a loss scale, and the program is one of training."""
        return self.updater is not None and self.updater.scales_loss and self.program != "eval"


@dataclass(frozen=True)
class Sharing:
    """Which bytes each value lives in: `storage_of[entry]` indexes the storages, which are columns.

    A storage is transient with a lifetime [born, dies) in positions of the schedule, or persistent when
    `persistent[s]` names a tensor of the persistent layout; `on_host[s]` says that it lies in host memory.
    `shares[entry]` is the entry whose bytes this one took over (-1: none), `view[entry]` whether as another name of the
    same value, and `offset[entry]` the byte of the storage at which it begins, which is 0 for all but views. `elided`
    nodes need no instruction.
    """

    storage_of: list[int]
    bytes: list[int]
    born: list[int]
    dies: list[int]
    persistent: list[str | None]
    on_host: list[bool]
    shares: list[Entry]
    view: list[bool]
    offset: list[int]
    elided: frozenset[int]


@dataclass(frozen=True)
class PageMapping:
    """What lies in the mapped arena, by storage and, of workspaces, by node; its offsets are those of its addresses."""

    page_bytes: int
    extents: tuple[Extent, ...]
    storages: frozenset[int]
    workspaces: frozenset[int]


@dataclass
class Compilation:
    """The state of one compilation; a field is None until the pass that provides it has run."""

    request: Request
    symbol_graph: Graph
    layout: PersistentLayout
    graph: Graph | None = None
    parameters: tuple[str, ...] = ()
    without_gradient: tuple[str, ...] = ()
    schedule: Schedule | None = None
    ordered: Graph | None = None
    """The graph that `schedule` orders, before it is written again for it."""
    backward_start: int | None = None
    sharing: Sharing | None = None
    algorithms: list[Algorithm | None] | None = None
    offsets: np.ndarray | None = None
    workspace_offsets: dict[int, int] | None = None
    mapping: PageMapping | None = None
    away: frozenset[str] = frozenset()
    persistent_bytes: int = 0
    home_bytes: int = 0
    transient_bytes: int | None = None
    host_bytes: int = 0
    swapped_bytes: int = 0
    naive_bytes: int | None = None
    lower_bound_bytes: int | None = None
    packing: str = ""
    step_seconds: float = 0.0
    plain_step_seconds: float = 0.0
    recompute_flops: float = 0.0
    plan: Plan | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    tried: Compilation | None = None
    """The compilation in which the passes that carry the chosen schedule out have run, to choose it."""
    packed: tuple[Candidate, Compilation] | None = None
    """The last candidate that packed within the budget, and the compilation in which it did."""
    offers: Offers | None = None
    """What the policy offers, where somebody asked before `schedule` chose."""


@dataclass(frozen=True)
class Pass:
    """One stage: `requires` and `provides` are fields of Compilation. `rewrites` says that it replaces the graph.

    `changes` are further fields that it sets, of a pass that judging a schedule runs, too: what it came to there is
    taken over.
    """

    name: str
    requires: tuple[str, ...]
    provides: tuple[str, ...]
    run: Callable[[Compilation], None]
    rewrites: bool = False
    changes: tuple[str, ...] = ()


def head_gradient_name(output: int) -> str:
    """The name of the input that carries the head gradient of the output of that number."""
    return f"__head_grad_{output}__"


def gradient_name(argument: str) -> str:
    """The name of the persistent gradient of an argument."""
    return f"{argument}{GRADIENT}"


def state_name(argument: str, suffix: str) -> str:
    """The name of an optimizer state of an argument."""
    return f"{argument}{OF}{suffix}"


CONTROL = "__control__"
"""The name of the control buffer."""
UNSCALE = "__unscale__"
"""The name of the state in which a step says what its gradients were multiplied by: 0 when it was left out."""
