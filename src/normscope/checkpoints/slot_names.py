"""Names of what an optimizer keeps for each parameter, and of what trainers save beside a model."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

OPTIMIZER = "optimizer state"
BESIDE = "optimizer, scheduler or random state"

STEP_KEYS = (
    *("global_step", "step", "iteration", "iter", "global_steps", "iter_num", "num_updates", "steps"),
    *("train_step", "current_step", "batch_idx_train"),
)

_SLOT_PARTS = re.compile(
    r"(?:param_)?(?:max_)?exp_avgs?(?:_sq)?(?:_row|_col|_diff|_slow|_fast|_hat)?|exp_inf|momentum_buffers?"
    r"|square_avg|acc_delta|grad_avg|acc_grad|param_groups|optimizer_slot|\.?OPTIMIZER_SLOT"
    r"|fp32_(?:flat_)?groups(?:_flat)?|fp32_from_(?:fp16|bf16)\w*|fp32_from_float16_groups"
    r"|single_partition_of_fp32_groups"
    r"|base_optimizer_state|master_(?:weights?|params?|parameters)|fp32_(?:params?|master\w*)"
    r"|(?:adam|lamb|adagrad)_[mv]|Adam(?:_\d+)?|(?:Adam|Adafactor|RMSProp|Adagrad|Momentum|Ftrl)(?:W|_\d+)?"
    r"|.*_slot_v[cr]?|.*_slot_m|preconditioners?|inv_preconditioners?|factor_matrices"
)
_SURE_KEYS = re.compile(
    r"optimi[sz]ers?|optims?|opts?|opt_states?|optimi[sz]er_states?|optim_states?|optimi[sz]er_state_dicts?"
    r"|optim_state_dicts?|optimi[sz]ers?_states?_dicts?",
    re.IGNORECASE,
)
_LOOSE_KEYS = re.compile(
    r"(?:.*_)?(?:optims?|optimi[sz]ers?|opts?)(?:_.*|\d*)|.*optimi[sz]ers?(?:_.*)?|(?:optim|opt)[A-Z]\w*",
    re.I,
)
_OTHER_STATE = re.compile(
    r"(?:lr_?)?sched(?:uler)?s?(?:_.*)?|lr_schedulers?(?:_.*)?|.*_(?:lr_)?scheduler|(?:grad_|fp16_|loss_)?scaler"
    r"(?:_.*)?|amp|.*rng_states?(?:_.*)?|random_states?|callbacks|loops|rng",
    re.IGNORECASE,
)
_WEIGHT_LIKE = re.compile(r"(?:weight|bias)(?:_\w+)?|kernel|embedding|scale|gamma|beta|w|b", re.IGNORECASE)
_MOMENTS = frozenset(("mu", "nu", "m", "v", "trace", "state", "velocity", "momentum", "v_row", "v_col"))
_SEPARATOR = re.compile(r"[./]")


@lru_cache(maxsize=1 << 16)
def is_slot(name: str) -> bool:
    """Whether a part of the name is one that only optimizers use, or the name begins with an optimizer's key.

    >>> is_slot("g_optim.state.0.exp_avg"), is_slot("optim_net.weight")
    (True, False)
    """
    parts = _SEPARATOR.split(name)
    if any(_SLOT_PARTS.fullmatch(part) for part in parts):
        return True
    if len(parts) < 2 or not _SURE_KEYS.fullmatch(parts[0]):
        return False
    moments = "state" in parts[0].lower() or any(part in _MOMENTS for part in parts[1:])
    return moments or not _like_weight(parts[-1])


def slot_groups(names: Iterable[str]) -> list[str]:
    """Names that belong to an optimizer because others beside them do.

    An optimizer's `state.3.sum` says nothing by itself; with `param_groups` or `exp_avg` under
    the same first key, it does.
    """
    listed = [(name, _SEPARATOR.split(name)) for name in names]
    roots = {_root(parts) for name, parts in listed if is_slot(name)} - {()}
    if not roots:
        return []
    return [name for name, parts in listed if not is_slot(name) and _root(parts) in roots]


def is_beside_model(key: str) -> bool:
    """Whether a key names what trainers save beside a model: optimizer, scheduler, random state, step."""
    return key in STEP_KEYS or any(p.fullmatch(key) is not None for p in (_SURE_KEYS, _OTHER_STATE))


def is_sure_optimizer(key: str) -> bool:
    """Whether a key names an optimizer, such as `optimizer_state_dict`."""
    return _SURE_KEYS.fullmatch(key) is not None


def may_be_optimizer(key: str) -> bool:
    """Whether a key could be an optimizer's, such as `g_optim`; the content decides."""
    return _LOOSE_KEYS.fullmatch(key) is not None


def is_other_state(key: str) -> bool:
    """Whether a key names a scheduler, a gradient scaler, or the state of a random generator."""
    return _OTHER_STATE.fullmatch(key) is not None


def _root(parts: list[str]) -> tuple[str, ...]:
    """The parts up to the one that names an optimizer, or up to `state` and a number; () for neither."""
    for i, part in enumerate(parts[:-1]):
        if _LOOSE_KEYS.fullmatch(part):
            return tuple(parts[: i + 1])
        if part == "state" and parts[i + 1].isdigit():
            return tuple(parts[:i]) or ("state",)
    return ()


def _like_weight(part: str) -> bool:
    return _WEIGHT_LIKE.fullmatch(part) is not None
