"""Stored tensors that are no parameters, judged by their names and shapes alone.

Two lists: names that only buffers have, and names that may also belong to a parameter. Of the second
kind the content decides (`weights/inventory`), so here they are only suspects.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from functools import lru_cache

from normscope.anatomy import unwrapped
from normscope.checkpoints.slot_names import OPTIMIZER, is_slot

ROTARY, MASK, INDICES = "rotary table", "attention mask", "index buffer"
STATISTICS, SCHEDULE, COUNTER = "running statistics", "noise schedule", "bookkeeping"
QUANTISER = "a quantiser's range"
AVERAGE, FILTER, LOSS, DECAYS = (
    "a running average",
    "a fixed noise or filter",
    "weights of a loss",
    "a table of decays",
)
PIXELS, TRANSFORM = "the mean or spread of the input", "a signal transform"
SCALE, FROZEN_NORM = "a fixed scale", "a frozen batch norm, whose numbers are buffers"
CODEBOOK = "a codebook kept as running means"
ROUTER = "a router's balance, which no gradient trains"
CONSTANTS = frozenset((ROTARY, MASK, INDICES, SCHEDULE, FILTER, LOSS, DECAYS, PIXELS, TRANSFORM, SCALE))
"""Reasons for which a buffer never changes: a tensor of such a name that does is a parameter."""

_SEPARATOR = re.compile(r"[./]")
_OUTPUT = re.compile(r":\d+$")
"""TensorFlow's number of an operation's output, at the end of a variable's name."""
_CUMPROD = r"(?:alphas?_cumprods?|alpha_bars?|alphas?_bar|alpha_hats?)"

# Fullmatched with the last part of a name: only buffers are called this.
_LAST_PARTS: tuple[tuple[str, str], ...] = (
    (r"(?:\w+_)?inv_freqs?(?:_\w+)?", ROTARY),
    (r"freqs_cis|(?:cos|sin|cos_sin)_?cache(?:d)?|cached_(?:cos|sin)|(?:cos|sin)_cached_\w+", ROTARY),
    (r"causal_mask|attn_mask|attention_mask|tril|triu|look_ahead_mask|subsequent_mask", MASK),
    (r"position_ids|pos_ids|token_type_ids|relative_position_index|rel_pos_index", INDICES),
    (r"relative_position_bucket|relative_coords_table|rp_bucket", INDICES),
    (r"running_(?:mean|var|variance|std|count)|num_batches_tracked", "batch statistics"),
    (r"moving_(?:mean|var|variance)", "batch statistics"),
    (rf"(?:sqrt_|log_|one_minus_|recip_|recipm1_|inv_)*{_CUMPROD}(?:_prev|_next)?", SCHEDULE),
    (r"posterior_(?:variance|log_variance_clipped|mean_coef[12])", SCHEDULE),
    (r"lvlb_weights|p2_loss_weights?|alphas_prev|sqrt_recip_alphas?", SCHEDULE),
    (
        r"embed_avg|embedding_avg|_?ema_(?:cluster_size|w|dw|embed\w*|count)|cluster_size|embed_sum",
        STATISTICS,
    ),
    (r"w_avg|latent_avg|dlatent_avg|magnitude_ema", AVERAGE),
    (r"noise_const|(?:resample|up|down)_filter|positional_encoding_gaussian_matrix", FILTER),
    (r"pos_weight|empty_weight", LOSS),
    (r"e_score_correction_bias|balancing_biases|(?:\w+_)?tokens_per_expert", ROUTER),
    (r"(?:weight|bias)_integer|(?:weight|act|bias)_scaling_factor", QUANTISER),
    (r"(?:query|key|diagonal|block)_decay|slope_rate", DECAYS),
    (r"(?:pixel|image|img|imagenet|clip)_(?:mean|std)", PIXELS),
    (r"mel_?(?:filters|basis|fb|W)|hann_window|dct_mat|(?:forward|inverse)_basis", TRANSFORM),
    (r"mup_vector", SCALE),
    (r"implicit_codebook", "the levels of a quantiser"),
)
# Fullmatched with the whole name.
_WHOLE_NAMES: tuple[tuple[str, str], ...] = (
    (r"(?:.*[./])?batch_stats[./].*", "batch statistics"),
    (r"(?:.*[./])?(?:(?:obs|ret|rew)_rms|(?:running|value|input)_mean_std)[./].*", STATISTICS),
    (r"(?:.*[./])?(?:\w*_)?(?:normali[sz]er|cmvn|scaler)[./]_?(?:mean|i?std|var|count|sum)", STATISTICS),
    (r".*noises[./]noise_\d+|.*synthesis[./]input[./](?:transform|freqs|phases)", FILTER),
    (r".*[./](?:mean|var)_ema[./](?:average|hidden|counter)", STATISTICS),
    (r".*parametrizations[./]\w+[./]\d+[./]_[uv]", "a vector of spectral normalisation"),
    (r".*(?:activation_post_process|observer|histogram)\w*[./](?:min|max)_vals?", QUANTISER),
    (r".*(?:activation_post_process|fake_quant|observer)\w*[./](?:histogram|eps|\w+_enabled)", QUANTISER),
    (r".*mel_scale[./]fb|.*spectrogram[./]window|.*i?stft[./]conv_(?:real|imag)[./]weight", TRANSFORM),
    (r".*(?:dino|ibot)\w*[./]center", STATISTICS),
)  # fmt: skip
_LAST, _WHOLE = (
    (
        re.compile("|".join(f"(?:{pattern})" for pattern, _ in rules)),
        [(re.compile(pattern), reason) for pattern, reason in rules],
    )
    for rules in (_LAST_PARTS, _WHOLE_NAMES)
)
_SCALARS = re.compile(
    r"masked_bias|global_step|num_updates|n_averaged|initt?ed|initialized|version|_float_tensor|queue_ptr"
    r"|iterations?|step|steps|num_steps|step_count|decay|ema_decay|save_counter|eps|(?:input|output)_(?:min|max)"
)
_SCALES = re.compile(r"embed(?:ding)?_scale|normalizer|(?:logits?_)?soft_?cap|gradient_clipping")
_BLUR = re.compile(r".*(?:blur|(?:up|down)samples?)(?:\.\d+)?\.kernel")
_LOSS = re.compile(r"(?:.*\.)?(?:criterion|loss|loss_fn|loss_func|loss_function|(?:ce|nll|bce)_loss)\.weight")
_SQUARE_BIAS = re.compile(r"(?:.*[./])?(?:attn|attention|self_attn|self_attention)(?:[./]attention)?[./]bias")

