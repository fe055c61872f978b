"""Quantised weights whose parts lie: shapes that do not fit, groups of nothing, bombs as descriptions."""

import json
import struct

from .case import add

_WIDTHS = {"F32": 4, "F16": 2, "F8_E4M3": 1, "U8": 1, "I8": 1, "I32": 4, "I64": 8}
LEFT = "left out"


def content(parts, metadata=None):
    """A safetensors file of a norm and these parts: name → (dtype, shape[, bytes])."""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, (dtype, shape, *given) in {"norm.weight": ("F32", [2]), **parts}.items():
        size = _WIDTHS[dtype]
        for n in shape:
            size *= n
        raw = given[0] if given else b"\1" * size
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def one(name, parts, says="", code=0, config=None, metadata=None):
    """A case; parts that take long to write are made when it is written."""

    def write(folder):
        made = parts() if callable(parts) else parts
        inside = folder / "step_1"
        inside.mkdir()
        (inside / "model.safetensors").write_bytes(content(made, metadata))
        if config is not None:
            text = config if isinstance(config, str) else json.dumps({"quantization_config": config})
            (inside / "config.json").write_text(text)

    add(f"quantised: {name}", write, says, code)


def float8(scale, weight=(4, 4)):
    return {"l.weight": ("F8_E4M3", list(weight)), "l.weight_scale": ("F32", list(scale))}


def four_bits(state, **others):
    """A weight of bitsandbytes with 64 elements in blocks of 32; `state` is the JSON beside it."""
    text = state if isinstance(state, bytes) else json.dumps(state).encode()
    parts = {
        "l.weight": ("U8", [32, 1]), "l.weight.absmax": ("F32", [2]), "l.weight.quant_map": ("F32", [16]),
        "l.weight.quant_state.bitsandbytes__nf4": ("U8", [len(text)], text),
    }  # fmt: skip
    return parts | others


STATE = {"quant_type": "nf4", "blocksize": 32, "shape": [8, 8], "dtype": "float32"}
NESTED = STATE | {"nested_blocksize": 256, "nested_offset": 0.5, "nested_dtype": "float32"}

one("float8, sound", float8([4, 1]), "dequantised from")
one("a scale of a wrong shape", float8([3, 1]), LEFT)
one("a scale of no elements", float8([0]), LEFT)
one("a scale of sixty axes", float8([1] * 60), "dequantised from")
one("a scale of another dtype", {"l.weight": ("F8_E4M3", [4]), "l.weight_scale": ("I64", [1])}, LEFT)
one("a weight of no elements", float8([1], [4, 0]), LEFT)
one("a weight without axes", float8([1], []), LEFT)
one("a row of 20 million elements", lambda: float8([1], [20_000_000]), LEFT)
SMALL = {"weight": ("F8_E4M3", [1, 1]), "weight_scale": ("F32", [1, 1])}
one(
    "5,000 weights of one element",
    lambda: {f"l{i}.{last}": part for i in range(5_000) for last, part in SMALL.items()},
    "dequantised from",
)
one("block sizes of 0", float8([2, 2]), "dequantised from", config={"weight_block_size": [0, 0]})
one("block sizes that are text", float8([2, 2]), "dequantised from", config={"weight_block_size": "x" * 1000})
one("block sizes of 2^100", float8([2, 2]), LEFT, config={"weight_block_size": [2**100, 2**100]})
one("a thousand block sizes", float8([2, 2]), "dequantised from", config={"weight_block_size": [2] * 1000})
one("a config of brackets", float8([4, 1]), "dequantised from", config={"a": [[]] * 1000})
one("a config that is no JSON", float8([2, 2]), "config.json", code=1, config="{")
one("a config nested 100,000 deep", float8([2, 2]), "config.json", code=1, config="[" * 100_000)
one("settings that are a list", float8([4, 1]), "dequantised from", config='{"quantization_config": []}')

