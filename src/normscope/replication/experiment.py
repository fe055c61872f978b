"""An experiment: what is run, in which variants, and how much of it in each preset."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from normscope.errors import UsageError
from normscope.replication.trials.trial_kinds import TRIAL_KINDS

PRESETS = ("quick", "standard", "full")


@dataclass(frozen=True)
class Experiment:
    """One experiment: its `kind` of trial, the `base` settings, the fields that `vary`, and its presets.

    The settings of a preset are added to those of the base. `needs` are inputs that the user must give for a
    preset, such as `text`.
    """

    id: str
    title: str
    kind: str
    base: Mapping[str, Any] = field(hash=False)
    vary: Mapping[str, list[Any]] = field(hash=False)
    presets: Mapping[str, Mapping[str, Any]] = field(hash=False)

    def settings(self, preset: str) -> dict[str, Any]:
        """Return the settings of a preset, with `vary`."""
        found = {**self.base, **self.presets[preset]}
        found["vary"] = {**self.vary, **found.pop("vary", {})}
        return found


def parse_experiment(document: Mapping[str, Any], source: str) -> Experiment:
    """Check and convert an experiment's TOML document; an error names the file and the entry."""
    unknown = set(document) - {"id", "title", "kind", "base", "vary", "presets"}
    if unknown:
        raise UsageError(f"{source}: unknown entries {sorted(unknown)}")
    try:
        made = Experiment(
            document["id"],
            document["title"],
            document["kind"],
            document.get("base", {}),
            document.get("vary", {}),
            document["presets"],
        )
    except KeyError as error:
        raise UsageError(f"{source} lacks the entry {error.args[0]!r}") from None
    if made.kind not in TRIAL_KINDS:
        raise UsageError(f"{source}: unknown kind {made.kind!r}; there are {', '.join(TRIAL_KINDS)}")
    if set(made.presets) != set(PRESETS):
        raise UsageError(f"{source}: the presets must be {', '.join(PRESETS)}; got {sorted(made.presets)}")
    return made


def settings_digest(settings: Mapping[str, Any]) -> str:
    """Return a short name for settings: trials of other settings are kept apart."""
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:10]
