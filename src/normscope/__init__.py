"""How a transformer's parameters grow while it trains, and what that does to the network.

>>> import normscope as ns
>>> ns.fit_growth("t5-base").best
'power'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from normscope._version import __version__

if TYPE_CHECKING:
    from normscope.checkpoints.series.series import CheckpointSource
    from normscope.engines.engine import SupportsSubmit
    from normscope.errors import NormscopeError
    from normscope.lab.automata.automaton import Automaton
    from normscope.lab.automata.extracted import ExtractedAutomaton
    from normscope.lab.automata.network_automaton import NetworkAutomaton, automaton
    from normscope.lab.config import DataConfig, OptimizerConfig, TrainConfig
    from normscope.lab.data.dataset import Dataset, DataSizes, ScoreSums, TrainingBatch
    from normscope.lab.data.grammar import Language
    from normscope.lab.model import ModelConfig
    from normscope.lab.optimizing.constraints import Constraint
    from normscope.lab.sweep.sweep import SweepConfig, SweepResult, sweep
    from normscope.lab.training.callback import Callback
    from normscope.lab.training.train import train
    from normscope.lab.training.train_result import TrainResult
    from normscope.lab.training.trainer import RunPaths, Trainer
    from normscope.literature.papers.paper import paper
    from normscope.literature.works import ClaimLine, Paper, Term, Work
    from normscope.live.alarms.alarms import Alarm
    from normscope.live.monitor import Monitor
    from normscope.live.monitor_options import Logger, MonitorFields, MonitorOptions
    from normscope.network.measuring.heads import Head, Heads, heads
    from normscope.network.measuring.homogeneity import Curve, Degree, Homogeneity, homogeneity
    from normscope.network.measuring.joint import SaturationAndHeads, saturation_and_heads
    from normscope.network.measuring.layer_similarity import LayerSimilarity, Similarity, layer_similarity
    from normscope.network.measuring.lookahead import LookAhead, looks_ahead
    from normscope.network.measuring.saturated import saturated
    from normscope.network.measuring.saturation import LayerSaturation, Saturation, saturation
    from normscope.network.predicting.ablation import Ablations, HeadAblation, ablations
    from normscope.network.predicting.task import NetworkTask, SaturatedTask, saturated_task
    from normscope.network.running.baseline import random_like
    from normscope.network.running.batches import Batch, Batches
    from normscope.network.running.scaling import scaled
    from normscope.network.settling.full_text import Limit
    from normscope.network.settling.head_types import HeadType, HeadTypes
    from normscope.progress import Progress
    from normscope.remarks import Finding, LeftOut
    from normscope.replication.judging.seed_interval import Estimate
    from normscope.replication.replicate import ReplicationConfig, replicate
    from normscope.replication.replication_result import ClaimResult, Replication
    from normscope.rows import (
        ActivationRow,
        AttentionRow,
        CheckpointRow,
        HeadRow,
        MeasureRow,
        OptimizerRow,
        RateRow,
        SaturationRow,
        ScalarRow,
        SimilarityRow,
        SpectrumRow,
        TensorRow,
        WeightRow,
    )
    from normscope.run import Run
    from normscope.schedule import (
        AtSteps,
        Budget,
        Every,
        Logarithmic,
        Schedule,
        at_steps,
        budget,
        every,
        logarithmic,
    )
    from normscope.table import Table, Tabular
    from normscope.theory.advice.advice_result import Advice, AdviceList
    from normscope.theory.advice.advise import advise
    from normscope.theory.dynamics.budget import NormBudget, NormBudgets, norm_budget
    from normscope.theory.dynamics.dynamics import Equilibrium
    from normscope.theory.dynamics.learning_rates import Rates
    from normscope.theory.dynamics.rotation import Rotation
    from normscope.theory.forecasts.backtest import Backtest, BacktestRow, backtest
    from normscope.theory.forecasts.forecast import forecast
    from normscope.theory.forecasts.forecast_result import Forecast
    from normscope.theory.forecasts.group_outlook import GroupOutlook
    from normscope.theory.forecasts.threshold import ThresholdCrossing
    from normscope.theory.forecasts.training_plan import Plan
    from normscope.theory.laws.compare import Comparison, GroupDifference, compare
    from normscope.theory.laws.groups import GroupFit, GroupFits, fit_groups
    from normscope.theory.laws.growth import GrowthFit, LawFit, fit_growth
    from normscope.theory.laws.intervals import Interval
    from normscope.theory.laws.laws import Law
    from normscope.theory.measures.series_set import SeriesSet, series
    from normscope.theory.measures.series_sources import Source
    from normscope.theory.measures.time_series import Series
    from normscope.views.export_file import export
    from normscope.views.plotting.plot import plot
    from normscope.views.reports.report import report
    from normscope.weights.audit.audit import Audit, audit
    from normscope.weights.scan.scan import ScanConfig, scan
    from normscope.weights.spectrum.spectrum import Spectra, spectrum
    from normscope.weights.spectrum.spectrum_config import SpectrumConfig

# Where each public name is defined. They are loaded when first used, so that `import normscope`
# loads neither torch nor plotly nor scipy.
_HOMES = {
    "Ablations": "normscope.network.predicting.ablation",
    "ActivationRow": "normscope.rows",
    "Advice": "normscope.theory.advice.advice_result",
    "AdviceList": "normscope.theory.advice.advice_result",
    "Alarm": "normscope.live.alarms.alarms",
    "AtSteps": "normscope.schedule",
    "AttentionRow": "normscope.rows",
    "Audit": "normscope.weights.audit.audit",
    "Automaton": "normscope.lab.automata.automaton",
    "Backtest": "normscope.theory.forecasts.backtest",
    "BacktestRow": "normscope.theory.forecasts.backtest",
    "Batch": "normscope.network.running.batches",
    "Batches": "normscope.network.running.batches",
    "Budget": "normscope.schedule",
    "Callback": "normscope.lab.training.callback",
    "CheckpointRow": "normscope.rows",
    "CheckpointSource": "normscope.checkpoints.series.series",
    "ClaimLine": "normscope.literature.works",
    "ClaimResult": "normscope.replication.replication_result",
    "Comparison": "normscope.theory.laws.compare",
    "Constraint": "normscope.lab.optimizing.constraints",
    "Curve": "normscope.network.measuring.homogeneity",
    "DataConfig": "normscope.lab.config",
    "DataSizes": "normscope.lab.data.dataset",
    "Dataset": "normscope.lab.data.dataset",
    "Degree": "normscope.network.measuring.homogeneity",
    "Equilibrium": "normscope.theory.dynamics.dynamics",
    "Estimate": "normscope.replication.judging.seed_interval",
    "Every": "normscope.schedule",
    "ExtractedAutomaton": "normscope.lab.automata.extracted",
    "Finding": "normscope.remarks",
    "Forecast": "normscope.theory.forecasts.forecast_result",
    "GroupDifference": "normscope.theory.laws.compare",
    "GroupFit": "normscope.theory.laws.groups",
    "GroupFits": "normscope.theory.laws.groups",
    "GroupOutlook": "normscope.theory.forecasts.group_outlook",
    "GrowthFit": "normscope.theory.laws.growth",
    "Head": "normscope.network.measuring.heads",
    "HeadAblation": "normscope.network.predicting.ablation",
    "HeadRow": "normscope.rows",
    "HeadType": "normscope.network.settling.head_types",
    "HeadTypes": "normscope.network.settling.head_types",
    "Heads": "normscope.network.measuring.heads",
    "Homogeneity": "normscope.network.measuring.homogeneity",
    "Interval": "normscope.theory.laws.intervals",
    "Language": "normscope.lab.data.grammar",
    "Law": "normscope.theory.laws.laws",
    "LawFit": "normscope.theory.laws.growth",
    "LayerSaturation": "normscope.network.measuring.saturation",
    "LayerSimilarity": "normscope.network.measuring.layer_similarity",
    "LeftOut": "normscope.remarks",
    "Limit": "normscope.network.settling.full_text",
    "Logarithmic": "normscope.schedule",
    "Logger": "normscope.live.monitor_options",
    "LookAhead": "normscope.network.measuring.lookahead",
    "MeasureRow": "normscope.rows",
    "ModelConfig": "normscope.lab.model",
    "Monitor": "normscope.live.monitor",
    "MonitorFields": "normscope.live.monitor_options",
    "MonitorOptions": "normscope.live.monitor_options",
    "NetworkAutomaton": "normscope.lab.automata.network_automaton",
    "NetworkTask": "normscope.network.predicting.task",
    "NormBudget": "normscope.theory.dynamics.budget",
    "NormBudgets": "normscope.theory.dynamics.budget",
    "NormscopeError": "normscope.errors",
    "OptimizerConfig": "normscope.lab.config",
    "OptimizerRow": "normscope.rows",
    "Paper": "normscope.literature.works",
    "Plan": "normscope.theory.forecasts.training_plan",
    "Progress": "normscope.progress",
    "RateRow": "normscope.rows",
    "Rates": "normscope.theory.dynamics.learning_rates",
    "Replication": "normscope.replication.replication_result",
    "ReplicationConfig": "normscope.replication.replicate",
    "Rotation": "normscope.theory.dynamics.rotation",
    "Run": "normscope.run",
    "RunPaths": "normscope.lab.training.trainer",
    "SaturatedTask": "normscope.network.predicting.task",
    "Saturation": "normscope.network.measuring.saturation",
    "SaturationAndHeads": "normscope.network.measuring.joint",
    "SaturationRow": "normscope.rows",
    "ScalarRow": "normscope.rows",
    "ScanConfig": "normscope.weights.scan.scan",
    "Schedule": "normscope.schedule",
    "ScoreSums": "normscope.lab.data.dataset",
    "Series": "normscope.theory.measures.time_series",
    "SeriesSet": "normscope.theory.measures.series_set",
    "Similarity": "normscope.network.measuring.layer_similarity",
    "SimilarityRow": "normscope.rows",
    "Source": "normscope.theory.measures.series_sources",
    "Spectra": "normscope.weights.spectrum.spectrum",
    "SpectrumConfig": "normscope.weights.spectrum.spectrum_config",
    "SpectrumRow": "normscope.rows",
    "SupportsSubmit": "normscope.engines.engine",
    "SweepConfig": "normscope.lab.sweep.sweep",
    "SweepResult": "normscope.lab.sweep.sweep",
    "Table": "normscope.table",
    "Tabular": "normscope.table",
    "TensorRow": "normscope.rows",
    "Term": "normscope.literature.works",
    "ThresholdCrossing": "normscope.theory.forecasts.threshold",
    "TrainConfig": "normscope.lab.config",
    "TrainResult": "normscope.lab.training.train_result",
    "Trainer": "normscope.lab.training.trainer",
    "TrainingBatch": "normscope.lab.data.dataset",
    "WeightRow": "normscope.rows",
    "Work": "normscope.literature.works",
    "ablations": "normscope.network.predicting.ablation",
    "advise": "normscope.theory.advice.advise",
    "at_steps": "normscope.schedule",
    "audit": "normscope.weights.audit.audit",
    "automaton": "normscope.lab.automata.network_automaton",
    "backtest": "normscope.theory.forecasts.backtest",
    "budget": "normscope.schedule",
    "compare": "normscope.theory.laws.compare",
    "every": "normscope.schedule",
    "export": "normscope.views.export_file",
    "fit_groups": "normscope.theory.laws.groups",
    "fit_growth": "normscope.theory.laws.growth",
    "forecast": "normscope.theory.forecasts.forecast",
    "heads": "normscope.network.measuring.heads",
    "homogeneity": "normscope.network.measuring.homogeneity",
    "layer_similarity": "normscope.network.measuring.layer_similarity",
    "logarithmic": "normscope.schedule",
    "looks_ahead": "normscope.network.measuring.lookahead",
    "norm_budget": "normscope.theory.dynamics.budget",
    "paper": "normscope.literature.papers.paper",
    "plot": "normscope.views.plotting.plot",
    "random_like": "normscope.network.running.baseline",
    "replicate": "normscope.replication.replicate",
    "report": "normscope.views.reports.report",
    "saturated": "normscope.network.measuring.saturated",
    "saturated_task": "normscope.network.predicting.task",
    "saturation": "normscope.network.measuring.saturation",
    "saturation_and_heads": "normscope.network.measuring.joint",
    "scaled": "normscope.network.running.scaling",
    "scan": "normscope.weights.scan.scan",
    "series": "normscope.theory.measures.series_set",
    "spectrum": "normscope.weights.spectrum.spectrum",
    "sweep": "normscope.lab.sweep.sweep",
    "train": "normscope.lab.training.train",
}

__all__ = [
    "Ablations", "ActivationRow", "Advice", "AdviceList", "Alarm", "AtSteps", "AttentionRow", "Audit",
    "Automaton", "Backtest", "BacktestRow", "Batch", "Batches", "Budget", "Callback", "CheckpointRow",
    "CheckpointSource", "ClaimLine", "ClaimResult", "Comparison", "Constraint", "Curve", "DataConfig",
    "DataSizes", "Dataset", "Degree", "Equilibrium", "Estimate", "Every", "ExtractedAutomaton",
    "Finding", "Forecast", "GroupDifference", "GroupFit", "GroupFits", "GroupOutlook", "GrowthFit",
    "Head", "HeadAblation", "HeadRow", "HeadType", "HeadTypes", "Heads", "Homogeneity", "Interval",
    "Language", "Law", "LawFit", "LayerSaturation", "LayerSimilarity", "LeftOut", "Limit",
    "Logarithmic", "Logger", "LookAhead", "MeasureRow", "ModelConfig", "Monitor", "MonitorFields",
    "MonitorOptions", "NetworkAutomaton", "NetworkTask", "NormBudget", "NormBudgets", "NormscopeError",
    "OptimizerConfig", "OptimizerRow", "Paper", "Plan", "Progress", "RateRow", "Rates", "Replication",
    "ReplicationConfig", "Rotation", "Run", "RunPaths", "SaturatedTask", "Saturation",
    "SaturationAndHeads", "SaturationRow", "ScalarRow", "ScanConfig", "Schedule", "ScoreSums", "Series",
    "SeriesSet", "Similarity", "SimilarityRow", "Source", "Spectra", "SpectrumConfig", "SpectrumRow",
    "SupportsSubmit", "SweepConfig", "SweepResult", "Table", "Tabular", "TensorRow", "Term",
    "ThresholdCrossing", "TrainConfig", "TrainResult", "Trainer", "TrainingBatch",
    "WeightRow", "Work", "__version__", "ablations", "advise", "at_steps", "audit",
    "automaton", "backtest", "budget", "compare", "every", "export", "fit_groups", "fit_growth",
    "forecast", "heads", "homogeneity", "layer_similarity", "logarithmic", "looks_ahead", "norm_budget",
    "paper", "plot", "random_like", "replicate", "report", "saturated", "saturated_task", "saturation",
    "saturation_and_heads", "scaled", "scan", "series", "spectrum", "sweep", "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'normscope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