one("nf4, sound", four_bits(STATE), "dequantised from nf4")
one("2^40 elements", four_bits(STATE | {"shape": [2**20, 2**20]}), LEFT)
one("a shape of 2^63", four_bits(STATE | {"shape": [2**63, 1]}), LEFT)
one(
    "a shape of 10^4000",
    four_bits(b'{"quant_type":"nf4","blocksize":32,"shape":[1' + b"0" * 4000 + b"]}"),
    LEFT,
)
one("no shape", four_bits(STATE | {"shape": None}), LEFT)
one("a shape of a thousand axes", four_bits(STATE | {"shape": [1] * 1000}), LEFT)
one("a shape below zero", four_bits(STATE | {"shape": [-8, -8]}), LEFT)
one("a block size of 0", four_bits(STATE | {"blocksize": 0}), LEFT)
one("a block size of 3", four_bits(STATE | {"blocksize": 3}), LEFT)
one("a block size of 2^62", four_bits(STATE | {"blocksize": 2**62}), LEFT)
one("another type than its name", four_bits(STATE | {"quant_type": "fp4"}), LEFT)
one("a state that is no JSON", four_bits(b"\xff\xfe"), LEFT)
one("a state of brackets", four_bits(b"[" * 60_000), LEFT)
one("a state of a megabyte", lambda: four_bits(b" " * 1_000_000), LEFT)
one("a state with a key twice", four_bits(b'{"shape": [8, 8], "shape": [8, 8]}'), LEFT)
one("scales of scales that are missing", four_bits(NESTED), LEFT)
one("scales of scales in a circle", four_bits(NESTED, **{
    "l.weight.absmax": ("U8", [2]), "l.weight.nested_absmax": ("U8", [2]),
    "l.weight.nested_quant_map": ("F32", [256]),
    "l.weight.absmax.nested_absmax": ("U8", [2]), "l.weight.nested_absmax.absmax": ("F32", [2]),
}), LEFT)  # fmt: skip
one("an offset that is not finite", four_bits(NESTED | {"nested_offset": float("nan")}, **{
    "l.weight.absmax": ("U8", [2]), "l.weight.nested_absmax": ("F32", [1]),
    "l.weight.nested_quant_map": ("F32", [256]),
}), LEFT)  # fmt: skip
one("one level only", four_bits(STATE, **{"l.weight.quant_map": ("F32", [1])}), LEFT)


def gptq(qweight=(8, 32), qzeros=(2, 4), scales=(2, 32), g_idx=(64,), index=None):
    parts = {"l.qweight": ("I32", list(qweight)), "l.qzeros": ("I32", list(qzeros))}
    raw = struct.pack("<64i", *(index or [0] * 64)) if g_idx == (64,) else None
    given = ("I32", list(g_idx), raw) if raw is not None else ("I32", list(g_idx))
    return parts | {"l.scales": ("F16", list(scales)), "l.g_idx": given}


GPTQ = {"quant_method": "gptq", "bits": 4}
one("GPTQ, sound", gptq(), "dequantised from int4", config=GPTQ)
one("groups of nothing", gptq(qzeros=(0, 4), scales=(0, 32)), LEFT, config=GPTQ)
one("a group for every other input", gptq(g_idx=(32,)), LEFT, config=GPTQ)
one("groups below zero", gptq(index=[-1] * 64), "names groups", code=1, config=GPTQ)
one("groups of 2^31", gptq(index=[2**31 - 1] * 64), "names groups", code=1, config=GPTQ)
one("seven bits", gptq(qzeros=(2, 7)), LEFT, config=GPTQ)
one("scales that are no matrix", gptq(scales=(64,)), LEFT, config=GPTQ)
one("no outputs", gptq((8, 0), (2, 0), (2, 0)), LEFT, config=GPTQ)


def packed_rows(shape=(4, 32), words=4, scale=(4, 1)):
    sizes = struct.pack("<2q", *shape)
    return {
        "l.weight_packed": ("I32", [4, words]), "l.weight_scale": ("F32", list(scale)),
        "l.weight_shape": ("I64", [2], sizes),
    }  # fmt: skip


one("packed rows, sound", packed_rows(), "dequantised from int4")
one("packed rows of 2^40", packed_rows((4, 2**40)), LEFT)
one("packed rows below zero", packed_rows((-4, -32)), LEFT)
one("packed rows of other rows", packed_rows((5, 32)), LEFT)
one("packed rows with groups of nothing", packed_rows(scale=(4, 0)), LEFT)
one("packed rows with more groups than columns", packed_rows(scale=(4, 64)), LEFT)
one("MXFP4 with groups of nothing", {"e_blocks": ("U8", [2, 4, 0, 16]), "e_scales": ("U8", [2, 4, 0])}, LEFT)
one("MXFP4 without scales for all", {"e_blocks": ("U8", [2, 4, 2, 16]), "e_scales": ("U8", [2, 4, 1])}, LEFT)
AO = {"l._weight_qdata": ("I8", [4, 4]), "l._weight_scale": ("F32", [4, 1])}
one("torchao, sound", AO, "dequantised", metadata={"l.weight": '{"_type": "Int8Tensor", "_data": {}}'})
one("torchao with metadata of brackets", AO, LEFT, metadata={"l.weight": "[" * 90_000})
one("torchao with metadata of a megabyte", AO, LEFT, metadata={"l.weight": " " * 1_000_000})
one("torchao with a class that is a number", AO, LEFT, metadata={"l.weight": '{"_type": 1, "_data": 2}'})
