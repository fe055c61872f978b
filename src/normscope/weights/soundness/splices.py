"""Find where another run's checkpoints begin, though both began from the same parameters.

Let a run be at u, seen from some earlier checkpoint, and the next checkpoint at u′ = u + δ. If training made
a large move δ, wherever to, it does not point back but for weight decay, so the distance grows by all of it:
‖u′‖² = ‖u‖² + ‖δ‖² + 2⟨u, δ⟩. If u′ belongs to another run, δ leads away from what the first run alone had
learnt. Two shares show that:

    kept   = (growth of the squared distance − usual growth) / (squared move − usual squared move)
    undone = −⟨u, δ⟩ / ‖u‖²

For a learning rate that jumps, a restart, or missing checkpoints, `kept` is 1 or more and `undone` about 0.
Where another run begins, `kept` is about 0, seen from before the runs separated, because the other run is
as far from there; and `undone` is about 1, seen from later, less what both runs learnt alike. Where they
learnt mostly the same, the shares cannot tell; then a jump in an otherwise steady training is named, with
both readings (`stands_out`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from normscope.remarks import Finding
from normscope.weights.soundness.detours import find_older
from normscope.weights.soundness.findings import Array, finite, ratio
from normscope.weights.soundness.pairs import REACH, PairTable

JUMP, LAST_JUMP = 2.5, 4.0  # times the largest squared move nearby; at the end, where only those before count
LARGE_AT_THE_END = 16.0  # as JUMP: a hint, where too few checkpoints follow to say more
KEPT, UNCLEAR_KEPT = 0.45, 0.6  # at most, where another run begins; where that is unclear
UNDONE, UNCLEAR_UNDONE = 0.4, 0.3  # at least, where another run begins; where that is unclear
ONWARDS = -0.15  # undone: below it, the jump goes on in the direction of the way, as averaged weights do
LONGEST_WAY = 40.0  # times the squared jump, of ‖u‖²: of a longer way, weight decay alone undoes as much
SHORTEST_WAY = 0.02  # times the squared jump: a shorter way may be undone by chance
AFTERMATH = 1.4  # times the squared moves before the jump, by steps: it goes on after the jump
UNSTEADY = 1.65  # times: squared moves by steps of two neighbouring links that differ by more are erratic
DOUBT = 0.5  # of the difference between two growths nearby: how far the usual growth may be off there
READINGS = (
    "either another run's checkpoints begin here, or training was restarted, or the learning rate jumped"
)
HINT = 0.4  # confidence
CONTINUES = 0.6  # of the squared jump: a shorter distance means that one segment continues the other
STANDS_OUT = 4.0  # times the squared moves nearby, and times their trend
SAME_PACE = 1.25  # times the trend of the squared moves by steps
AT_THE_END = 3  # links on one side of the first or last link
COMPARABLE = 2.5  # times: intervals that differ by more are not compared


@dataclass(frozen=True)
class Jump:
    """The smallest share of a jump that is kept, and the smallest share of the way that it undoes.

    `surely_kept` is the former with what it may be too small by chance. `alone` says that it is far larger
    than the moves nearby, which are alike.
    """

    kept: float
    surely_kept: float
    undone: float
    alone: bool

    def named(self, at_the_end: bool) -> bool:
        """Whether it may be the beginning of another run; a doubt is not enough at the end of a series."""
        unclear = self.kept <= UNCLEAR_KEPT or self.undone >= UNCLEAR_UNDONE
        return self.alone or self.sure or (unclear and not at_the_end)

    @property
    def sure(self) -> bool:
        """Whether it is not a restart or a jump of the learning rate."""
        return self.surely_kept <= KEPT or self.undone >= UNDONE

    @property
    def words(self) -> str:
        """What is wrong with it."""
        if self.kept <= UNCLEAR_KEPT:
            share = max(self.kept, 0.0)
            return f"the distance from an earlier checkpoint keeps {share:.0%} of that jump, not all of it"
        if self.undone >= UNCLEAR_UNDONE:
            return f"that jump undoes {min(self.undone, 1.0):.0%} of the way from earlier checkpoints"
        return "the moves nearby are alike"


def find_splices(table: PairTable, leave_out: set[int]) -> list[Finding]:
    """Findings about segments that do not continue the others; one checkpoint alone is an outlier."""
    found = suspicious_jumps(table, leave_out)
    older = find_older(table, found)
    leave_out = leave_out | set(found)
    found = {j: jump for j, jump in found.items() if j not in older}
    runs = _runs(table, sorted(found))
    largest = max(runs, key=len)
    surely = [_finding(table, run, found) for run in runs if run is not largest]
    return [*surely, *older.values(), *_hints_at_the_end(table, leave_out)]


def suspicious_jumps(table: PairTable, leave_out: set[int]) -> dict[int, Jump]:
    """Links where another run may begin.

    Repeated without those already found, since they hide smaller ones nearby.
    """
    found: dict[int, Jump] = {}
    last = len(table) - 1  # nothing after it could show how training goes on
    for _ in range(len(table)):
        known = leave_out | set(found)
        large = [j for j in range(1, len(table)) if j not in known and _is_jump(table, j, known)]
        judged = {j: judge(table, j, known) for j in large}
        fresh = {j: jump for j, jump in judged.items() if jump.named(at_the_end=j == last)}
        if not fresh:
            return found
        found.update(fresh)
    return found


def _is_jump(table: PairTable, j: int, leave_out: set[int]) -> bool:
    return _is_larger(table, j, JUMP if j < len(table) - 1 else LAST_JUMP, leave_out)


def _is_larger(table: PairTable, j: int, times: float, leave_out: set[int]) -> bool:
    """Whether a squared move is so many times the largest nearby."""
    return bool(table.moved[j] > 0 and table.moved[j] >= times * table.usual_move({j}, leave_out))


def judge(table: PairTable, j: int, leave_out: set[int]) -> Jump:
    """What a jump keeps and undoes, seen from earlier checkpoints that are neither too near nor too far."""
    near = table.near({j}, leave_out)
    way = table.squared[: j - 1, j - 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = (way + table.moved[j] - table.squared[: j - 1, j]) / 2 / way
    bases = np.flatnonzero((way > 0) & (way <= LONGEST_WAY * table.moved[j]))
    seen = bases[shares[bases] >= ONWARDS]
    kept = np.array([_kept_from(table, int(i), j, near) for i in seen])
    chance = 2 * table.chance(j) * np.sqrt(way[seen] / table.moved[j])
    long = bases[way[bases] >= SHORTEST_WAY * table.moved[j]]
    undone = shares[long]
    least = float(np.min(undone)) if len(long) else -np.inf
    lowest, surely = (float(np.min(each, initial=np.inf)) for each in (kept, kept + chance))
    return Jump(lowest, surely, least, stands_out(table, j, leave_out))


def _kept_from(table: PairTable, base: int, j: int, near: list[int]) -> float:
    growth = np.concatenate([[np.nan], np.diff(table.squared[base])])
    known = [i for i in near if i > base and np.isfinite(growth[i])]
    if not known or not np.isfinite(growth[j]):
        return float("inf")
    known = _without_aftermath(table, known, j)
    scale = table.lengths[j] / table.lengths[known]
    usual_growth = float(np.median(growth[known] * scale)) - _doubt(table, growth, near, known, j)
    excess = table.moved[j] - float(np.median(table.moved[known] * scale))
    return float((growth[j] - usual_growth) / excess) if excess > 0 else float("inf")


def _doubt(table: PairTable, growth: Array, near: list[int], known: list[int], j: int) -> float:
    """How far the usual growth may be off: where the links nearby are erratic, they show little of it.

    A training that is nearly done moves in bursts, whenever it meets an example that it gets wrong.
    """
    pace = table.moved / table.lengths
    steady = all(max(pace[a], pace[b]) <= UNSTEADY * min(pace[a], pace[b]) for a, b in _on_one_side(near, j))
    growths = growth * table.lengths[j] / table.lengths
    apart = [0.0] if steady else [abs(growths[a] - growths[b]) for a, b in _on_one_side(known, j)]
    return DOUBT * float(max(apart, default=0.0))


def _on_one_side(links: list[int], j: int) -> list[tuple[int, int]]:
    """Neighbours among some links that are both before a link, or both after it."""
    return [(a, b) for a, b in pairwise(links) if (a < j) == (b < j)]


def _without_aftermath(table: PairTable, links: list[int], j: int) -> list[int]:
    """Links that show what is usual: not those after a jump that goes on there, as in averaged weights."""
    before, after = [i for i in links if i < j], [i for i in links if i > j]
    if not before or not after:
        return links
    pace = table.moved / table.lengths
    return before if np.median(pace[after]) > AFTERMATH * np.median(pace[before]) else links


def _runs(table: PairTable, cuts: list[int]) -> list[list[int]]:
    """Checkpoints by run: segments between the cuts, joined where one continues an earlier one."""
    runs: list[list[int]] = []
    for first, last in pairwise([0, *cuts, len(table)]):
        segment = list(range(first, last))
        earlier = next((run for run in runs[:-1] if _continues(table, run, first)), None)
        if earlier is None:
            runs.append(segment)
        else:
            earlier.extend(segment)
    return runs


def _continues(table: PairTable, run: list[int], first: int) -> bool:
    return bool(table.squared[run[-1], first] < CONTINUES * table.moved[first])


def _hints_at_the_end(table: PairTable, leave_out: set[int]) -> list[Finding]:
    """Hints about large jumps so near the end that nothing shows how training went on after them."""
    near_the_end = range(max(REACH + 1, len(table) - REACH), len(table))
    large = [
        j for j in near_the_end if j not in leave_out and _is_larger(table, j, LARGE_AT_THE_END, leave_out)
    ]
    return [_hint(table, j, leave_out) for j in large]


def _hint(table: PairTable, j: int, leave_out: set[int]) -> Finding:
    move, usual = float(table.moved[j]) ** 0.5, table.usual_move({j}, leave_out) ** 0.5
    evidence = (
        f"a break near the end: {_how(table, j, usual)}; {READINGS}: too few checkpoints follow to tell"
    )
    numbers = {"ratio": ratio(move, usual) ** 2, "boundary": int(table.steps[j])}
    return Finding("break", tuple(int(step) for step in table.steps[j:]), evidence, HINT, finite(numbers))


def _how(table: PairTable, j: int, usual: float) -> str:
    """The jump in words; `usual` is the largest move nearby, NaN if there is none to compare with."""
    nearby = f", nearby at most {usual:.4g}" if np.isfinite(usual) else ""
    before, after = table.steps[j - 1 : j + 1]
    return f"from step {before} to {after} the matrices move {float(table.moved[j]) ** 0.5:.4g}{nearby}"


def _finding(table: PairTable, run: list[int], cuts: dict[int, Jump]) -> Finding:
    cut = next(j for j in sorted(cuts) if (j in run) != (j - 1 in run))  # where the run begins or ends
    jump, move = cuts[cut], float(table.moved[cut]) ** 0.5
    usual = table.usual_move({cut}, set(cuts)) ** 0.5
    steps = tuple(int(step) for step in table.steps[run])
    how = _how(table, cut, usual)
    if jump.sure:
        verb = "does" if len(run) == 1 else "do"
        evidence = f"{table.named(run)} {verb} not continue the others: {how}, and {jump.words}"
    else:
        evidence = f"a break: {how}, and {jump.words}; {READINGS}"
    kind = "break" if not jump.sure else "mixed-runs" if len(run) > 1 else "outlier"
    numbers = {"ratio": ratio(move, usual) ** 2, "breaks": len(cuts), "boundary": int(table.steps[cut])}
    numbers |= {"kept": jump.kept, "undone": jump.undone}
    return Finding(kind, steps, evidence, 0.95 if jump.sure else 0.6, finite(numbers))


# -- a jump in a training that is otherwise steady --------------------------------------------------------
# A restart or a new learning rate changes the moves after it, too. If the moves on either side follow one
# trend and a single one is far above it, something happened between those two checkpoints alone: another
# run's checkpoints begin there, or the learning rate spiked. The numbers cannot tell which: both are said.


def stands_out(table: PairTable, j: int, leave_out: set[int]) -> bool:
    """Whether link j is far larger than the links nearby, which are alike.

    The first link of a training is not asked: it may move fast at its start.
    """
    links = _beside(table, j, leave_out)
    if len(links) < AT_THE_END or (j == 1 and table.steps[0] == 0):
        return False
    if not _comparable(table.lengths[[j, *links]]):
        return False
    places = np.array(links) - j
    with np.errstate(divide="ignore", invalid="ignore"):
        paces, own = (np.log(table.moved[i] / table.lengths[i]) for i in (links, j))
    if not np.isfinite(paces).all():
        return False
    trend = np.polynomial.Polynomial.fit(places, paces, 1)
    steady = bool(np.all(np.abs(paces - trend(places)) < np.log(SAME_PACE)))
    usual = max(float(trend(0)), float(np.max(paces)))
    large = table.moved[j] >= STANDS_OUT * table.usual_move({j}, leave_out)
    return bool(steady and large and own >= usual + np.log(STANDS_OUT))


def _beside(table: PairTable, j: int, leave_out: set[int]) -> list[int]:
    """Two links on either side; where one side is too short, three on the other."""
    before = [i for i in range(j - 1, 0, -1) if i not in leave_out][:AT_THE_END]
    after = [i for i in range(j + 1, len(table)) if i not in leave_out][:AT_THE_END]
    if len(before) >= REACH and len(after) >= REACH:
        return [*before[:REACH], *after[:REACH]]
    return [*before, *after]


def _comparable(lengths: Array) -> bool:
    return bool(np.max(lengths) <= COMPARABLE * np.min(lengths))
