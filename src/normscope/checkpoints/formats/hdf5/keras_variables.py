"""What Keras calls the variables of a layer, which its files only number: told by class or by shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from normscope.checkpoints.formats.hdf5.hdf5_tree import Hdf5Array

_KERNEL, _GAIN, _CELL = ("kernel", "bias"), ("gamma", "beta"), ("kernel", "recurrent_kernel", "bias")
_SEPARABLE = ("depthwise_kernel", "pointwise_kernel", "bias")
_STATISTICS = ("moving_mean", "moving_variance")
_VARIABLES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("dense", "einsum_dense", "depthwise_conv1d", "depthwise_conv2d"), _KERNEL),
    **dict.fromkeys((f"conv{n}d{kind}" for n in (1, 2, 3) for kind in ("", "_transpose")), _KERNEL),
    **dict.fromkeys(("separable_conv1d", "separable_conv2d"), _SEPARABLE),
    **dict.fromkeys(("layer_normalization", "group_normalization"), _GAIN),
    **dict.fromkeys(("lstm_cell", "gru_cell", "simple_rnn_cell"), _CELL),
    "embedding": ("embeddings",), "reversible_embedding": ("embeddings", "reverse_embeddings"),
    "position_embedding": ("embeddings",), "rms_normalization": ("scale",), "p_re_lu": ("alpha",),
}  # fmt: skip
_NORM = re.compile(r"(?:.*_)?(?:bn|batch_?norm\w*)(?:_?\d+)?|batch_normalization")
_STATE = re.compile(r"seed_generator|random_seed_generator")
RANDOM, INPUT = "state of a random generator", "statistics of the input"


def class_in_words(name: str) -> str:
    """A class in the spelling of paths: `LayerNormalization` → `layer_normalization`."""
    spelled = re.sub(r"\W+", "", name)
    spelled = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", spelled)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", spelled).lower()


def is_random_state(kind: str, node: str) -> bool:
    """Whether a layer is a generator of random numbers."""
    return any(_STATE.fullmatch(re.sub(r"_\d+$", "", word)) for word in (kind, node))


def variable_names(kind: str, node: str, variables: Sequence[Hdf5Array]) -> list[str]:
    """The names of a layer's variables, in their order; those that nothing tells stay `vars.N`."""
    numbered = [f"vars.{index}" for index in range(len(variables))]
    if kind == "batch_normalization" or (kind not in _VARIABLES and _is_batch_norm(node, variables)):
        gains = list(_GAIN) if len(variables) == 4 else numbered[: max(0, len(variables) - 2)]
        return [*gains, *_STATISTICS][: len(variables)] if len(variables) >= 2 else numbered
    known = _VARIABLES.get(kind, ())
    if variables and "int8" in variables[0].dtype and len(variables) > 1:
        first, *middle = [*(known or _KERNEL), *numbered][: len(variables) - 1]
        return [first, *middle, f"{first}_scale"]
    if known and len(variables) <= len(known) and not (known == _GAIN and len(variables) == 1):
        return list(known[: len(variables)])
    return _by_shapes(variables) or numbered


def _by_shapes(variables: Sequence[Hdf5Array]) -> list[str]:
    if len(variables) != 2:
        return []
    first, second = (each.shape for each in variables)
    if len(first) > 1 and len(second) < len(first) and first[len(first) - len(second) :] == second:
        return list(_KERNEL)
    return list(_GAIN) if len(first) == 1 and first == second else []


def _is_batch_norm(node: str, variables: Sequence[Hdf5Array]) -> bool:
    shapes = {each.shape for each in variables}
    return len(variables) == 4 and len(shapes) == 1 and _NORM.fullmatch(node) is not None
