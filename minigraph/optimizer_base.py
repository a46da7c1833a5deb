"""The frame of all optimizers: rates, multipliers, update counts, and the two forms of a rule.

In a graph an optimizer is the *updater* of a program: it adds one node for each parameter, and `control`
fills the scalars of each step. On NDArrays `update` runs the same operator's NumPy definition.
"""
from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, ClassVar

import numpy as np

from . import ndarray
from .base import Builder, Entry, MXNetError, TensorType, is_number_or_none
from .formats import optimizer_states
from .formats.optimizer_states import Key, OptimizerStates
from .loss_scaler import LossScaler
from .lr_scheduler import LRScheduler
from .ndarray import NDArray
from .ops import get_op
from .ops.control import CLIP, FIRST_RATE, GLOBAL_NORM, LOSS_SCALE, RESCALE, control_size
from .ops.op import Workspace
from .optimizer_counts import Counts, CountsByIndex
from .settings import checks_numbers

_registry: dict[str, type[Optimizer]] = {}
_OWN_UPDATE = frozenset(("update", "create_state", "_get_lr", "_get_wd"))
"""Methods by which a subclass updates in its own way, which no operator follows."""


def register(cls: type[Optimizer]) -> type[Optimizer]:
    """Class decorator: make the optimizer known to `create` by its class name in lower case."""
    name = cls.__name__.lower()
    if name in _registry:
        warnings.warn(f"New optimizer {cls.__module__}.{cls.__name__} is overriding existing optimizer "
                      f"{_registry[name].__module__}.{_registry[name].__name__}", stacklevel=2)
    _registry[name] = cls
    return checks_numbers(cls)


def create(name: str | Optimizer, **kwargs: Any) -> Optimizer:
    """An optimizer from its name in any case, with its arguments; an optimizer is returned as it is.

    ValueError names the known ones if there is none of that name, TypeError the arguments it has if it has not these.
    """
    if isinstance(name, Optimizer):
        return name
    if not isinstance(name, str):
        raise TypeError(f"an optimizer is given by its name, or ready made, got {name!r}")
    if name.lower() not in _registry:
        raise ValueError(f"Cannot find optimizer {name}; known are {', '.join(sorted(_registry))}")
    cls = _registry[name.lower()]
    try:
        return cls(**kwargs)
    except TypeError as error:
        raise TypeError(f"optimizer {name}: {error}; its arguments are {', '.join(_arguments(cls))}") from error


def _arguments(cls: type[Optimizer]) -> list[str]:
    """Names of what an optimizer and its bases take, its own first."""
    found = [parameter for base in cls.__mro__[:-1] if "__init__" in vars(base)
             for parameter in list(signature(vars(base)["__init__"]).parameters.values())[1:]]
    return list(dict.fromkeys(p.name for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)))


