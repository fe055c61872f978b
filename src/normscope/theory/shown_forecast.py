"""The forecast that a report shows: none if it would begin with a jump that nothing measured explains."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from normscope.errors import NormscopeError
from normscope.theory.dynamics.rate_groups import RateGroup
from normscope.theory.forecasts.forecast import forecast_series
from normscope.theory.forecasts.forecast_result import Forecast
from normscope.theory.laws.evidence import ENOUGH_TO_CHOOSE
from normscope.theory.measures.time_series import Series

AHEAD = 2  # the horizon of the forecast, in lengths of the run so far

_STEEPER = 3.0  # than anything in the known part: more is a jump
_SMALL = 0.01  # of the last value: less is none


def shown_forecast(norms: Series, groups: Sequence[RateGroup]) -> tuple[Forecast | None, str]:
    """The forecast; none for a short series, and, with the reason, none that begins with a jump."""
    if len(norms) < ENOUGH_TO_CHOOSE:
        return None, ""
    try:
        found = forecast_series(norms, int(norms.steps[-1]) * AHEAD, groups=groups)
    except NormscopeError:
        return None, ""
    reason = forecast_jump(found)
    return (None, reason) if reason else (found, "")


def forecast_jump(found: Forecast) -> str:
    """A sentence if the first value after the last measured one is far from it; empty otherwise.

    The forecast may change three times as fast as the series ever did, and one per cent beside that.
    """
    curve, past = found.curve, found.past
    if not len(curve) or len(past) < 2:
        return ""
    step, value = float(curve["step"][0]), float(curve["value"][0])  # type: ignore[arg-type]
    slopes = np.abs(np.diff(past.values) / np.maximum(np.diff(past.steps), 1))
    allowed = _STEEPER * float(np.nanmax(slopes)) * (step - found.now) + _SMALL * abs(found.value_now)
    if abs(value - found.value_now) <= allowed:
        return ""
    return (
        f"The forecast is not shown: it would begin with a jump from {found.value_now:.4g} to {value:.4g} "
        "within its first step, and nothing in the known part changed so fast."
    )
