"""ONNX: external paths that lead out, lengths that lie, graphs inside graphs."""

from .case import add, add_file


def varint(value):
    value %= 1 << 64
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, data):
    """A field of a message: bytes, or an integer."""
    if isinstance(data, int):
        return varint(number << 3) + varint(data)
    return varint(number << 3 | 2) + varint(len(data)) + data


def tensor(name, shape, dtype=1, raw=None, typed=None, extra=b""):
    out = b"".join(field(1, size) for size in shape) + field(2, dtype) + field(8, name.encode())
    out += field(9, raw) if raw is not None else b""
    return out + (field(*typed) if typed else b"") + extra


def external(name, shape, location, offset=0, length=None):
    pairs = {"location": str(location), "offset": str(offset)} | (
        {} if length is None else {"length": str(length)}
    )
    entries = b"".join(field(13, field(1, k.encode()) + field(2, v.encode())) for k, v in pairs.items())
    return tensor(name, shape, extra=entries + field(14, 1))


def node(operator, inputs, outputs, name="", extra=b""):
    out = b"".join(field(1, each.encode()) for each in inputs) + b"".join(
        field(2, o.encode()) for o in outputs
    )
    return out + field(3, name.encode()) + field(4, operator.encode()) + extra


def graph(nodes, tensors):
    return b"".join(field(1, n) for n in nodes) + field(2, b"g") + b"".join(field(5, t) for t in tensors)


def model(content):
    return field(1, 8) + field(7, content) + field(8, field(2, 17))


def one(name, content, says="", code=1):
    add_file(f"onnx: {name}", "step_1.onnx", content, says, code)


def of(*tensors, names=("a.w",)):
    return model(graph([node("MatMul", ["x", each], ["y"]) for each in names], list(tensors)))


def nested(depth):
    inside = graph([], [tensor("a.w", (2,), raw=bytes(8))])
    for _ in range(depth):
        inside = graph([node("If", ["c"], ["y"], "/if", field(5, field(6, inside)))], [])
    return model(inside)


def deep_and_long():
    """A million levels, each a header of a few bytes around the rest; built from the inside."""
    parts, size = [], 0
    for _ in range(1_000_000):
        for number in (6, 5, 1):
            head = varint(number << 3 | 2) + varint(size)
            parts.append(head)
            size += len(head)
    return model(b"".join(reversed(parts)))


SOUND = tensor("a.w", (2, 3), raw=bytes(24))
one("sound", lambda: of(SOUND), code=0)
one("graphs 20 deep", lambda: nested(20), "no model parameters")
one("graphs 100 deep", lambda: nested(100), "nested more than 32")
one("graphs 1,000,000 deep", deep_and_long, "nested more than 32")
one("a path up", lambda: of(external("a.w", (2, 3), "../../etc/passwd")), "not a file of its folder")
one("an absolute path", lambda: of(external("a.w", (2, 3), "/etc/passwd")), "not a file of its folder")
one("a path through dots", lambda: of(external("a.w", (2, 3), "./../x")), "not a file of its folder")
one("no path", lambda: of(external("a.w", (2, 3), "")), "not a file of its folder")
one("an offset below zero", lambda: of(external("a.w", (2, 3), "step_1.onnx", -8)), "the offset of external")
one("an offset of 2^62", lambda: of(external("a.w", (2, 3), "step_1.onnx", 2**58)), "truncated")
one(
    "an offset of words", lambda: of(external("a.w", (2, 3), "step_1.onnx", "0x10")), "the offset of external"
)
one("a length that lies", lambda: of(external("a.w", (2, 3), "step_1.onnx", 0, 2**40)), "needs 24")
one("a size of 2^40", lambda: of(tensor("a.w", (2**40, 3), raw=bytes(24))), "whose shape")
one("sizes whose product is 2^120", lambda: of(tensor("a.w", (2**60, 2**60), raw=b"")), "whose shape")
one("a size below zero", lambda: of(tensor("a.w", (-1, 3), raw=bytes(24))), "impossible")
one("100 axes", lambda: of(tensor("a.w", (1,) * 100, raw=bytes(4))), "impossible")
one(
    "a million axes, packed",
    lambda: of(tensor("a.w", (), raw=b"", extra=field(1, b"\1" * 1_000_000))),
    "integers",
)
one("no values", lambda: of(tensor("a.w", (2, 3))), "no values")
one("values of another dtype", lambda: of(tensor("a.w", (1,), typed=(7, b"\1"))), "another dtype")
one("an unknown dtype", lambda: of(tensor("a.w", (2, 3), dtype=999, raw=bytes(24))), "no model parameters")
one("a name twice", lambda: of(SOUND, SOUND), "appears twice")
one(
    "a name of 2,000 characters",
    lambda: of(tensor("a." * 1000, (1,), raw=bytes(4)), names=("a." * 1000,)),
    "2,000 ch",
)
one("a name of 200 kB", lambda: of(tensor("a" * 200_000, (1,), raw=bytes(4))), "longer than 100,000")
one("no tensors", lambda: model(graph([], [])), "no model parameters")
one("a truncated file", lambda: of(SOUND)[:-3], "")
one(
    "300,000 tensors",
    lambda: of(*[tensor(f"a.{i}", (), raw=bytes(4)) for i in range(300_000)]),
    "too many tensors",
)
one(
    "two million empty nodes",
    lambda: model(field(1, b"") * 2_000_000),
    "too many nodes",
)
one(
    "a tensor that all 2,000 nodes take",
    lambda: model(
        graph([node("Identity", ["a.w"], ["a.w"])] * 2_000 + [node("MatMul", ["x", "a.w"], ["y"])], [SOUND])
    ),
    code=0,
)


def web():
    nodes = [node("Concat", [f"t{i}"] * 50, [f"t{i + 1}"]) for i in range(20)]
    return model(graph(nodes, [tensor("t0", (2,), raw=bytes(8))]))


one("a web of tensors that are passed on", web, "no model parameters")


def linked(folder):
    """A name in the folder that is no file."""
    (folder / "step_1.onnx").write_bytes(of(external("a.w", (2, 3), "data")))
    (folder / "data").mkdir()


add("onnx: a folder in place of data", linked, "not a file of its folder")