# Searched in the last two parts of a name: what its content may be, to be confirmed.
SUSPECTS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        (
            "mask",
            r"(?:^|_)masks?(?:$|_(?!token|emb|feat|query|proj|pred|head|conv|logit))|^allowed$|^can_see$",
        ),
        ("table", r"(?:^|_)(?:pe|pos|posit\w*|sinus\w*|rope|rotary|freqs?|cos|sin|timing|angles?)(?:$|_|\d)"),
        ("frequencies", r"freq|theta|div_?term|rotary|rope|bands|timescale|omega"),
        ("slopes", r"slope|alibi"),
        (
            "schedule",
            r"alpha|beta|sigma|gamma|timestep|snr|loss_weight|noise|schedule|variance|(?:^|_)(?:bar|hat)$",
        ),
        (
            "indices",
            r"(?:^|_)(?:ids?|idx|index|indices|positions?|arange|grid|coords?|bucket\w*|range)(?:$|_)",
        ),
        (
            "grid",
            r"offset|center|(?:^|_)bins?(?:$|_)|support|atoms|linspace|rbf|(?:^|_)taus?$|quantile|knots|grid",
        ),
        ("identity", r"^_?(?:eye|identity|ident|one_?hot|i)$"),
        ("window", r"window|^win$"),
        ("queue", r"(?:^|_)queue(?:$|_\d+$)|^memory_bank$"),
        ("image", r"mean|std|shift|scale|normali[sz]"),
    )
)


@lru_cache(maxsize=1 << 16)
def parts_of(name: str) -> tuple[str, ...]:
    """The parts of a tensor's name, without the prefixes of wrappers."""
    return tuple(_SEPARATOR.split(_OUTPUT.sub("", unwrapped(name))))


