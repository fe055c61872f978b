"""Crafted logs: `normscope fit` ends in time, in little memory, with right numbers or one sentence."""

import pytest

from tests.crafted import check, parameters, started_runner

from . import crafted_events, crafted_parquet
from .crafted_logs import CASES

MODULES = (crafted_events, crafted_parquet)  # they add their cases


@pytest.fixture(scope="module")
def runner():
    yield from started_runner()


@pytest.mark.parametrize("name", parameters(CASES))
def test_a_crafted_log(name, tmp_path, runner):
    if name.startswith("parquet"):
        pytest.importorskip("pyarrow")
    check(CASES[name], tmp_path, runner, "fit", "SOURCE")
