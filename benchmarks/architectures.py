"""Every kind of transformer against an independent float64 computation, and the model restored.

python -m benchmarks architectures            # prints the table of docs/saturation.md
python -m benchmarks.architectures --write    # puts it there
"""

from __future__ import annotations

import hashlib
import logging
import math
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from benchmarks import reference_float64 as reference
from benchmarks.architecture_case import ArchitectureCase
from benchmarks.hand_written import HAND_WRITTEN
from benchmarks.hub_decoders import DECODERS
from benchmarks.hub_encoders import ENCODERS
from benchmarks.hub_others import RECURRENT, WITH_DECODER_OR_IMAGES
from normscope.network.measuring.joint import SaturationAndHeads, saturation_and_heads
from normscope.network.settling import text_plan

DOCS = Path(__file__).parent.parent / "docs" / "saturation.md"
FAMILIES = {**ENCODERS, **DECODERS, **WITH_DECODER_OR_IMAGES, **RECURRENT}
MARKS = ("<!-- architectures: begin -->", "<!-- architectures: end -->")
NEAR = 1e-6
NEAR_IN_FLOAT32 = 1e-4
USUAL = 2.0**10
FURTHER = 4.0
"""What has converged is the same at this multiple of the scale."""
TOLERANCE = 0.01
HEADER = (
    "architecture",
    "layers",
    "cosines off by",
    "as a large model",
    "argmax, mean, mixed",
    "undecided",
    "c",
    "restored",
)


@dataclass(frozen=True)
class Agreement:
    """One measurement against the reference; `faults` are broken promises, in words."""

    difference: float
    scale: float
    found: SaturationAndHeads
    faults: tuple[str, ...]


@dataclass(frozen=True)
class Checked:
    """What one architecture showed: measured as it is, and as if it were too large for float64 throughout."""

    name: str
    own: Agreement | None = None
    large: Agreement | None = None
    changed: tuple[str, ...] = ()
    error: str = ""
    note: str = ""

    @property
    def faults(self) -> list[str]:
        """All promises that were broken."""
        large = [f"as a large model: {text}" for text in self.large.faults] if self.large else []
        own = list(self.own.faults) if self.own else []
        return [
            *([self.error] if self.error else []),
            *(f"{part} changed" for part in self.changed),
            *own,
            *large,
        ]


def all_names() -> list[str]:
    """The names of all architectures, in the order of the table."""
    return [*FAMILIES, *HAND_WRITTEN]


def build(name: str) -> ArchitectureCase:
    """One of the cases, with its model in training mode but for one module, and a hook of the user's."""
    seed = 1 + all_names().index(name)
    case = FAMILIES[name].build(name, seed) if name in FAMILIES else HAND_WRITTEN[name](name, seed)
    case.model.train()
    inner = [module for module in case.model.modules() if module is not case.model]
    inner[0].eval()
    inner[-1].register_forward_hook(lambda *_: None)
    return case


def fingerprint(model: nn.Module) -> dict[str, Any]:
    """All that a measurement must leave as it was."""

    def digest(tensor: Tensor) -> tuple[str, torch.dtype, int]:
        content = tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        return hashlib.sha256(content).hexdigest(), tensor.dtype, tensor.data_ptr()

    return {
        "parameters": {name: (digest(p), p.requires_grad, p.grad) for name, p in model.named_parameters()},
        "buffers": {name: digest(buffer) for name, buffer in model.named_buffers()},
        "training mode": {name: module.training for name, module in model.named_modules()},
        "hooks": {
            name: (*module._forward_hooks, *module._forward_pre_hooks, "forward" in vars(module))
            for name, module in model.named_modules()
        },
        "settings": (
            torch.get_default_dtype(),
            torch.is_grad_enabled(),
            torch.backends.mha.get_fastpath_enabled(),
        ),
    }


def check(name: str) -> Checked:
    """Measure one architecture twice, and compare."""
    case = build(name)
    before = fingerprint(case.model)
    own = agreement(case, NEAR)
    with mock.patch.object(text_plan, "_SMALL", 0.0):
        large = agreement(case, NEAR_IN_FLOAT32)
    after = fingerprint(case.model)
    changed = tuple(part for part in before if before[part] != after[part])
    return Checked(name, own, large, changed, note=case.note)


def agreement(case: ArchitectureCase, near: float) -> Agreement:
    """Measure a model, and compare with the reference at the same scale and at others."""
    found = saturation_and_heads(case.model, [case.inputs])
    scale, last = found.saturation.scale, found.saturation.scales[-1]
    soft, hard = reference.observe(case, 1.0), reference.observe(case, scale)
    true = reference.cosines(case, soft, hard)
    difference, faults = compare_layers(found, true, near, bool(case.says))
    types = [reference.head_types(case, soft, hard)]
    if scale > USUAL:  # there even float64 breaks ties by rounding
        types.append(reference.head_types(case, soft, reference.observe(case, USUAL)))
    faults += head_faults(case, found, types)
    if last >= FURTHER * scale:  # otherwise precision, or the numbers, end before
        harder = reference.head_types(case, soft, reference.observe(case, FURTHER * scale))
        faults += changes(found, true, reference.cosines(case, soft, reference.observe(case, last)), harder)
    faults += [f"it does not say: {word}" for word in case.says if word not in " ".join(found.messages)]
    return Agreement(difference, scale, found, tuple(faults))


