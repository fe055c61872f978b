"""Every kind of transformer: layers and heads against an independent float64 computation, and the model restored.

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

import torch
from torch import Tensor, nn

from benchmarks import reference_float64 as reference
from benchmarks.architecture_case import ArchitectureCase
from benchmarks.hand_written import HAND_WRITTEN
from benchmarks.hub_families import FAMILIES
from normscope.network.measuring.joint import SaturationAndHeads, saturation_and_heads
from normscope.network.settling.head_types import HEAD_TYPES, HeadType

DOCS = Path(__file__).parent.parent / "docs" / "saturation.md"
MARKS = ("<!-- architectures: begin -->", "<!-- architectures: end -->")
NEAR = 1e-6
HEADER = ("architecture", "layers", "largest difference", "heads: argmax, mean, mixed", "undecided", "c", "restored")


@dataclass(frozen=True)
class Checked:
    """What one architecture showed; `faults` are broken promises, in words."""

    name: str
    layers: int
    difference: float
    counts: dict[HeadType, int]
    scale: float
    restored: bool
    faults: tuple[str, ...]
    note: str = ""


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
        "settings": (torch.get_default_dtype(), torch.is_grad_enabled(), torch.backends.mha.get_fastpath_enabled()),
    }


def check(name: str) -> Checked:
    """Measure one architecture, and compare."""
    case = build(name)
    torch.manual_seed(0)
    before = fingerprint(case.model)
    found = saturation_and_heads(case.model, [case.inputs])
    after = fingerprint(case.model)
    changed = tuple(f"{part} changed" for part in before if before[part] != after[part])
    soft, hard = reference.observe(case, 1.0), reference.observe(case, found.saturation.scale)
    difference, layer_faults = compare_layers(found, reference.cosines(case, soft, hard), bool(case.says))
    faults = (*changed, *layer_faults, *head_faults(case, found, reference.head_types(case, soft, hard)))
    faults = (*faults, *(f"it does not say: {word}" for word in case.says if word not in " ".join(found.messages)))
    counts = dict(found.heads.count())
    return Checked(
        name, len(found.saturation.layers), difference, counts, found.saturation.scale, not changed, faults, case.note
    )


def compare_layers(
    found: SaturationAndHeads, true: dict[str, float], broken: bool
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
        if not difference <= NEAR:
            faults.append(f"{module}: cosine {own[module]:.9f}, in float64 {true[module]:.9f}")
    return largest, faults


def head_faults(
    case: ArchitectureCase, found: SaturationAndHeads, true: dict[tuple[str, int], str]
) -> Iterator[str]:
    """Heads that are missing, too many, or of another type than in float64."""
    own = {(head.module, head.head): head.type for head in found.heads.heads}
    if not case.attention:
        if own or not any("not visible" in text for text in found.messages):
            yield f"heads should be said to be not visible; got {len(own)} of them"
        return
    if set(own) != set(true):
        yield f"heads differ: {sorted(own)} and {sorted(true)}"
    for key in own.keys() & true.keys():
        if own[key] not in ("undecided", true[key]):
            yield f"{key[0]}, head {key[1]}: {own[key]}, in float64 {true[key]}"


def row(result: Checked) -> tuple[str, ...]:
    """The row of the table."""
    counts = result.counts
    seen = ", ".join(str(counts[kind]) for kind in ("argmax", "mean", "mixed"))
    heads = (seen, str(counts["undecided"])) if any(counts.values()) else ("not visible", "–")
    name = f"{result.name} ({result.note})" if result.note else result.name
    power = f"2^{round(math.log2(result.scale))}"
    difference = "0" if result.difference == 0 else f"{result.difference:.0e}"
    return name, str(result.layers), difference, *heads, power, "yes" if result.restored else "NO"


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
                fault = f"does not run: {type(error).__name__}: {lines[0]}"
                result = Checked(name, 0, math.inf, dict.fromkeys(HEAD_TYPES, 0), 1.0, False, (fault,))
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
