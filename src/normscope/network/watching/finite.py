"""Whether a network's own states are finite: a model that computes NaN is not the fault of scaling."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from normscope.network.running.batches import Batch
from normscope.network.running.eval_mode import evaluating
from normscope.network.watching.block_lists import BlockList
from normscope.network.watching.hidden_states import OUTPUT, Edge, first_states, real_tokens, visiting


def first_nonfinite(model: nn.Module, batches: Sequence[Batch], lists: Sequence[BlockList]) -> str | None:
    """The first block, or `output`, at which states of real tokens are NaN or infinite; None if none are.

    The model is run as it is. What is found is the module where it appears first, in the first such batch.
    """
    for batch in batches:
        found: list[str] = []

        def look(edge: Edge, states: Tensor, batch: Batch = batch, found: list[str] = found) -> None:
            if not found and not bool(real_tokens(states, edge, batch).isfinite().all()):
                found.append(edge.module)

        with evaluating(model), visiting(model, lists, look):
            output = first_states(batch.run(model))
        if output is not None:
            look(OUTPUT, output)
        if found:
            return found[0]
    return None


def blame_for_nonfinite(model: nn.Module, batches: Sequence[Batch], lists: Sequence[BlockList]) -> str | None:
    """A sentence that names where the unscaled model computes NaN or infinity; None if it does not."""
    where = first_nonfinite(model, batches, lists)
    if where is None:
        return None
    return (
        f"the model itself, unscaled, computes NaN or infinite states, first at {where}: this is not caused "
        "by scaling; check its weights, its inputs and its dtype"
    )