def changes(
    found: SaturationAndHeads,
    true: dict[str, float],
    further: dict[str, float],
    types: dict[tuple[str, int], str],
) -> Iterator[str]:
    """Layers and heads that are said to have converged, and are others at a larger scale."""
    for layer in found.saturation.layers:
        if layer.converged and not abs(further[layer.module] - true[layer.module]) <= TOLERANCE:
            yield f"{layer.module} is said to have converged, and changes above {layer.scale:g}"
    for head in found.heads.heads:
        if head.converged and types[head.module, head.head] != head.type:
            yield f"{head.module}, head {head.head} is said to have converged, and changes"


def compare_layers(
    found: SaturationAndHeads, true: dict[str, float], near: float, broken: bool
) -> tuple[float, list[str]]:
    """The largest difference of a cosine, and layers that are missing, too many or wrong."""
    own = {layer.module: layer.cosine for layer in found.saturation.layers}
    faults = [f"layers differ: {sorted(own)} and {sorted(true)}"] if set(own) != set(true) else []
    largest = 0.0
    for module in own.keys() & true.keys():
        if math.isnan(own[module]) and math.isnan(true[module]) and broken:
            continue  # the model itself gives NaN, and must say so
        difference = abs(own[module] - true[module])
        largest = max(largest, difference if math.isfinite(difference) else math.inf)
        if not difference <= near:
            faults.append(f"{module}: cosine {own[module]:.9f}, in float64 {true[module]:.9f}")
    return largest, faults


def head_faults(
    case: ArchitectureCase, found: SaturationAndHeads, true: list[dict[tuple[str, int], str]]
) -> Iterator[str]:
    """Heads that are missing, too many, or of another type than in float64."""
    own = {(head.module, head.head): head.type for head in found.heads.heads}
    if not case.attention:
        if own or not any("not visible" in text for text in found.messages):
            yield f"heads should be said to be not visible; got {len(own)} of them"
        return
    if set(own) != set(true[0]):
        yield f"heads differ: {sorted(own)} and {sorted(true[0])}"
    for key in own.keys() & true[0].keys():
        kinds = [types[key] for types in true]
        if own[key] not in ("undecided", *kinds):
            yield f"{key[0]}, head {key[1]}: {own[key]}, in float64 {kinds[0]}"


def row(result: Checked) -> tuple[str, ...]:
    """The row of the table."""
    name = f"{result.name} ({result.note})" if result.note else result.name
    if result.own is None or result.large is None:
        return name, "does not run", *["–"] * (len(HEADER) - 2)
    counts = result.own.found.heads.count()
    seen = ", ".join(str(counts[kind]) for kind in ("argmax", "mean", "mixed"))
    heads = (seen, str(counts["undecided"])) if any(counts.values()) else ("not visible", "–")
    differences = [
        f"{each.difference:.0e}" if each.difference else "0" for each in (result.own, result.large)
    ]
    power = f"2^{round(math.log2(result.own.scale))}"
    restored = "NO" if result.changed else "yes"
    return name, str(len(result.own.found.saturation.layers)), *differences, *heads, power, restored


def table(results: list[Checked]) -> str:
    """The table as Markdown."""
    lines = [HEADER, ("---",) * len(HEADER), *map(row, results)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def run_all(names: list[str] | None = None) -> list[Checked]:
    """Check the architectures; one that cannot be measured at all is a fault of its own."""
    results = []
    logging.getLogger("transformers").setLevel(logging.ERROR)
    for name in names or all_names():
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                result = check(name)
            except Exception as error:
                lines = str(error).strip().splitlines() or [""]
                result = Checked(name, error=f"does not run: {type(error).__name__}: {lines[0]}")
        print(f"{name}: {time.perf_counter() - started:.1f} s", *result.faults, sep="\n    ", file=sys.stderr)
        results.append(result)
    return results


def write(text: str) -> None:
    """Put the table between its marks in docs/saturation.md."""
    page = DOCS.read_text()
    head, tail = page.split(MARKS[0])[0], page.split(MARKS[1])[1]
    DOCS.write_text(f"{head}{MARKS[0]}\n\n{text}\n\n{MARKS[1]}{tail}")


def main(*options: str) -> None:
    text = table(run_all([option for option in options if not option.startswith("--")]))
    if "--write" in options:
        write(text)
    print(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
