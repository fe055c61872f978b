"""When the network is looked at during training: by probes on their own schedule, or in recorded steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from torch import nn

from normscope.errors import NormscopeError, UsageError
from normscope.live.model.ranks import Ranks
from normscope.live.model.sharding import ParameterInfo
from normscope.live.probing.attention_sums import HeadKey, HeadNumbers, attention_rows, combined
from normscope.live.probing.guarding import Guarding
from normscope.live.probing.network_probe import Findings, NetworkProbe
from normscope.live.probing.probe_batch import probe_batches
from normscope.live.probing.probe_ranks import inner, tensor_parallel
from normscope.live.probing.training_attention import TrainingAttention
from normscope.live.writing.journal_entries import NetworkRows, Note
from normscope.network.running.batches import Batch
from normscope.schedule import Schedule

PROBE_NOTE, ATTENTION_NOTE = "monitor.network", "monitor.attention"
"""The keys in the run file's metadata that say what could not be measured."""
UNSEEN = (
    "no attention was seen in a forward pass of training, so none is recorded: it may run in a fused kernel "
    "other than scaled_dot_product_attention, in another thread, or outside the model of the monitor"
)
SPLIT = "heads are split over ranks (tensor parallelism): those of rank 0 are recorded"


class NetworkOptions(Protocol):
    """The options of a monitor that say what is looked at."""

    @property
    def network(self) -> Schedule | None: ...  # noqa: D102
    @property
    def batch(self) -> Any: ...  # noqa: D102
    @property
    def attention(self) -> str | None: ...  # noqa: D102


class Destination(Protocol):
    """Where what was found goes; only rank 0 has one."""

    def put(self, entry: Note) -> None:
        """Queue a remark for the run file."""

    def publish_network(self, found: NetworkRows) -> None:
        """Queue rows for the run file, the loggers and the alarms."""


class NetworkWatch:
    """What a monitor sees of a network beside its parameters; every rank has one and they act alike."""

    def __init__(
        self,
        model: nn.Module,
        ranks: Ranks,
        guard: Guarding,
        options: NetworkOptions,
        parameters: Sequence[ParameterInfo],
    ) -> None:
        self._model, self._ranks, self._guard = model, ranks, guard
        self._schedule = options.network
        self._noted: dict[str, str] = {}
        batches = _checked(options, ranks)
        self._probe = self._observer = None
        if options.network is not None:
            self._probe = NetworkProbe(model, batches, ranks, [info.name for info in parameters])
        if options.attention is not None:
            self._observer = TrainingAttention(model, guard)

    def plan(self, due: bool) -> None:
        """The next step is recorded, or not."""
        if self._observer is None:
            return
        with self._guard.doing("observing attention"):
            self._observer.disarm()  # a step that was skipped leaves something
            if due:
                self._observer.arm()

    def stop(self) -> None:
        """Remove all hooks."""
        self.plan(False)

    def changed(self) -> None:
        """The model has changed: its layers may be others."""
        if self._observer is not None:
            self._observer.lists = ()

    def after(self, step: int, recorded: bool, destination: Destination | None) -> None:
        """Publish what running the model shows after a step; every rank must call this after every step."""
        if self._probe is None and self._observer is None:
            return
        with self._guard.doing("measuring the network"):
            if self._observer is not None and recorded:
                _publish(self._training(step, self._observer), destination)
            if self._probe is not None and self._schedule is not None and step in self._schedule:
                _publish(self._probed(step, self._probe), destination)

    def _probed(self, step: int, probe: NetworkProbe) -> Iterator[NetworkRows | Note]:
        found: Findings | None = None
        with self._guard.doing("measuring the network"):
            found = probe.measure(step)
        if found is not None and self._ranks.rank == 0:
            yield from self._problems(PROBE_NOTE, step, found.problems)
            yield NetworkRows(step, found.rows, {"problems": found.problems, "warnings": found.remarks})

    def _training(self, step: int, observer: TrainingAttention) -> Iterator[NetworkRows | Note]:
        mine: dict[HeadKey, HeadNumbers] = {}
        with self._guard.doing("observing attention"):
            mine = observer.take()
        parts = self._ranks.gather(mine)
        if self._ranks.rank:
            return
        split = self._ranks.world > 1 and tensor_parallel(inner(self._model))
        heads = mine if split else combined(parts)
        problems = [observer.problem or UNSEEN] if not heads else [SPLIT] if split else []
        yield from self._problems(ATTENTION_NOTE, step, problems)
        if heads:
            yield NetworkRows(step, attention_rows(heads, step, "training", observer.lists))

    def _problems(self, key: str, step: int, problems: Sequence[str]) -> Iterator[Note]:
        """Say each problem once, and keep them in the run file, with the step since when."""
        for problem in problems:
            self._guard.warn(f"step {step}: {problem}", key=problem)
        text = "; ".join(problems)
        if text and text != self._noted.get(key):
            self._noted[key] = text
            yield Note(key, f"since step {step}: {text}")


def _checked(options: NetworkOptions, ranks: Ranks) -> list[Batch]:
    """The batches of the probe; a problem of one rank is raised on all, or the others would wait for it."""
    problem: NormscopeError | None = None
    batches: list[Batch] = []
    try:
        batches = probe_batches(options.batch) if options.network is not None else []
    except NormscopeError as error:
        problem = error
    if len({*ranks.gather((str(options.network), options.attention))}) > 1:
        problem = problem or UsageError("network and attention must be the same on every rank")
    ranks.share(problem)
    return batches


def _publish(found: Iterable[NetworkRows | Note], destination: Destination | None) -> None:
    for entry in found:
        if destination is None:
            continue
        if isinstance(entry, Note):
            destination.put(entry)
        else:
            destination.publish_network(entry)
