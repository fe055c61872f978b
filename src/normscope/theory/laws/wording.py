"""What a fit says, in sentences."""

from __future__ import annotations

from collections.abc import Mapping

from normscope.theory.laws.choice import Choice
from normscope.theory.laws.intervals import Interval
from normscope.theory.laws.laws import EXPONENTS, LAWS
from normscope.words import joined

PAPER_LAW = "sqrt"


def growth_sentences(
    r2: Mapping[str, float], choice: Choice, exponent: Interval | None, name: str
) -> tuple[str, ...]:
    """The verdict, how far it reaches, the exponent, and the paper's law beside it."""
    said = [_verdict(r2, choice, name), _reach(choice), _exponent(exponent), _paper(r2, choice)]
    return tuple(sentence for sentence in said if sentence)


def _verdict(r2: Mapping[str, float], choice: Choice, name: str) -> str:
    best = f"{choice.best} ({LAWS[choice.best].formula}, R² {r2[choice.best]:.5f})"
    if not choice.judged:
        return f"{name}: too few points to choose a law; {best} is closest."
    if choice.decided:
        return f"{name} grows by the law {best}: {LAWS[choice.best].meaning}."
    others = joined([f"{n} (R² {r2[n]:.5f})" for n in choice.candidates if n != choice.best])
    if choice.exact:
        return f"{name}: {best} fits best, but {others} cannot be told apart from it on this range."
    if len(choice.candidates) == 1:
        return f"{name}: {best} fits best."
    differ = "differs" if len(choice.candidates) == 2 else "differ"
    return (
        f"{name}: {best} fits best, but {others} hardly {differ} from it: "
        "these laws cannot be told apart on this range (R² within 0.001)."
    )


def _reach(choice: Choice) -> str:
    """How far a run would have to go to separate what cannot be told apart here."""
    if not choice.judged or choice.decided:
        return ""
    smooth = (
        "" if choice.exact else f"No law is exact here: what {choice.best} leaves over is smooth, not noise. "
    )
    if not choice.separating:
        return smooth.strip()
    reached = {name: step for name, step in choice.separating.items() if step is not None}
    never = [name for name in choice.separating if name not in reached]
    said = []
    if reached:
        step = max(reached.values())
        said.append(f"a run to about step {step:,} would tell {joined(list(reached))} from {choice.best}")
    if never:
        one = "one" if reached else "a run"
        said.append(f"not even {one} a hundred times as long would tell {joined(never)} from it")
    text = "; ".join(said)
    return f"{smooth}{text[0].upper()}{text[1:]}."


def _exponent(exponent: Interval | None) -> str:
    if exponent is None:
        return ""
    if not EXPONENTS[0] < exponent.value < EXPONENTS[1]:
        return f"No power of the step describes it: it ran to {exponent.value:g}, the end of its range."
    return f"Free exponent p = {exponent.value:.3f}, 95 % interval {exponent.low:.3f} to {exponent.high:.3f}."


def _paper(r2: Mapping[str, float], choice: Choice) -> str:
    if PAPER_LAW not in r2 or not choice.judged:
        return ""
    said = f"The square-root law of Merrill et al. (2021), a·√t + b, has R² {r2[PAPER_LAW]:.5f}"
    if choice.decided and choice.best == PAPER_LAW:
        return f"{said} and is the law chosen."
    if PAPER_LAW in choice.candidates:
        return f"{said} and remains possible."
    rivals: tuple[str, ...] = ("sqrt-linear", "power")
    better = [name for name in rivals if name in choice.candidates] or [choice.best]
    return f"{said}; {joined(better)} fit{'s' * (len(better) == 1)} better."
