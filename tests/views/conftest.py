"""A run file to report on, and its report."""

from __future__ import annotations

import numpy as np
import pytest

from normscope.views.reports.report import report

from .runs import write_walk


@pytest.fixture(scope="session")
def run_path(tmp_path_factory):
    return write_walk(
        tmp_path_factory.mktemp("run") / "run.db", [0, *(int(s) for s in np.geomspace(10, 20000, 24))]
    )


@pytest.fixture(scope="session")
def written(run_path, tmp_path_factory):
    """The report of `run_path`."""
    return report(run_path, tmp_path_factory.mktemp("report") / "report.html")
