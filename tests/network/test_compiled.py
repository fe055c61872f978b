"""Compiled models are measured by their Python code, under their own names, and stay compiled."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from normscope.network.measuring.heads import heads
from normscope.network.measuring.homogeneity import homogeneity
from normscope.network.measuring.lookahead import looks_ahead
from normscope.network.measuring.saturation import Limit, saturation
from normscope.network.running.baseline import random_like
from tests.network.models import HandWritten

IDS = torch.randint(0, 50, (2, 6), generator=torch.Generator().manual_seed(0))
LIMIT = Limit((2.0**10,))


class Backend:
    """Runs graphs as they are, and counts how many were compiled."""

    def __init__(self) -> None:
        self.graphs = 0
        self.runs = 0

    def __call__(self, graph, inputs):
        self.graphs += 1

        def run(*args):
            self.runs += 1
            return graph.forward(*args)

        return run


def compiled(how, model, backend):
    if how == "wrapper":
        return torch.compile(model, backend=backend)
    if how == "in place":
        model.compile(backend=backend)
    elif how == "blocks":
        for index, block in enumerate(model.blocks):
            model.blocks[index] = torch.compile(block, backend=backend)
    elif how == "blocks in place":
        for block in model.blocks:
            block.compile(backend=backend)
    return model


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["wrapper", "in place", "blocks", "blocks in place"])
def test_a_compiled_model_is_measured_like_the_plain_one(how):
    torch.manual_seed(0)
    plain, backend = HandWritten(), Backend()
    model = compiled(how, copy.deepcopy(plain), backend)
    with torch.no_grad():
        before = model(IDS)
    graphs, runs = backend.graphs, backend.runs
    weights = [parameter.clone() for parameter in model.parameters()]

    assert saturation(model, [IDS], limit=LIMIT) == saturation(plain, [IDS], limit=LIMIT)
    assert heads(model, [IDS]) == heads(plain, [IDS])
    assert looks_ahead(model, IDS) == looks_ahead(plain, IDS)
    names = [row.module for row in homogeneity(model, [IDS]).degrees]
    assert names == ["blocks.input", "blocks.0", "blocks.1", "output"]
    assert (backend.graphs, backend.runs) == (graphs, runs)  # nothing was compiled, no compiled code ran

    with torch.no_grad():
        assert torch.equal(model(IDS), before)
    assert backend.graphs == graphs and backend.runs > runs  # the same compiled code again
    assert all(torch.equal(one, two) for one, two in zip(weights, model.parameters(), strict=True))


def test_a_compiled_function_inside_a_model():
    backend = Backend()

    @torch.compile(backend=backend)
    def attend(q, k, v):
        return (q @ k.mT).softmax(-1) @ v

    class Model(HandWritten):
        def forward(self, ids):
            x = self.embed(ids)
            for block in self.blocks:
                q, k, v = (
                    part(x).unflatten(-1, (4, -1)).transpose(1, 2)
                    for part in (block.query, block.key, block.value)
                )
                x = x + block.out(attend(q, k, v).transpose(1, 2).flatten(2))
            return x

    model = Model()
    with torch.no_grad():
        model(IDS)
    runs = backend.runs
    found = heads(model, [IDS])
    assert len(found.heads) == 8 and backend.runs == runs


def test_a_random_model_like_a_compiled_one():
    model = torch.compile(HandWritten(), backend="eager")
    fresh = random_like(model, seed=1)
    assert isinstance(fresh, HandWritten) and isinstance(fresh, nn.Module)
    result = saturation(model, [IDS], limit=LIMIT, baseline="random")
    assert all(layer.baseline is not None for layer in result.layers)
