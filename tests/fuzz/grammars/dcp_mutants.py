"""torch.distributed.checkpoint: chunks that overlap, are missing or shared; judged by what was written."""

from pathlib import Path
from random import Random

import numpy as np

from ...checkpoints.hostile import dcp_folders as dcp
from ...checkpoints.hostile.pickles import archive, entries, named, storage, tensor, text
from ..checkpoints_read import read_folder
from ..mutant import Answer, Grammar, Mutant, Undecided, Values
from ..mutations import damaged
from .torch_mutants import odd_number


def _dcp(rng: Random) -> Mutant:
    """Chunks of tensors: overlapping, missing, shared, of other sizes than their archives."""
    odd = rng.choice((0.0, 0.1, 0.3))
    file, state, stored = b"", [], []
    truth: dict[str, Values | None] = {}
    for key in ("w", "layer.0.b"):
        rows, columns, cut = rng.randrange(2, 5), rng.randrange(1, 4), 1
        array = np.frombuffer(rng.randbytes(4 * rows * columns), "<f4").reshape(rows, columns)
        listed, exact = b"", True
        for first, last in ((0, cut), (cut, rows)):
            part = archive(
                tensor((last - first, columns), (columns, 1), 0, storage("0", (last - first) * columns)),
                {"0": array[first:last].tobytes()},
            )
            at, offset, length = (first, 0), len(file), len(part)
            size = (last - first, columns)
            file += part
            if rng.random() < odd:
                at = (odd_number(rng, first, 0.5), odd_number(rng, 0, 0.2))
            if rng.random() < odd:
                size = (odd_number(rng, last - first, 0.5), odd_number(rng, columns, 0.2))
            if rng.random() < odd:
                offset, length = odd_number(rng, offset, 0.5), odd_number(rng, length, 0.5)
            same = (at, size, offset, length) == (
                (first, 0),
                (last - first, columns),
                len(file) - len(part),
                len(part),
            )
            exact = exact and same
            repeat = 2 if rng.random() < odd / 3 else 1
            exact = exact and repeat == 1
            listed += dcp.chunk(at, size) * repeat
            if rng.random() > odd / 6:
                stored.append((dcp.index(key, at), dcp.place(offset, length, "__0_0.distcp")))
        shape = tuple(odd_number(rng, size, odd / 2) for size in array.shape)
        dtype = named(
            "torch", rng.choice(("float32", "float16", "nonsense")) if rng.random() < odd / 3 else "float32"
        )
        state.append((text(key), dcp.described(shape, listed, dtype)))
        truth[key] = (
            Values(array.shape, array.tobytes(), "float32") if exact and shape == array.shape else None
        )
    content = dcp.metadata(entries(*state), entries(*stored))
    if rng.random() < odd:
        which = rng.random() < 0.7
        content, file = (damaged(rng, content), file) if which else (content, damaged(rng, file))
        truth = {}
    return Mutant({"step_1/.metadata": content, "step_1/__0_0.distcp": file}, truth or None, sound=not odd)


def _judge_dcp(mutant: Mutant, folder: Path, answer: Answer | None) -> str | None:
    """A tensor that lies about its parts may still be read if the lie changes nothing: its bytes decide."""
    if answer is None or mutant.truth is None:
        raise Undecided
    for one, values in answer.tensors.items():
        right = mutant.truth.get(one)
        if right is not None and (values.shape, values.data) != (right.shape, right.data):
            return f"{one!r} is {values!r:.200}, expected {right!r:.200}"
    return None


DCP = Grammar("dcp", _dcp, read_folder, _judge_dcp)
