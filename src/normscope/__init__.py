"""How a transformer's parameters grow while it trains, and what that does to the network."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from normscope._version import __version__

if TYPE_CHECKING:
    from normscope.export import export
    from normscope.run import Run
    from normscope.theory.growth import fit_growth
    from normscope.theory.measures import series
    from normscope.views.report import report
    from normscope.weights.scan import scan

# Loaded when first used: `import normscope` costs neither torch nor plotly nor scipy.
_HOMES = {
    "Run": "normscope.run",
    "export": "normscope.export",
    "fit_growth": "normscope.theory.growth",
    "report": "normscope.views.report",
    "scan": "normscope.weights.scan",
    "series": "normscope.theory.measures",
}

__all__ = ["Run", "__version__", "export", "fit_growth", "report", "scan", "series"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'normscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
