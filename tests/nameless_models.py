"""Transformers whose names say nothing, with the truth about which tensors are embeddings and heads.

They are made of shapes alone: every choice that people make (tied or not, fused or separate projections,
gated or not, grouped heads, experts, biases, positions, the order of the dimensions) is drawn from a seed.
"""

import random
from dataclasses import dataclass, field

WORDS = ("zar", "mip", "lodo", "quib", "ter", "vau", "nox", "hup", "gri", "sael", "yot", "bem", "cru", "dwin")


@dataclass
class Nameless:
    """Names with shapes, in the order of the model, and the names outside the body."""

    layers: int
    width: int
    vocabulary: int
    inner: int
    numbered: bool
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    outside: set[str] = field(default_factory=set)
    tables: set[str] = field(default_factory=set)


def nameless(
    seed: int, layers: int | None = None, numbered: bool = True, embeddings: bool = True
) -> Nameless:
    """A model drawn from a seed; without `numbered` the layers have different names."""
    draw = random.Random(seed)
    layers = layers or draw.randint(1, 12)
    width = draw.choice((32, 48, 64, 96, 128, 192, 256, 384, 768))
    vocabulary = draw.choice((27, 65, 97, 100, 128, 256, 300, 512, 1000, 5003, 32000, 50257))
    inner = draw.choice((width, 2 * width, 4 * width, 8 * width // 3, 100, 172))
    model = Nameless(layers, width, vocabulary, inner, numbered)
    words = draw.sample(WORDS, len(WORDS))
    flipped = draw.random() < 0.25  # input × output, as in JAX
    stack = draw.choice((f"{words[0]}", f"{words[0]}.{words[1]}"))

    def add(name: str, rows: int, columns: int, outside: bool = False, bias: bool = False) -> None:
        model.shapes[f"{name}.weight"] = (columns, rows) if flipped else (rows, columns)
        if bias:
            model.shapes[f"{name}.bias"] = (rows,)
        if outside:
            model.outside |= {key for key in model.shapes if key.startswith(f"{name}.")}

    if embeddings:
        name = f"{words[2]}.weight"
        model.shapes[name] = (vocabulary, width)
        model.outside.add(name)
        model.tables.add(name)
        if draw.random() < 0.5:
            name = draw.choice((words[3], f"{words[3]}.weight"))
            model.shapes[name] = draw.choice(((64, width), (1, 200, width), (1024, width)))
            model.outside.add(name)
    bias, fused, gated = draw.random() < 0.5, draw.random() < 0.5, draw.random() < 0.3
    grouped = draw.choice((width, width, width // 4))
    heads, experts = (draw.choice((0, 0, 0, 4)) for _ in range(2))
    for layer in range(layers):
        at = f"{stack}.{layer}" if numbered else f"{stack}_{chr(97 + layer)}{draw.choice(WORDS)}"
        for part in words[4:6]:
            model.shapes[f"{at}.{part}.weight"] = (width,)
            if bias:
                model.shapes[f"{at}.{part}.bias"] = (width,)
        if heads:
            for head in range(heads):
                for part in words[6:9]:
                    add(f"{at}.{words[9]}.{head}.{part}", width // heads, width)
        elif fused:
            add(f"{at}.{words[6]}", width + 2 * grouped, width, bias=bias)
        else:
            add(f"{at}.{words[6]}", width, width, bias=bias)
            add(f"{at}.{words[7]}", grouped, width, bias=bias)
            add(f"{at}.{words[8]}", grouped, width, bias=bias)
        add(f"{at}.{words[9]}", width, width, bias=bias)
        for expert in [f".{i}" for i in range(experts)] or [""]:
            add(f"{at}.{words[10]}{expert}.{words[11]}", inner, width, bias=bias)
            if gated:
                add(f"{at}.{words[10]}{expert}.{words[12]}", inner, width)
            add(f"{at}.{words[10]}{expert}.{words[13]}", width, inner, bias=bias)
    if embeddings and draw.random() < 0.6:
        add(f"{words[13]}", vocabulary, width, outside=True, bias=draw.random() < 0.5)
        model.tables.add(f"{words[13]}.weight")
    return model
