"""Mixed runs, checkpoints off the path and exchanged labels, from the path of the parameters alone.

Suspicion comes from the sums of neighbouring checkpoints. Where the weights are at
hand, the distance of two further checkpoints decides (`Path.between`): training never
comes back, so θ of k + 1 nearer to that of k − 1 than θ of k means that k is foreign.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from normscope.weights.audit.findings import Finding, listed, sureness
from normscope.weights.audit.nearness import alone, exchanged
from normscope.weights.audit.path import (
    LARGER,
    Path,
    break_ratio,
    broken_links,
    ratio_to_neighbours,
    spikes,
)

FEWEST = 4  # checkpoints that can show anything
EXCURSION = 1.5  # times the largest neighbour: worth a read of the checkpoints on either side
NEARER = 0.6  # of a squared distance: these two belong together, what lies between does not
SPIKE = 4.0  # times the largest change of log‖θ‖ nearby
LEAST_SPIKE = 0.005  # of the norm: less is no outlier however smooth the others are
UNRELATED = 0.3  # cosine below this: little in common with the checkpoint before
REMEMBERED = 0.1  # of the first checkpoint: by how much two alternating runs differ at least
FURTHER = 4  # checkpoints back, to tell runs that parted late
SHORT = 0.1  # of the squared move: a shorter way behind is undone by chance
UNDONE = 0.6  # share of the past that a broken link throws away
ALTERNATING = 0.1  # median share of a move that points back, from where on alternation is looked for


def find_breaks(path: Path) -> list[Finding]:
    """All findings about a path."""
    if len(path) < FEWEST:
        return []
    alternating = _alternating(path)
    if alternating:
        return alternating
    swapped = exchanged(path)
    places = {step for finding in swapped for step in finding.steps}
    off = {k: f for k, f in _off_path(path) if not places & set(f.steps)}
    known = {*off, *(k for k, step in enumerate(path.steps.tolist()) if step in places)}
    links = {j: r for j, r in broken_links(path).items() if not {j, j - 1} & known and _forgets(path, j)}
    found = [*swapped, *_mixed(path, links), *off.values()]
    named = {step for finding in found for step in finding.steps}
    return [*found, *(f for f in _norm_outliers(path, known) if not named & set(f.steps))]


def _off_path(path: Path) -> list[tuple[int, Finding]]:
    """Checkpoints that one link leads to and the next leads back from."""
    found = []
    least = LARGER if path.between is None else EXCURSION
    pairs = {k: r for k in range(1, len(path) - 1) if (r := _excursion(path, k)) >= least}
    pairs |= {k: _excursion(path, k) for k in alone(path)}
    for k, ratio in pairs.items():
        if any(ratio < pairs.get(other, 0) for other in (k - 1, k + 1)):
            continue  # the neighbour of a worse one
        finding = _excursion_finding(path, k, ratio)
        if finding is not None:
            found.append((k, finding))
    return found


def _excursion(path: Path, k: int) -> float:
    pair = {k, k + 1}
    there = ratio_to_neighbours(path.moved, path.lengths, k, pair)
    return min(there, break_ratio(path, k + 1, pair)) if there == there else 0.0


def _excursion_finding(path: Path, k: int, ratio: float) -> Finding | None:
    there, back = float(path.moved[k]), float(path.moved[k + 1])
    numbers = {"ratio": ratio, "moved_there": there**0.5, "moved_back": back**0.5}
    sure = (0.9 if _stands_out(path, k) else 0.4) * sureness(ratio, LARGER)
    shortcut = ""
    if path.between is not None:
        apart = path.between(k - 1, k + 1)
        if apart > NEARER * min(there, back):
            return None
        sure = max(sure, 0.95)
        numbers["apart"] = apart**0.5
        shortcut = f", while the checkpoints on either side are {apart**0.5:.4g} apart"
    step = int(path.steps[k])
    evidence = (
        f"step {step} lies off the path: the weights move {there**0.5:.4g} to it and {back**0.5:.4g} back"
        f"{shortcut}"
    )
    if ratio >= 1:
        evidence += f"; squared, that is {ratio:.3g} times the largest move nearby"
    return Finding("outlier", (step,), evidence, sure, numbers)


def _stands_out(path: Path, k: int) -> bool:
    """Whether the checkpoint is farther from the first one than its neighbours are, by much of the move."""
    away = path.gathered[0]  # of link j: at checkpoint j − 1
    if k + 2 >= len(path) or not np.isfinite(away[k : k + 3]).all():
        return False
    return bool(away[k + 1] - max(away[k], away[k + 2]) > 0.3 * min(path.moved[k], path.moved[k + 1]))


def _mixed(path: Path, links: dict[int, float]) -> list[Finding]:
    """Segments between broken links, sorted into runs; a run of one checkpoint is an outlier."""
    first = _unrelated_start(path)
    if not links:
        return first
    cuts = sorted(links)
    segments = [range(a, b) for a, b in pairwise([0, *cuts, len(path)])]
    runs = _gather(path, segments)
    largest = max(runs, key=len)
    ratio = min(links.values())
    found = []
    for run in runs:
        if run is largest:
            continue
        steps = tuple(int(path.steps[i]) for i in run)
        kind = "mixed-runs" if len(run) > 1 else "outlier"
        found.append(
            Finding(kind, steps, _mixed_evidence(path, steps, cuts), *_mixed_numbers(path, cuts, ratio))
        )
    return found


def _forgets(path: Path, j: int) -> bool:
    """Whether a broken link undoes the past rather than shrinking it, as strong weight decay does.

    Of the way δ from checkpoint i to j − 1, the link undoes the share (1 − q)/2, with
    q = (‖θⱼ − θᵢ‖² − ‖Δ‖²)/‖δ‖²: nothing in a walk, 1 where the runs differ. The way
    from the first checkpoint is known; a shorter one shows runs that parted late.
    """
    ways = [(u[j], g[j]) for u, g in zip(path.undone, path.gathered, strict=True)]
    if path.between is not None and j > FURTHER:
        way = path.between(j - FURTHER, j - 1)
        ways.append(((way - path.between(j - FURTHER, j) + path.moved[j]) / 2, way))
    return any(way > SHORT * path.moved[j] and undone >= UNDONE * way for undone, way in ways)


def _mixed_evidence(path: Path, steps: Sequence[int], cuts: Sequence[int]) -> str:
    j = cuts[0]
    inside = np.delete(path.moved, [0, *cuts])
    verb = "does" if len(steps) == 1 else "do"
    return (
        f"{listed(steps)} {verb} not continue the others: from step {path.steps[j - 1]} to {path.steps[j]} "
        f"the cosine is {path.cosine(j):.4f} and the weights move {path.moved[j] ** 0.5:.4g}, against "
        f"{np.max(inside) ** 0.5:.4g} at most on any other link; that move undoes the path before it"
    )


def _mixed_numbers(path: Path, cuts: Sequence[int], ratio: float) -> tuple[float, dict[str, float | int]]:
    numbers: dict[str, float | int] = {
        "ratio": ratio,
        "breaks": len(cuts),
        "boundary": int(path.steps[cuts[0]]),
    }
    return sureness(ratio, path.suspicious), numbers


def _gather(path: Path, segments: Sequence[range]) -> list[list[int]]:
    """Segments that continue each other; without distances, every other one."""
    runs: list[list[int]] = []
    for number, segment in enumerate(segments):
        home = next((run for run in runs if _continues(path, run, segment, number, segments)), None)
        if home is None:
            runs.append(list(segment))
        else:
            home.extend(segment)
    return runs


def _continues(path: Path, run: list[int], segment: range, number: int, segments: Sequence[range]) -> bool:
    if run[-1] == segment[0] - 1:
        return False
    if path.between is None:
        return number >= 2 and run[-1] == segments[number - 2][-1]
    return path.between(run[-1], segment[0]) < NEARER * float(path.moved[segment[0]])


def _unrelated_start(path: Path) -> list[Finding]:
    """A first checkpoint that has nothing in common with the second, though training was under way."""
    cosine = path.cosine(1)
    ratio = ratio_to_neighbours(path.moved, path.lengths, 1)
    early = path.steps[0] < path.lengths[1]
    if early or not (cosine < UNRELATED and ratio >= 2 * LARGER):
        return []
    evidence = (
        f"step {path.steps[0]} does not lead to step {path.steps[1]}: their cosine is {cosine:.4f} "
        f"and the squared move is {ratio:.3g} times the largest nearby"
    )
    return [Finding("outlier", (int(path.steps[0]),), evidence, sureness(ratio, LARGER), {"ratio": ratio})]


def _norm_outliers(path: Path, known: set[int]) -> list[Finding]:
    logs = np.log(np.maximum(path.sumsq, 1e-300)) / 2
    found = []
    for k, ratio in enumerate(spikes(logs, known)):
        around = (logs[k - 1] + logs[(k + 1) % len(logs)]) / 2
        size = float(np.expm1(logs[k] - around))
        if abs(ratio) >= SPIKE and abs(size) >= LEAST_SPIKE:
            step = int(path.steps[k])
            evidence = (
                f"the norm at step {step} is {np.exp(logs[k]):.6g}, {size:+.2%} off its neighbours' "
                f"{np.exp(around):.6g}: {abs(ratio):.3g} times the largest change nearby"
            )
            numbers = {"ratio": abs(float(ratio)), "relative": size}
            found.append(Finding("outlier", (step,), evidence, sureness(abs(float(ratio)), SPIKE), numbers))
    return found


def _alternating(path: Path) -> list[Finding]:
    """Two runs whose checkpoints take turns: every second one is nearer than the next."""
    turns = _taking_turns(path)
    if turns is not None:
        return [turns]
    moving = [j for j in range(2, len(path)) if path.moved[j] > 0]
    if path.between is None or len(moving) < 3:
        return []
    shares = [float(np.median(np.nan_to_num(u[moving]) / path.moved[moving])) for u in path.undone]
    if max(shares) < ALTERNATING:
        return []
    places = sorted({moving[len(moving) // 2], moving[len(moving) * 3 // 4], moving[-1]})
    nearer = [path.between(j - 2, j) / path.moved[j] for j in places]
    if max(nearer) >= NEARER:
        return []
    steps = tuple(int(step) for step in path.steps[1::2])
    evidence = (
        f"every second checkpoint belongs to another run ({listed(steps)}): a checkpoint is nearer to the "
        f"one before the last than to the last, at {max(nearer) ** 0.5:.2f} of its distance or less"
    )
    return [Finding("mixed-runs", steps, evidence, 0.95, {"nearer": max(nearer) ** 0.5})]


def _taking_turns(path: Path) -> Finding | None:
    """Alternation that the first checkpoint shows: half of the others remember it, half do not."""
    kept = path.dot_init / path.sumsq[0]
    same, other = kept[2::2], kept[1::2]
    if len(path) < 5 or not np.min(same) > np.max(other) + REMEMBERED:
        return None
    steps = tuple(int(step) for step in path.steps[1::2])
    evidence = (
        f"every second checkpoint belongs to another run ({listed(steps)}): at most {np.max(other):.2f} of "
        f"the first checkpoint is left in them, and at least {np.min(same):.2f} in those between"
    )
    numbers = {"kept": float(np.min(same)), "kept_by_others": float(np.max(other))}
    return Finding("mixed-runs", steps, evidence, 0.95, numbers)
