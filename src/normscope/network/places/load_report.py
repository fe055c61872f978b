"""What a load left out or could not find, and whether the model is still the checkpoint's network."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from normscope.anatomy import unwrapped
from normscope.checkpoints.buffer_names import buffer_by_name
from normscope.errors import ModelError
from normscope.network.places.name_fitting import Shapes
from normscope.words import some

_HEADS = re.compile(
    r"(?:[a-z]\w*\.)?(?:pooler|pooling_layer|lm_head|cls|classifier|pre_classifier|score|predictions|qa_outputs"
    r"|sequence_summary|multiple_choice_head|seq_relationship)\..*"
)
"""Names of heads: near the top, never inside a layer."""
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)|^\d+(?=\.)")


@dataclass(frozen=True)
class LoadReport:
    """What from_pretrained says about a load: parameters not found, stored tensors not used, wrong shapes."""

    missing: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    mismatched: tuple[tuple[str, Sequence[int], Sequence[int]], ...] = ()
    """Name, shape in the checkpoint, shape in the model."""


def missing_body(model: nn.Module, report: LoadReport) -> list[str]:
    """The parameters without which the model is not the checkpoint's network: all but those of heads.

    Buffers are not among them: the model has computed them itself.
    """
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return sorted(name for name in report.missing if name in parameters and not _is_head(name))


def check_load(
    model: nn.Module, report: LoadReport, source: str, shapes: Callable[[], Shapes]
) -> tuple[str, ...]:
    """What to say about a load; ModelError if the model is not the network of the checkpoint.

    `shapes` reads those of the stored tensors, if they are needed.
    """
    if report.mismatched:
        name, stored, expected = report.mismatched[0]
        raise ModelError(
            f"{source} does not fit the model of its config.json: {name!r} has the shape {list(stored)} in "
            f"the checkpoint and {list(expected)} in the model ({len(report.mismatched)} differ in all)"
        )
    if missing := missing_body(model, report):
        raise ModelError(
            f"{source} does not fit the model of its config.json: the checkpoint lacks {some(missing)}, "
            "which would have random values"
        )
    unused = [_without_base(name, model) for name in report.unused]
    _refuse_further_layers(unused, model, source)
    inside = {name.partition(".")[0] for name, _ in model.named_parameters()}
    heads = [name for name in unused if _is_head(name) or name.partition(".")[0] not in inside]
    others = [name for name in unused if name not in heads]
    buffers = _buffers(others, model, shapes) if others else {}
    return tuple(_words(report, heads, buffers, [name for name in others if name not in buffers]))


def _buffers(names: Iterable[str], model: nn.Module, shapes: Callable[[], Shapes]) -> dict[str, str]:
    """Of stored tensors that the model does not use, those that are buffers, and of which kind."""
    known = {_without_base(unwrapped(name), model): shape for name, shape in shapes().items()}
    kinds = {name: buffer_by_name(name, known.get(name, ())) for name in names}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def _words(
    report: LoadReport, heads: Sequence[str], buffers: Mapping[str, str], others: Collection[str]
) -> Iterator[str]:
    if others:
        yield (
            f"the checkpoint has {some(others)}, which the model of its config.json has no place for: what "
            "they do is not measured"
        )
    if heads:
        parts = list(dict.fromkeys(name.partition(".")[0] for name in heads))
        yield f"the checkpoint's head ({some(parts)}) is left out: hidden states are measured"
    if buffers:
        kinds = list(dict.fromkeys(buffers.values()))
        words = "stored buffers are not used, the model computes its own"
        yield f"{words}: {some(list(buffers))} ({some(kinds)})"
    if random := sorted(name for name in report.missing if _is_head(name)):
        yield f"the checkpoint lacks {some(random)}: random values, on which hidden states do not depend"


def _refuse_further_layers(unused: Collection[str], model: nn.Module, source: str) -> None:
    """ModelError if the checkpoint has more layers than the model: a config of another model."""
    kinds = {_NUMBER.sub("#", name) for name, _ in model.named_parameters(remove_duplicate=False)}
    further = sorted(name for name in unused if _NUMBER.search(name) and _NUMBER.sub("#", name) in kinds)
    if further:
        raise ModelError(
            f"{source} has more layers than the model of its config.json, which has no {some(further)}: the "
            "config belongs to another model"
        )


def _is_head(name: str) -> bool:
    return _HEADS.fullmatch(name) is not None


def _without_base(name: str, model: nn.Module) -> str:
    prefix = getattr(model, "base_model_prefix", "")
    return name.removeprefix(f"{prefix}.") if prefix else name
