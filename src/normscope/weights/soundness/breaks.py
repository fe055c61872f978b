"""Find mixed runs, outliers and exchanged labels in the path of the parameters.

The sums of neighbouring checkpoints show what is suspicious. If the weights can be read, the
distance of two other checkpoints decides (`ParameterPath.squared_distance`): training does not
return, so if checkpoints k − 1 and k + 1 are nearer to each other than to k, then k is foreign.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from normscope.remarks import Finding
from normscope.weights.soundness.findings import confidence_from_ratio, listed
from normscope.weights.soundness.nearness import exchanged, isolated
from normscope.weights.soundness.path import (
    LARGER,
    ParameterPath,
    break_ratio,
    broken_links,
    ratio_to_neighbours,
    spikes,
)

FEWEST = 4  # checkpoints, below which nothing can be found
EXCURSION = 1.5  # times the largest neighbour: worth a read of the checkpoints on either side
NEARER = 0.6  # of a squared distance: these two belong together, the checkpoints between them do not
SPIKE = 4.0  # times the largest change of log‖θ‖ nearby
LEAST_SPIKE = 0.005  # of the norm: a smaller spike is not an outlier, however smooth the others are
UNRELATED = 0.3  # a lower cosine means little in common with the checkpoint before
REMEMBERED = 0.1  # least difference between alternating runs in what they keep of the first checkpoint
FURTHER = 4  # checkpoints back, to find runs that separated late
SHORT = 0.1  # of the squared move: a smaller distance may be undone by chance
UNDONE = 0.6  # least share of the earlier moves that a broken link undoes
ALTERNATING = 0.1  # median share of a move that points back, from which alternation is looked for


def find_breaks(path: ParameterPath) -> list[Finding]:
    """All findings about a path."""
    if len(path) < FEWEST:
        return []
    alternating = _alternating(path)
    if alternating is not None:
        return [alternating]
    swapped = exchanged(path)
    swapped_steps = {step for finding in swapped for step in finding.steps}
    off_path = {k: f for k, f in _off_path(path) if not swapped_steps & set(f.steps)}
    known = {*off_path, *(k for k, step in enumerate(path.steps.tolist()) if step in swapped_steps)}
    links = {
        j: r for j, r in broken_links(path).items() if not {j, j - 1} & known and _undoes_the_past(path, j)
    }
    mixed = _mixed(path, links) if links else _unrelated_start(path)
    found = [*swapped, *mixed, *off_path.values()]
    named = {step for finding in found for step in finding.steps}
    return [*found, *(f for f in _norm_outliers(path, known) if not named & set(f.steps))]


def _off_path(path: ParameterPath) -> list[tuple[int, Finding]]:
    """Checkpoints, by index, that one link leads to and the next leads back from."""
    found = []
    least = LARGER if path.squared_distance is None else EXCURSION
    pairs = {k: r for k in range(1, len(path) - 1) if (r := _excursion(path, k)) >= least}
    pairs |= {k: _excursion(path, k) for k in isolated(path)}
    for k, ratio in pairs.items():
        if any(ratio < pairs.get(other, 0) for other in (k - 1, k + 1)):
            continue  # suspect only because its neighbour is
        finding = _excursion_finding(path, k, ratio)
        if finding is not None:
            found.append((k, finding))
    return found


def _excursion(path: ParameterPath, k: int) -> float:
    pair = {k, k + 1}
    there = ratio_to_neighbours(path.moved, path.lengths, k, pair)
    return min(there, break_ratio(path, k + 1, pair)) if not np.isnan(there) else 0.0


def _excursion_finding(path: ParameterPath, k: int, ratio: float) -> Finding | None:
    there, back = float(path.moved[k]), float(path.moved[k + 1])
    numbers = {"ratio": ratio, "moved_there": there**0.5, "moved_back": back**0.5}
    confidence = (0.9 if _stands_out(path, k) else 0.4) * confidence_from_ratio(ratio, LARGER)
    shortcut = ""
    if path.squared_distance is not None:
        apart = path.squared_distance(k - 1, k + 1)
        if apart > NEARER * min(there, back):
            return None
        confidence = max(confidence, 0.95)
        numbers["apart"] = apart**0.5
        shortcut = f", while the checkpoints on either side are {apart**0.5:.4g} apart"
    step = int(path.steps[k])
    evidence = (
        f"step {step} is off the path: the weights move {there**0.5:.4g} to it and {back**0.5:.4g} back"
        f"{shortcut}"
    )
    if ratio >= 1:
        evidence += f"; squared, that is {ratio:.3g} times the largest move nearby"
    return Finding("outlier", (step,), evidence, confidence, numbers)


def _stands_out(path: ParameterPath, k: int) -> bool:
    """Whether a checkpoint is clearly farther from the first one than both of its neighbours are."""
    away = path.travelled[0]  # element j is the distance at checkpoint j − 1
    if k + 2 >= len(path) or not np.isfinite(away[k : k + 3]).all():
        return False
    return bool(away[k + 1] - max(away[k], away[k + 2]) > 0.3 * min(path.moved[k], path.moved[k + 1]))


def _mixed(path: ParameterPath, links: dict[int, float]) -> list[Finding]:
    """One finding per run but the largest; a run of one checkpoint is an outlier."""
    cuts = sorted(links)
    segments = [range(a, b) for a, b in pairwise([0, *cuts, len(path)])]
    runs = _group_into_runs(path, segments)
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


def _undoes_the_past(path: ParameterPath, j: int) -> bool:
    """Whether a broken link undoes the earlier moves, rather than shrinking them as weight decay does.

    Of the way δ from checkpoint i to j − 1, the link undoes the share (1 − q)/2, with
    q = (‖θⱼ − θᵢ‖² − ‖Δ‖²)/‖δ‖²: none of it in a random walk, all of it if the runs differ. The
    way from the first checkpoint is known from the sums; a shorter one shows runs that
    separated late.
    """
    ways = [(u[j], t[j]) for u, t in zip(path.undone, path.travelled, strict=True)]
    if path.squared_distance is not None and j > FURTHER:
        way = path.squared_distance(j - FURTHER, j - 1)
        ways.append(((way - path.squared_distance(j - FURTHER, j) + path.moved[j]) / 2, way))
    return any(way > SHORT * path.moved[j] and undone >= UNDONE * way for undone, way in ways)


def _mixed_evidence(path: ParameterPath, steps: Sequence[int], cuts: Sequence[int]) -> str:
    j = cuts[0]
    inside = np.delete(path.moved, [0, *cuts])
    verb = "does" if len(steps) == 1 else "do"
    return (
        f"{listed(steps)} {verb} not continue the others: from step {path.steps[j - 1]} to {path.steps[j]} "
        f"the cosine is {path.cosine(j):.4f} and the weights move {path.moved[j] ** 0.5:.4g}, against "
        f"{np.max(inside) ** 0.5:.4g} at most on any other link; that move undoes the moves before it"
    )


def _mixed_numbers(
    path: ParameterPath, cuts: Sequence[int], ratio: float
) -> tuple[float, dict[str, float | int]]:
    numbers: dict[str, float | int] = {
        "ratio": ratio,
        "breaks": len(cuts),
        "boundary": int(path.steps[cuts[0]]),
    }
    return confidence_from_ratio(ratio, path.suspicious), numbers


def _group_into_runs(path: ParameterPath, segments: Sequence[range]) -> list[list[int]]:
    """Join segments that continue each other; without distances, every second one is assumed to."""
    runs: list[list[int]] = []
    for number, segment in enumerate(segments):
        continued = next((run for run in runs if _continues(path, run, segment, number, segments)), None)
        if continued is None:
            runs.append(list(segment))
        else:
            continued.extend(segment)
    return runs


def _continues(
    path: ParameterPath, run: list[int], segment: range, number: int, segments: Sequence[range]
) -> bool:
    if run[-1] == segment[0] - 1:
        return False
    if path.squared_distance is None:
        return number >= 2 and run[-1] == segments[number - 2][-1]
    return path.squared_distance(run[-1], segment[0]) < NEARER * float(path.moved[segment[0]])


def _unrelated_start(path: ParameterPath) -> list[Finding]:
    """The first checkpoint, if it has nothing in common with the second although training had begun."""
    cosine = path.cosine(1)
    ratio = ratio_to_neighbours(path.moved, path.lengths, 1)
    early = path.steps[0] < path.lengths[1]
    if early or not (cosine < UNRELATED and ratio >= 2 * LARGER):
        return []
    evidence = (
        f"step {path.steps[0]} does not lead to step {path.steps[1]}: their cosine is {cosine:.4f} "
        f"and the squared move is {ratio:.3g} times the largest nearby"
    )
    confidence = confidence_from_ratio(ratio, LARGER)
    return [Finding("outlier", (int(path.steps[0]),), evidence, confidence, {"ratio": ratio})]


def _norm_outliers(path: ParameterPath, known: set[int]) -> list[Finding]:
    logs = np.log(np.maximum(path.sumsq, 1e-300)) / 2
    found = []
    for k, ratio in enumerate(spikes(logs, known)):
        around = (logs[k - 1] + logs[(k + 1) % len(logs)]) / 2
        size = float(np.expm1(logs[k] - around))
        if abs(ratio) >= SPIKE and abs(size) >= LEAST_SPIKE:
            step = int(path.steps[k])
            evidence = (
                f"the norm at step {step} is {np.exp(logs[k]):.6g}, {size:+.2%} from its neighbours' "
                f"{np.exp(around):.6g}: {abs(ratio):.3g} times the largest change nearby"
            )
            numbers = {"ratio": abs(float(ratio)), "relative": size}
            confidence = confidence_from_ratio(abs(float(ratio)), SPIKE)
            found.append(Finding("outlier", (step,), evidence, confidence, numbers))
    return found


def _alternating(path: ParameterPath) -> Finding | None:
    """Two runs whose checkpoints alternate: each is nearer to the one two back than to the one before."""
    return _alternating_from_start(path) or _alternating_by_distance(path)


def _alternating_by_distance(path: ParameterPath) -> Finding | None:
    moving = [j for j in range(2, len(path)) if path.moved[j] > 0]
    if path.squared_distance is None or len(moving) < 3:
        return None
    shares = [float(np.median(np.nan_to_num(u[moving]) / path.moved[moving])) for u in path.undone]
    if max(shares) < ALTERNATING:
        return None
    places = sorted({moving[len(moving) // 2], moving[len(moving) * 3 // 4], moving[-1]})
    nearer = [path.squared_distance(j - 2, j) / path.moved[j] for j in places]
    if max(nearer) >= NEARER:
        return None
    steps = tuple(int(step) for step in path.steps[1::2])
    evidence = (
        f"every second checkpoint belongs to another run ({listed(steps)}): checkpoints are nearer to the "
        f"one two places back than to the one before, at {max(nearer) ** 0.5:.2f} of the distance or less"
    )
    return Finding("mixed-runs", steps, evidence, 0.95, {"nearer": max(nearer) ** 0.5})


def _alternating_from_start(path: ParameterPath) -> Finding | None:
    """Alternation seen from the first checkpoint: every second one keeps much of it, the others do not."""
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
