"""Trials on untrained networks: how their output grows and turns when every parameter is multiplied by c."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from normscope.lab.model import SIZES, Transformer
from normscope.lab.sweep.cells import grid
from normscope.network.measuring.homogeneity import Curve, Degree, homogeneity
from normscope.network.running.scaling import scaled
from normscope.replication.trials.trial_context import Document, TrialContext, kept_document

PAPER_SCALES = tuple(float(c) for c in range(1, 11))
LIMIT = 1000.0  # what the paper takes for the limit
LARGER = 2.0**8  # a norm at which a network that is homogeneous in the limit shows its degree


def scale_networks(settings: Mapping[str, Any], context: TrialContext) -> list[Document]:
    """Return one document per network: scaling curves at c = 1 … 10, and its degree at two norms."""
    cells = grid({**settings["vary"], "seed": list(range(context.seeds))})
    found = []
    for done, cell in enumerate(cells):
        context.progress(done, len(cells), "random networks")
        name = ",".join(f"{key}={value}" for key, value in cell.items())
        found.append(kept_document(context.folder / f"{name}.json", partial(_study, settings, cell)))
    context.progress(len(cells), len(cells), "random networks")
    return found


def _study(settings: Mapping[str, Any], cell: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: cell[name] for name in cell if name != "seed"}
    config = replace(SIZES[settings["size"]], vocab_size=settings["vocab_size"], **fields)
    torch.manual_seed(cell["seed"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the leaking mask says that it leaks
        model = Transformer(config)
    ids = torch.randint(config.vocab_size, (settings["batch"], settings["length"]))
    curve = homogeneity(model, ids, curve=Curve(scales=PAPER_SCALES, reference=LIMIT))
    own = homogeneity(model, ids)
    with scaled(model, LARGER):
        larger = homogeneity(model, ids)
    last = _last_block(curve.degrees)
    return {
        "changes": dict(cell),
        "status": "done",
        "c": list(last.c),
        "cosine": list(last.cosine),
        "cosine_at_1": last.cosine[0],
        "cosine_at_10": last.cosine[-1],
        "degree": _last_block(own.degrees).degree,
        "degree_limit": _last_block(larger.degrees).degree,
        "output_degree_limit": larger.output.degree,
        "exists": float(_last_block(own.degrees).exists),
        "exists_limit": float(_last_block(larger.degrees).exists),
    }


def _last_block(degrees: tuple[Degree, ...]) -> Degree:
    """The last layer before the output, whose degree is that of the encoder."""
    return max((row for row in degrees if row.layer >= 0), key=lambda row: row.layer)