def buffer_by_name(name: str, shape: Sequence[int]) -> str | None:
    """Why a tensor of this name and shape is certainly no parameter; None if it may be one."""
    parts = parts_of(name)
    clean, last = ".".join(parts), parts[-1]
    if math.prod(shape) == 1 and _SCALARS.fullmatch(last):
        return MASK if last == "masked_bias" else COUNTER
    if math.prod(shape) == 1 and _SCALES.fullmatch(last):
        return SCALE
    if len(shape) == 2 and max(shape) <= 12 and _BLUR.fullmatch(clean):
        return FILTER
    if len(shape) == 1 and _LOSS.fullmatch(clean):
        return LOSS
    if len(shape) == 4 and shape[0] == shape[1] == 1 and _SQUARE_BIAS.fullmatch(clean):
        return MASK
    for (any_of, rules), text in ((_LAST, last), (_WHOLE, clean)):
        if any_of.fullmatch(text):
            return next(reason for pattern, reason in rules if pattern.fullmatch(text))
    return OPTIMIZER if is_slot(clean) else None


def buffer_by_siblings(name: str, names: Collection[str]) -> str | None:
    """Why the other tensors of the same module show that this one is no parameter; None if they do not."""
    stem, _, last = name.replace("/", ".").rpartition(".")
    inside = f"{stem}." if stem else ""
    if last[-2:] in ("_u", "_v") and f"{inside}{last[:-2]}_orig" in names:
        return "a vector of spectral normalisation"
    if last.endswith("_mask") and f"{inside}{last[:-5]}_orig" in names:
        return "a pruning mask"
    if (
        last in ("embed", "embedding", "codebook", "weight")
        and f"{inside}cluster_size" in names
        and (f"{inside}embed_avg" in names or f"{inside}embedding_avg" in names)
    ):
        return CODEBOOK
    if last in ("scale", "zero_point") and _observed(inside) and f"{inside}learning_enabled" not in names:
        return QUANTISER if {f"{inside}scale", f"{inside}zero_point"} <= set(names) else None
    return _by_pair(inside, last, names)


# The last part of a name, what must be beside it in the same module, and what it is then.
_PAIRS: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern), partner, reason)
    for pattern, partner, reason in (
        (r"(weight|bias)_eps(?:ilon)?", r"\1_sigma", "the noise of a noisy layer"),
        (r"(u)(\d+)", r"sv\2", "a vector of spectral normalisation"),
        (r"(sv)(\d+)", r"u\2", "a vector of spectral normalisation"),
        (r"(\w*queue\w*)", r"\1_ptr", "a queue of examples"),
        (r"(\w*queue)", r"ptr", "a queue of examples"),
        (r"(expert_bias)", r"tokens_per_expert", ROUTER),
        (r"(expert_bias)", r"local_tokens_per_expert", ROUTER),
        (r"global_(mean)", r"global_invstd", STATISTICS),
        (r"global_(invstd)", r"global_mean", STATISTICS),
    )
)
_MEANS, _SPREADS = ("mean", "running_mean", "_mean"), ("var", "std", "running_var", "_var", "_std")
_COUNTS = ("count", "n", "_count", "running_count")


def _by_pair(inside: str, last: str, names: Collection[str]) -> str | None:
    for pattern, partner, reason in _PAIRS:
        match = pattern.fullmatch(last)
        if match is not None and f"{inside}{match.expand(partner)}" in names:
            return reason
    kinds = (_MEANS, _SPREADS, _COUNTS)
    if any(last in kind for kind in kinds) and all(any(inside + k in names for k in kind) for kind in kinds):
        return STATISTICS  # mean, spread and count in one module
    if last == "center" and any(name.startswith(f"{inside}teacher.") for name in names):
        return STATISTICS
    return None


def may_be_frozen_norm(name: str, names: Collection[str]) -> bool:
    """Whether this is the gain or shift of a batch norm that counts no batches, as in detectors.

    There the gain is a buffer, too; but old versions of torch counted no batches either.
    """
    inside = re.match(r"(?:.*[./])?(?=(?:weight|bias)$)", name)
    if inside is None:
        return False
    beside = [
        f"{inside[0]}{last}" in names for last in ("running_mean", "running_var", "num_batches_tracked")
    ]
    return beside == [True, True, False]


def suspected(name: str) -> frozenset[str]:
    """What a name says its content may be, if it is a buffer: some of the kinds in SUSPECTS."""
    parts = parts_of(name)
    last = [part for part in parts[-2:] if part not in ("weight", "bias", "kernel")]
    return frozenset(kind for kind, pattern in SUSPECTS if any(pattern.search(part) for part in last))


def _observed(inside: str) -> bool:
    return re.search(r"(?:activation_post_process|fake_quant|observer)\w*\.$", inside) is not None
