"""How a transformer's parameters grow while it trains, and what that does to the network."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from normscope._version import __version__

if TYPE_CHECKING:
    from normscope.flat_file import export
    from normscope.lab.sweep import sweep
    from normscope.lab.train import train
    from normscope.network.baseline import random_like
    from normscope.network.batches import Batch
    from normscope.network.heads import heads
    from normscope.network.homogeneity import homogeneity
    from normscope.network.joint import saturation_and_heads
    from normscope.network.lookahead import looks_ahead
    from normscope.network.saturated import saturated
    from normscope.network.saturation import saturation
    from normscope.network.scaling import scaled
    from normscope.run import Run
    from normscope.schedule import at_steps, budget, every, logarithmic
    from normscope.theory.budget import norm_budget
    from normscope.theory.compare import compare
    from normscope.theory.forecast import Plan, forecast
    from normscope.theory.groups import fit_groups
    from normscope.theory.growth import fit_growth
    from normscope.theory.measures import series
    from normscope.theory.sources import Selection
    from normscope.views.report import report
    from normscope.weights.audit import audit
    from normscope.weights.monitor import Monitor
    from normscope.weights.options import MonitorOptions
    from normscope.weights.scan import scan

# Loaded when first used: `import normscope` costs neither torch nor plotly nor scipy.
_HOMES = {
    "Batch": "normscope.network.batches",
    "Monitor": "normscope.weights.monitor",
    "MonitorOptions": "normscope.weights.options",
    "Plan": "normscope.theory.forecast",
    "Run": "normscope.run",
    "Selection": "normscope.theory.sources",
    "at_steps": "normscope.schedule",
    "audit": "normscope.weights.audit",
    "budget": "normscope.schedule",
    "compare": "normscope.theory.compare",
    "every": "normscope.schedule",
    "export": "normscope.flat_file",
    "fit_groups": "normscope.theory.groups",
    "fit_growth": "normscope.theory.growth",
    "forecast": "normscope.theory.forecast",
    "heads": "normscope.network.heads",
    "homogeneity": "normscope.network.homogeneity",
    "logarithmic": "normscope.schedule",
    "looks_ahead": "normscope.network.lookahead",
    "norm_budget": "normscope.theory.budget",
    "random_like": "normscope.network.baseline",
    "report": "normscope.views.report",
    "saturated": "normscope.network.saturated",
    "saturation": "normscope.network.saturation",
    "saturation_and_heads": "normscope.network.joint",
    "scaled": "normscope.network.scaling",
    "scan": "normscope.weights.scan",
    "series": "normscope.theory.measures",
    "sweep": "normscope.lab.sweep",
    "train": "normscope.lab.train",
}

__all__ = [
    "Batch",
    "Monitor",
    "MonitorOptions",
    "Plan",
    "Run",
    "Selection",
    "__version__",
    "at_steps",
    "audit",
    "budget",
    "compare",
    "every",
    "export",
    "fit_groups",
    "fit_growth",
    "forecast",
    "heads",
    "homogeneity",
    "logarithmic",
    "looks_ahead",
    "norm_budget",
    "random_like",
    "report",
    "saturated",
    "saturation",
    "saturation_and_heads",
    "scaled",
    "scan",
    "series",
    "sweep",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'normscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
