"""Where NaN and infinite values began: in the forward pass, the loss, the backward pass or the update."""

from __future__ import annotations

from normscope.live.alarms.alarms import CRITICAL, Sign
from normscope.live.alarms.record_summary import ForwardLook, NonFiniteValues, RecordSummary
from normscope.words import some

KIND = "nonfinite"


def nonfinite_sign(now: RecordSummary, last_finite: int | None) -> Sign | None:
    """What is not finite in this record, and where that began; None if everything is finite.

    `last_finite` is the step of the last record in which everything was.
    """
    found = now.nonfinite
    if found is None:
        return None
    places = [*found.parameters, *((f"the gradient of {name}", count) for name, count in found.gradients)]
    text = f"NaN or infinite values in {some([f'{name} ({count})' for name, count in places])}"
    text += _when(now.step, last_finite)
    text += f"; {origin}" if (origin := _origin(now, found)) else ""
    total = float(sum(count for _, count in places))
    return Sign(KIND, "values", text, {"values": total, "tensors": len(places)}, CRITICAL)


def _when(step: int, last_finite: int | None) -> str:
    """Between which steps it began, if steps were not recorded before this one."""
    if last_finite is None or last_finite >= step - 1:
        return ""
    return f", since a step after {last_finite} and at the latest step {step}"


def _origin(now: RecordSummary, found: NonFiniteValues) -> str:
    """The first place in the order of the step, as far as it was seen."""
    look = now.forward
    if look is not None and look.finite is False:
        return _in_forward(look)
    if found.gradients:
        name = found.gradients[0][0]
        if found.finite_before:
            return (
                f"they began in the backward pass: {name} is the first whose gradient has them, after "
                f"{found.finite_before} that are finite"
            )
        if look is not None and look.finite:
            what = (
                f"the outputs of {some(look.seen)}, which have"
                if look.seen
                else "the model's output, which has"
            )
            return f"they began after {what} no NaN: in the loss or its gradient"
        unknown = f"; in which module is not known: {look.why}" if look is not None else ""
        return f"all gradients have them from the first on, so they began in the loss or before it{unknown}"
    if now.gradients_known:
        names = some([name for name, _ in found.parameters])
        return (
            f"all gradients were finite, so they began in the update of {names} or were written from outside"
        )
    return ""


def _in_forward(look: ForwardLook) -> str:
    if not look.module:
        return f"they began in the forward pass or before it; in which module is not known: {look.why}"
    if look.parameters:
        return (
            f"{look.module} is the first module in the forward pass whose output has them, and its "
            f"parameters {some(look.parameters)} had them before this step"
        )
    where = f"they began in the forward pass: {look.module} is the first module whose output has them"
    if look.input_finite:
        return f"{where}; its input and its parameters are finite"
    after = f" after {look.after}, whose output is finite" if look.after else ""
    if look.input_finite is False:
        return (
            f"{where}; its input has them already, so they began before it{' and' + after if after else ''}"
        )
    return f"{where}{',' + after if after else ''}"
