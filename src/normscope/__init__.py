"""How a transformer's parameters grow while it trains, and what that does to the network."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from normscope._version import __version__

if TYPE_CHECKING:
    from normscope.export_file import export
    from normscope.lab.sweep.sweep import sweep
    from normscope.lab.training.train import train
    from normscope.network.attention.heads import heads
    from normscope.network.attention.lookahead import looks_ahead
    from normscope.network.limit.homogeneity import homogeneity
    from normscope.network.limit.joint import saturation_and_heads
    from normscope.network.limit.saturated import saturated
    from normscope.network.limit.saturation import saturation
    from normscope.network.limit.scaling import scaled
    from normscope.network.running.baseline import random_like
    from normscope.network.running.batches import Batch
    from normscope.run import Run
    from normscope.schedule import at_steps, budget, every, logarithmic
    from normscope.theory.dynamics.budget import norm_budget
    from normscope.theory.dynamics.forecast import Plan, forecast
    from normscope.theory.laws.compare import compare
    from normscope.theory.laws.groups import fit_groups
    from normscope.theory.laws.growth import fit_growth
    from normscope.theory.measures.measures import series
    from normscope.theory.measures.series_sources import Selection
    from normscope.views.page.report import report
    from normscope.weights.audit.audit import audit
    from normscope.weights.monitor.monitor import Monitor
    from normscope.weights.monitor.monitor_options import MonitorOptions
    from normscope.weights.scan.scan import scan

# Loaded when first used: `import normscope` costs neither torch nor plotly nor scipy.
_HOMES = {
    "Batch": "normscope.network.running.batches",
    "Monitor": "normscope.weights.monitor.monitor",
    "MonitorOptions": "normscope.weights.monitor.monitor_options",
    "Plan": "normscope.theory.dynamics.forecast",
    "Run": "normscope.run",
    "Selection": "normscope.theory.measures.series_sources",
    "at_steps": "normscope.schedule",
    "audit": "normscope.weights.audit.audit",
    "budget": "normscope.schedule",
    "compare": "normscope.theory.laws.compare",
    "every": "normscope.schedule",
    "export": "normscope.export_file",
    "fit_groups": "normscope.theory.laws.groups",
    "fit_growth": "normscope.theory.laws.growth",
    "forecast": "normscope.theory.dynamics.forecast",
    "heads": "normscope.network.attention.heads",
    "homogeneity": "normscope.network.limit.homogeneity",
    "logarithmic": "normscope.schedule",
    "looks_ahead": "normscope.network.attention.lookahead",
    "norm_budget": "normscope.theory.dynamics.budget",
    "random_like": "normscope.network.running.baseline",
    "report": "normscope.views.page.report",
    "saturated": "normscope.network.limit.saturated",
    "saturation": "normscope.network.limit.saturation",
    "saturation_and_heads": "normscope.network.limit.joint",
    "scaled": "normscope.network.limit.scaling",
    "scan": "normscope.weights.scan.scan",
    "series": "normscope.theory.measures.measures",
    "sweep": "normscope.lab.sweep.sweep",
    "train": "normscope.lab.training.train",
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
