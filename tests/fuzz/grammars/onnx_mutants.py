"""ONNX: graphs whose shapes, fields, places of external data and names lie."""

from random import Random

from ...checkpoints.hostile.onnx_files import external, field, graph, model, node, tensor
from ..checkpoints_read import read_folder
from ..mutant import Grammar, Mutant, Values
from ..mutations import damaged, integer, name

_OPERATORS = ("MatMul", "Gemm", "Conv", "Gather", "LayerNormalization", "Mul")
_PLACES = ("../x", "/etc/passwd", "", "step_1.onnx")


def _mutant(rng: Random) -> Mutant:
    odd = rng.choice((0.0, 0.1, 0.3))
    nodes, tensors, beside = [], [], b""
    truth: dict[str, Values | None] | None = {}
    for index in range(rng.randrange(1, 5)):
        shape = tuple(rng.randrange(2, 6) for _ in range(rng.randrange(1, 3)))
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        data, title = rng.randbytes(4 * count), f"layers.{index}.weight"
        said = tuple(integer(rng, n) for n in shape) if rng.random() < odd else shape
        title = name(rng).replace("\ud800", "?").replace("\udfff", "?") if rng.random() < odd / 3 else title
        kind = rng.randrange(3)
        if kind == 2:
            offset, length = len(beside), len(data)
            where = (
                "step_1.onnx.data"
                if rng.random() > odd
                else rng.choice(("../x", "/etc/passwd", "", "step_1.onnx"))
            )
            if rng.random() < odd:
                offset, length = integer(rng, offset), integer(rng, length)
            tensors.append(external(title, said, where, offset, length))
            beside += data
        else:
            dtype = 1 if rng.random() > odd / 2 else rng.randrange(30)
            options = (
                {"raw": data}
                if kind == 0
                else {"typed": (4 if rng.random() > odd else rng.randrange(12), data)}
            )
            tensors.append(tensor(title, said, dtype, **options))
        if odd:
            truth = None
        elif truth is not None:
            truth[title] = Values(shape, data, "float32")
        nodes.append(node(rng.choice(_OPERATORS), ["x", title], [f"y{index}"], f"/layers.{index}/Op"))
        if nodes[-1].find(b"Gather") >= 0:
            nodes[-1] = node("Gather", [title, "x"], [f"y{index}"])
    content = graph(nodes, tensors)
    for _ in range(rng.randrange(3) if rng.random() < odd else 0):
        content = graph([node("If", ["c"], ["y"], "/if", field(5, field(6, content)))], [])
    data = model(content)
    if rng.random() < odd:
        data = damaged(rng, data, rng.randrange(1, 4))
    return Mutant({"step_1.onnx": data, "step_1.onnx.data": beside}, truth, sound=not odd)


ONNX = Grammar("onnx", _mutant, read_folder)
