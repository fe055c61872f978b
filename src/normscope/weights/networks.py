"""Several networks in one checkpoint, told apart by names: actor and critic, generator and discriminator.

A pair of such words among the first parts of the names, or one word that never names a part of the
network around it (`discriminator`, `teacher`), makes each of them a component with totals of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from normscope.anatomy import unwrapped

REST = "model"
"""The component of the tensors that belong to none of the named networks."""

_NUMBERED = r"(?:_?(?:\d+|[abAB]))?"
# Each row is a family; two different words of one family in one checkpoint are two networks.
FAMILIES: tuple[tuple[str, ...], ...] = (
    (
        r"(?:soft_|target_|old_)?(?:actor|pi|policy)(?:_critic)?(?:_net|_network|_model|_mean)?(?:_target|_old)?",
        r"action_net",
        r"(?:target_|old_)?(?:critic|q|qf|value|vf|v|reward|world|dynamics)(?:_?function)?"
        rf"(?:_net|_network|_model)?{_NUMBERED}(?:_target|_old)?",
    ),
    (
        r"(?:generators?|gen|netG|netg|G|g|g_net)(?:_(?:net|network|model|running|ema|synthesis))?"
        rf"{_NUMBERED}",
        r"(?:discriminators?|critic|disc|netD|netd|D|d|dis|d_net|mpd|msd|mrd)(?:_(?:net|network|model))?"
        rf"{_NUMBERED}",
    ),
    (r"student(?:_\w+)?", r"teacher(?:_\w+)?"),
    (
        r"(?:online|local|main|eval|base)_?(?:net|network|model|encoder|q|critic|projector|predictor)?",
        r"(?:target|momentum)_?(?:net|network|model|encoder|q|critic|projector)?",
    ),
    (
        r"encoder_q|query_encoder|q_encoder|question_encoder|question_model|base_encoder",
        r"encoder_k|key_encoder|k_encoder|momentum_encoder",
        r"ctx_encoder|context_encoder|passage_encoder|ctx_model|doc_encoder",
    ),
    (
        r"unet|transformer|denoiser|dit|prior|model|diffusion_model|controlnet",
        r"vae|autoencoder|first_stage_model|vqvae|vqgan",
        r"text_encoder(?:_\d)?|cond_stage_model|conditioner|image_encoder",
        r"safety_checker",
    ),
    (
        r"policy_model|actor_model",
        r"ref(?:erence)?_model|ref_policy",
        r"reward_model|rm",
        r"value_model|critic_model",
    ),
    (r"world_model|wm", r"task_behavior|actor|critic", r"expl_behavior"),
)
# Words that name another network even where the rest of the checkpoint has no name.
_ALONE = re.compile(
    r"discriminators?|netD|teacher(?:_model|_net|_network)?|lpips|perceptual_loss|perceptual_net"
    r"|momentum_encoder|encoder_k|ref_model|reference_model|reward_model|first_stage_model|cond_stage_model"
    r"|target_(?:net|network|model)|safety_checker"
)
_LOOSE = ("transformer", "model", "v", "q", "d", "g", "base", "main", "local", "eval", "prior")
"""Words of a family that also name a part of one network: they count only beside a clear one."""
_OUTER = frozenset(
    (
        *("model", "module", "net", "network", "algo", "agent", "policies", "models", "modules", "loss"),
        *("mlp_extractor", "ac", "system", "trainer"),
    )
)


def networks(names: Iterable[str], declared: Sequence[str] = ()) -> dict[str, str]:
    """Name → the network it belongs to, for checkpoints of several networks; empty for one network.

    `declared` are the first parts of names that the checkpoint itself keeps apart
    (`Checkpoint.networks`). Encoder and decoder are two components of one network (`anatomy`).

    >>> networks(["actor.w", "critic.w", "log_std"])
    {'actor.w': 'actor', 'critic.w': 'critic', 'log_std': 'model'}
    """
    listed = list(names)
    found = _declared(listed, declared) or _named(listed)
    components = {name: found.get(name, REST) for name in listed}
    return components if found and len(set(components.values())) > 1 else {}


def _declared(names: Sequence[str], declared: Sequence[str]) -> dict[str, str]:
    if set(declared) <= {"encoder", "decoder"}:
        return {}
    found = {}
    for name in names:
        key = next((key for key in declared if name.startswith(f"{key}.")), None)
        if key is not None:
            found[name] = key
    return found if len({found.get(name) for name in names}) > 1 else {}


def _named(names: Sequence[str]) -> dict[str, str]:
    """The word of each name, if the words together are those of several networks."""
    words = {name: _candidates(name) for name in names}
    present = {word for candidates in words.values() for word in candidates}
    kept = {word for word in present if _ALONE.fullmatch(word)} | _pairs(present)
    clear = {word for word in kept if word.lower() not in _LOOSE}
    if not clear:
        return {}
    return {
        name: word for name, candidates in words.items() if (word := _first(candidates, kept)) is not None
    }


def _first(candidates: Sequence[str], kept: set[str]) -> str | None:
    return next((word for word in candidates if word in kept), None)


def _candidates(name: str) -> list[str]:
    """The first part of a name, or the second one if the first is only a wrapper."""
    parts = re.split(r"[./]", unwrapped(name))[:-1]
    return parts[: 2 if parts and parts[0] in _OUTER else 1]


def _pairs(present: set[str]) -> set[str]:
    """The words of every family of which two different kinds are present."""
    found: set[str] = set()
    for family in FAMILIES:
        kinds = [{word for word in present if re.fullmatch(kind, word)} for kind in family]
        if sum(bool(words) for words in kinds) > 1 and any(
            word.lower() not in _LOOSE for words in kinds for word in words
        ):
            found |= set().union(*kinds)
    return found