@checks_numbers
class Optimizer:
    """The base: rates, multipliers and update counts; a subclass gives `update_rule` and `state_names`.

    A subclass may instead give `create_state` and `update` on NDArrays, as MXNet's do; it then has no graph
    form.

    rescale_grad: factor on every gradient. clip_gradient: bound on each element of a rescaled gradient, off
    when None or negative. clip_global_norm: bound on the norm of all rescaled gradients together, graph form
    only. loss_scale: a power of two by which gradients are multiplied on their way through the graph, and divided
    before anything else is done with them; "dynamic" or a LossScaler for one that follows them; graph form only. Then
    a step whose gradients are not all finite changes neither weights nor states, and counts for nothing, neither in
    `num_update` nor in a correction of bias; what forward changes, such as moving statistics, it has changed. All
    gradients wait for that check, which takes memory as clipping the global norm does, and before a step its scalars
    wait for the end of the one before. wd: weight decay, for names ending in _weight or _gamma unless a multiplier says
    otherwise. sym: a symbol whose variables' `__lr_mult__` and `__wd_mult__` are used. begin_num_update: updates made
    before. multi_precision: whether an Updater keeps float32 copies of float16 weights; a Module's are float32. A
    learning rate given together with a scheduler becomes the scheduler's base; with neither it is `DEFAULT_RATE`.
    """

    opt_registry: ClassVar[Mapping[str, type[Optimizer]]] = _registry
    """The optimizers that `create` knows, by name."""
    DEFAULT_RATE = 0.01
    DECAYED_ENDINGS: ClassVar[tuple[str, ...]] = ("_weight", "_gamma")
    """Endings of the parameter names that weight decay applies to."""

    def __init__(self, rescale_grad: float = 1.0, param_idx2name: Mapping[Any, str] | None = None,
                 wd: float = 0.0, clip_gradient: float | None = None, learning_rate: float | None = None,
                 lr_scheduler: LRScheduler | None = None, sym: Any = None, begin_num_update: int = 0,
                 multi_precision: bool = False, clip_global_norm: float | None = None,
                 loss_scale: float | str | LossScaler | None = None) -> None:
        if param_idx2name is not None and not isinstance(param_idx2name, Mapping):
            raise TypeError("param_idx2name should be a dict of param indexes to names.")
        if clip_global_norm is not None and not clip_global_norm > 0:
            raise ValueError(f"clip_global_norm must be above 0, got {clip_global_norm}; for no clipping "
                             f"leave it None")
        self.rescale_grad = rescale_grad
        self.wd = wd
        self.clip_gradient = clip_gradient
        self.clip_global_norm = clip_global_norm
        self.loss_scaler = None if loss_scale is None else LossScaler.of(loss_scale)
        self.multi_precision = multi_precision
        self.idx2name = dict(param_idx2name or {})
        self.lr_scheduler = lr_scheduler
        self.lr = self._initial_rate(learning_rate)
        self.begin_num_update = begin_num_update
        self._num_update = begin_num_update
        self._issued: tuple[tuple[Key, ...], int] | None = None
        self._is_skipped: Callable[[], bool] | None = None
        attributes = sym.attr_dict() if sym is not None else {}
        self._attrs: Mapping[str, Mapping[str, str]] = {
            name: attributes[name] for name in (sym.list_arguments() if sym is not None else ()) if name in attributes}
        self._counts = Counts(begin_num_update)
        self._multipliers: dict[tuple[Key, ...], tuple[tuple[dict, dict], np.ndarray, np.ndarray]] = {}
        self.set_lr_mult({})
        self.set_wd_mult({})

    def _initial_rate(self, learning_rate: float | None) -> float:
        if self.lr_scheduler is None:
            return self.DEFAULT_RATE if learning_rate is None else learning_rate
        if learning_rate is not None:
            self.lr_scheduler.base_lr = learning_rate
        return self.lr_scheduler.base_lr

    # -- rates -----------------------------------------------------------------------------------------------
    @property
    def num_update(self) -> int:
        """Updates so far of the parameter that has had most."""
        self.settle()
        return self._num_update

    @num_update.setter
    def num_update(self, count: int) -> None:
        self.settle()
        self._num_update = count

    @property
    def learning_rate(self) -> float:
        """The present rate, before multipliers."""
        return self.lr if self.lr_scheduler is None else self.lr_scheduler(self.num_update)

    def set_learning_rate(self, lr: float) -> None:
        """Change the rate from the next update on; UserWarning is raised when a scheduler decides it."""
        if self.lr_scheduler is not None:
            raise UserWarning("LRScheduler of the optimizer has already been defined. Note that "
                              "set_learning_rate can mutate the value of the learning rate of the "
                              "optimizer only when the LRScheduler of the optimizer is undefined.")
        self.lr = lr

    def set_lr_mult(self, args_lr_mult: Mapping[Any, float]) -> None:
        """Factors on the rate by parameter name or number, over the `__lr_mult__` of the symbol's arguments; others
        have 1."""
        self.lr_mult: dict[Any, float] = {**self._attributes("__lr_mult__"), **args_lr_mult}

    def set_wd_mult(self, args_wd_mult: Mapping[Any, float]) -> None:
        """Factors on the decay by parameter name (or number), over the symbol's `__wd_mult__`.

        Others have 1 if their name ends in one of DECAYED_ENDINGS, or is not known, and else 0.
        """
        none = {name: 0.0 for name in self.idx2name.values() if not self._decays(name)}
        self.wd_mult: dict[Any, float] = {**none, **self._attributes("__wd_mult__"), **args_wd_mult}

    def _decays(self, key: Key) -> bool:
        return not isinstance(key, str) or key.endswith(self.DECAYED_ENDINGS)

    def _attributes(self, key: str) -> dict[str, float]:
        return {name: float(attrs[key]) for name, attrs in self._attrs.items() if key in attrs}

    def _multiplier_vectors(self, keys: tuple[Key, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Factors on rate and decay by parameter; in the tables its number, where it has one, goes before its name."""
        found, tables = self._multipliers.get(keys), (self.lr_mult, self.wd_mult)
        if found is None or found[0] != tables:
            number: dict[Any, Any] = {name: index for index, name in self.idx2name.items()}
            lr = [self.lr_mult.get(number.get(key), self.lr_mult.get(key, 1.0)) for key in keys]
            wd = [self.wd_mult.get(number.get(key), self.wd_mult.get(key, float(self._decays(key)))) for key in keys]
            copies = dict(self.lr_mult), dict(self.wd_mult)
            found = self._multipliers[keys] = copies, np.array(lr, np.float64), np.array(wd, np.float64)
        return found[1:]

    # -- graph form ------------------------------------------------------------------------------------------
    @property
    def has_graph_form(self) -> bool:
        """Whether `update_rule` says all: no class below the one that defines it has its own `update` or its parts."""
        classes = type(self).__mro__
        rule = next(i for i, c in enumerate(classes) if "update_rule" in vars(c))
        own = next(i for i, c in enumerate(classes) if not _OWN_UPDATE.isdisjoint(vars(c)))
        return classes[rule] is not Optimizer and own >= rule

    @property
    def clips_global_norm(self) -> bool:
        """Whether a norm over all gradients must be known before the first update."""
        return self.clip_global_norm is not None

    @property
    def scales_loss(self) -> bool:
        """Whether gradients are times a loss scale on their way."""
        return self.loss_scaler is not None

    @property
    def loss_scale(self) -> float:
        """The present loss scale, 1 without any."""
        self.settle()
        return 1.0 if self.loss_scaler is None else self.loss_scaler.scale

    @property
    def form(self) -> tuple[Any, bool, bool]:
        """The rule with its constants, which scripts may change between steps, and whether a norm and a check come
        before it."""
        return self.update_rule(), self.clips_global_norm, self.scales_loss

    def update_rule(self) -> tuple[str, dict[str, Any]]:
        """(operator, its constants); its inputs are weight, gradient, states, control and perhaps two factors."""
        raise MXNetError(f"optimizer {type(self).__name__} has no graph form; define update_rule, or update")

    def rule_of(self, name: str) -> tuple[str, dict[str, Any]]:
        """The rule for the parameter of that name: `update_rule`, unless a class makes a difference between them."""
        return self.update_rule()

    def state_names(self) -> tuple[str, ...]:
        """Suffixes of the states kept for each parameter."""
        return ()

    def add_update(self, b: Builder, index: int, name: str, weight: Entry, gradient: Entry, states: Sequence[Entry],
                   control: Entry, scale: Entry | None, unscale: Entry | None) -> None:
        """Add the node that updates the parameter `name`, number `index`, and its states in place."""
        if b.dtype(weight) != np.float32:
            raise MXNetError(f"parameters are updated in float32, and this one has dtype {b.dtype(weight)}; keep "
                             f"parameters in float32 and Cast them in the symbol")
        op, constants = self.rule_of(name)
        for constant, number in constants.items():
            if not is_number_or_none(number):
                raise MXNetError(f"{type(self).__name__}: {constant} is {number!r}; it must be a number")
        factors = [factor for factor in (scale, unscale) if factor is not None]
        b.node(op, [weight, gradient, *states, control, *factors], index=index, has_scale=scale is not None,
               has_unscale=unscale is not None, **constants)

    def control(self, parameters: Sequence[Key]) -> np.ndarray:
        """Count one update of each of n parameters; the step's scalars, float32 (control_size(n),)."""
        keys = tuple(parameters)
        self.settle()
        self._issued = keys, self._num_update
        counts = self._advance(keys)
        lr_mult, wd_mult = self._multiplier_vectors(keys)
        words = np.zeros(control_size(len(keys)), np.float32)
        words[LOSS_SCALE] = self.loss_scale if self.scales_loss else 0.0
        words[RESCALE] = self.rescale_grad
        words[CLIP] = -1.0 if self.clip_gradient is None else self.clip_gradient
        words[GLOBAL_NORM] = self.clip_global_norm or 0.0
        words[FIRST_RATE::2] = self._step_sizes(self.learning_rate * lr_mult, counts)
        words[FIRST_RATE + 1::2] = self.wd * wd_mult
        return words

    def await_check(self, is_skipped: Callable[[], bool]) -> None:
        """Have the step that `control` was last asked for checked when its outcome matters: by `is_skipped`."""
        self._is_skipped = is_skipped

    def settle(self) -> None:
        """Take back the counts of the last step if it was left out, and let the loss scale follow; nothing to wait for
        otherwise, and without a loss scale."""
        if self._is_skipped is None or self.loss_scaler is None:
            return
        is_skipped, self._is_skipped = self._is_skipped, None
        skipped = is_skipped()
        if skipped and self._issued is not None:
            keys, self._num_update = self._issued
            self._counts.take_back(keys)
        self.loss_scaler.settle(skipped)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy has: it waits for no step."""
        self.settle()
        return dict(vars(self))

    def _advance(self, keys: tuple[Key, ...]) -> np.ndarray:
        """Count one update of each parameter; the new counts."""
        counts = self._counts.advance(keys)
        self._num_update = max(self._num_update, int(counts.max(initial=0)))
        return counts

    def _step_sizes(self, rates: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """The rates that the operator is to use at each parameter's update number (1 at the first)."""
        return rates

    def check_graph_form(self) -> None:
        """MXNetError for settings that need the graph form, where updates are made without it."""
        if self.scales_loss:
            raise MXNetError(f"{type(self).__name__}: loss_scale is for updates in graph form, where all gradients are "
                             f"checked before the first of them; train with a Module by an optimizer that has that "
                             f"form, or leave it None")

    # -- what an `update` of a subclass calls, under the names that MXNet's optimizers use ---------------------
    def _update_count(self, index: Any) -> None:
        """Count an update of a parameter, or of each in a list."""
        several: Sequence[Key] = index if isinstance(index, (list, tuple)) else (index,)
        for each in several:
            self._advance((self.idx2name.get(each, each),))

    def _get_lr(self, index: Key) -> float:
        """The present rate of a parameter, with its multiplier."""
        return float(self.learning_rate * self._multiplier_vectors((self.idx2name.get(index, index),))[0][0])

    def _get_wd(self, index: Key) -> float:
        """The decay of a parameter, with its multiplier."""
        return float(self.wd * self._multiplier_vectors((self.idx2name.get(index, index),))[1][0])

    @property
    def _index_update_count(self) -> CountsByIndex:
        """Update counts by a parameter's number or name."""
        return CountsByIndex(self._counts, self.idx2name)

    # -- NDArray form ----------------------------------------------------------------------------------------
    def create_state(self, index: Key, weight: NDArray) -> Any:
        """The states of one parameter, zero: None, an NDArray, or a tuple of them."""
        states = tuple(ndarray.zeros(weight.shape, weight.context, weight.dtype) for _ in self.state_names())
        return None if not states else states[0] if len(states) == 1 else states

    def update(self, index: Key, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Update a parameter and its states in place from its gradient of the same shape."""
        if self.clips_global_norm:
            raise MXNetError("clip_global_norm needs all gradients at once, and update sees one; train with "
                             "a Module, or use clip_gradient")
        self.check_graph_form()
        name, constants = self.rule_of(str(self.idx2name.get(index, index)))
        op, states = get_op(name), as_tuple(state)
        changed = [np.array(each.storage.read(), order="C") for each in (weight, *states)]
        gradient = np.ascontiguousarray(grad.storage.read(), changed[0].dtype)
        control = self._control_of(index)
        params = op.Params(index=0, has_scale=False, **constants)
        _compute(op, params, [changed[0], gradient, *changed[1:], control])
        for target, value in zip((weight, *states), changed, strict=True):
            target[:] = value

    def create_state_multi_precision(self, index: Key, weight: NDArray) -> Any:
        """`create_state`; with `multi_precision`, for a float16 weight, (its copy in float32, the states of that)."""
        if not self._has_master(weight):
            return self.create_state(index, weight)
        master = weight.astype(np.float32)
        return master, self.create_state(index, master)

    def update_multi_precision(self, index: Key, weight: NDArray, grad: NDArray, state: Any) -> None:
        """`update`, of the float32 copy where `create_state_multi_precision` made one, which the weight then rounds."""
        if not self._has_master(weight):
            self.update(index, weight, grad, state)
            return
        master, states = state
        self.update(index, master, grad.astype(np.float32), states)
        weight[:] = master.astype(weight.dtype)

    def _has_master(self, weight: NDArray) -> bool:
        return self.multi_precision and weight.dtype == np.float16

    def _control_of(self, index: Key) -> np.ndarray:
        """The scalars of one parameter's update, with what `_get_lr` and `_get_wd` of a subclass say."""
        key = self.idx2name.get(index, index)
        words = self.control((key,))
        rate, counts = np.array([self._get_lr(index)]), np.array([self._counts[key]])
        words[FIRST_RATE:FIRST_RATE + 2] = self._step_sizes(rate, counts)[0], self._get_wd(index)
        return words

    # -- going on after a stop -------------------------------------------------------------------------------
    def export_states(self, arrays: Mapping[Key, Sequence[np.ndarray]],
                      random_step: int | None = None) -> bytes:
        """The bytes of a states file with the update counts and these arrays by parameter."""
        held = {key: tuple(values) for key, values in arrays.items()}
        name = type(self).__name__.lower()
        self.settle()
        scale = None if self.loss_scaler is None else self.loss_scaler.state()
        return optimizer_states.dumps(
            OptimizerStates(name, self.num_update, self._counts.as_dict(), held, random_step, scale))

    def import_states(self, data: bytes) -> OptimizerStates:
        """Take over the update counts of a states file, and its loss scale where both have one that is dynamic;
        MXNetError when another optimizer wrote it."""
        states = optimizer_states.loads(data)
        if states.optimizer != type(self).__name__.lower():
            raise MXNetError(f"these states were saved by the optimizer {states.optimizer!r} and are loaded "
                             f"into {type(self).__name__.lower()!r}; create the optimizer that saved them")
        if self.loss_scaler is not None and states.loss_scale is not None:
            self.loss_scaler.restore(states.loss_scale)
        self._is_skipped = self._issued = None
        self._counts = Counts(self.begin_num_update, states.counts)
        self._num_update = states.num_update
        return states


Optimizer.register = staticmethod(register)  # type: ignore[attr-defined]
Optimizer.create_optimizer = staticmethod(create)  # type: ignore[attr-defined]


def as_tuple(state: Any) -> tuple[NDArray, ...]:
    """The arrays of an optimizer's state of one parameter."""
    if isinstance(state, (tuple, list)):
        return tuple(array for each in state for array in as_tuple(each))
    return () if state is None else (state,)


def _compute(op: Any, params: Any, ins: list[np.ndarray]) -> None:
    """Run an operator that changes some of its inputs, outside of a plan."""
    outs = [ins[source] for source, _ in sorted(op.mutates(params), key=lambda pair: pair[1])]
    types = [[TensorType(array.shape, array.dtype) for array in arrays] for arrays in (ins, outs)]
    workspace = np.empty(op.algorithms(params, *types)[0].workspace_bytes, np.uint8)
    with np.errstate(all="ignore"):
        op.compute(params, ins, outs, Workspace(workspace))
