"""Trials that train on a regular language and look for its automaton in the network, soft and saturated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from normscope.replication.trials.trained_networks import run_trainings
from normscope.replication.trials.trial_context import Document, TrialContext, kept_document
