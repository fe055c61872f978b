"""The page of a series on the hub, by one command in a process of its own, from a local server."""

import os
import re

import numpy as np
import pytest
import torch
from safetensors.torch import save

from tests.checkpoints.hub_server import Hub
from tests.cli.calling import normscope
from tests.views.pages import figures

pytest.importorskip("huggingface_hub")

STEPS = [0, 128, 256, 512, 1000]


def states():
    """A walk of the parameters, by step."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"embed.weight": (40, 8), **{f"layers.{i}.mlp.up.weight": (32, 8) for i in range(2)}}
    state = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    found = {}
    for step in STEPS:
        found[step] = {name: value.clone() for name, value in state.items()}
        for value in state.values():
            value += torch.randn(value.shape, generator=generator) * 0.5
    return found


def norm_of_body(state):
    return float(np.sqrt(sum(float((v.double() ** 2).sum()) for n, v in state.items() if "mlp" in n)))


@pytest.mark.slow
def test_one_command_makes_the_page_of_a_series_on_the_hub(tmp_path):
    known = states()
    revisions = {f"step{step}": {"model.safetensors": save(state)} for step, state in known.items()}
    revisions["main"] = revisions[f"step{STEPS[-1]}"]
    with Hub({"owner/name": revisions}) as server:
        environment = os.environ | {"HF_ENDPOINT": server.url, "HF_HUB_DISABLE_TELEMETRY": "1"}
        words = ("report", "hf://owner/name", "--revisions", "step*", "-o", "page.html")
        first = normscope(*words, cwd=tmp_path, env=environment)
        again = normscope(*words, cwd=tmp_path, env=environment)
    assert "name.db: scanned 5 checkpoints" in first.stdout
    assert "ask for them with --spectra" in first.stdout  # they would be read over the network again
    assert "name.db: 5 checkpoints had been scanned before" in again.stdout
    assert not first.stderr  # no progress in a pipe
    points = next(
        t for t in figures(tmp_path / "page.html")["s0-growth"]["traces"] if t["name"] == "measured"
    )
    assert points["x"] == STEPS
    assert np.allclose(points["y"], [norm_of_body(known[step]) for step in STEPS], rtol=1e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["name.db", "page.html"]
    assert re.search(r"hf://owner/name", (tmp_path / "page.html").read_text("utf-8"))
