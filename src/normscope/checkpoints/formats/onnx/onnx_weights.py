"""Which tensors of an ONNX graph are weights, and what they are called: told by the nodes that take them.

A graph stores everything that is constant: weights, but also axes, masks, roots of dimensions, running
statistics. A tensor of floats is a weight if an operation takes it where operations take weights.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from normscope.checkpoints.formats.onnx.onnx_graph import OnnxGraph, OnnxNode

_SECOND = dict.fromkeys(("MatMul", "Gemm", "FusedMatMul", "Einsum", "PRelu", "Linear"), "weight")
_PLACES: Mapping[str, Mapping[int, str]] = {
    **{operator: {0: "weight", 1: "weight", 2: "bias"} for operator in _SECOND},
    **{
        operator: {1: "weight", 2: "bias"}
        for operator in ("Conv", "ConvTranspose", "FusedConv", "LayerNormalization", "GroupNormalization",
                         "InstanceNormalization", "BatchNormalization", "RMSNormalization", "GroupNorm",
                         "SimplifiedLayerNormalization", "FusedGemm", "DeformConv", "Attention", "QAttention")
    },
    **{name: {1: "weight_ih", 2: "weight_hh", 3: "bias", 7: "peepholes"} for name in ("LSTM", "GRU", "RNN")},
    "SkipLayerNormalization": {2: "weight", 3: "bias", 4: "skip_bias"},
    "SkipSimplifiedLayerNormalization": {2: "weight", 3: "skip_bias"},
    "EmbedLayerNormalization": {i + 2: name for i, name in enumerate(
        ("word_embedding", "position_embedding", "segment_embedding", "gamma", "beta"))},
    "MultiHeadAttention": {3: "bias"}, "BiasGelu": {1: "bias"}, "FastGelu": {1: "bias"},
    "Gather": {0: "weight"}, "Embedding": {1: "weight"}, "EmbeddingBag": {1: "weight"},
}  # fmt: skip
"""Operator → where it takes weights, and what they are called there."""
_STATISTICS = {("BatchNormalization", 3): "batch statistics", ("BatchNormalization", 4): "batch statistics"}
_ELEMENTWISE = {"Add": "bias", "Sub": "bias", "Mul": "weight", "Div": "weight"}
_PASSED_ON = frozenset(
    ("Cast", "CastLike", "Transpose", "Identity", "Reshape", "Unsqueeze", "Squeeze", "Slice", "Expand",
     "Flatten", "Split", "Tile", "Concat", "Dropout")
)  # fmt: skip
_QUANTISED = re.compile(
    r"DequantizeLinear|QLinear\w+|\w+Integer\w*|MatMulNBits|MatMulBnb4|GatherBlockQuantized|QGemm|QAttention|QMoE"
    r"|DynamicQuantizeMatMul|QEmbedLayerNormalization"
)
_ANONYMOUS = re.compile(
    r"onnx::\w+|\d+|(?:val|t|_v|v|const|constant|_?tensor|expr|ortshared|initializer|Constant|p)_?\d[\w]*"
    r"|(?:.*/)?\w+_output_\d+\w*|(?:\w+_)?(?:MatMul|Gemm|Transpose)\w*_\d+\w*|"
)
QUANTISED = "quantised: the stored numbers are not the weights"
_FOLLOWED = 8


class Uses:
    """The nodes that take each tensor, directly or after being reshaped, cast or transposed."""

    def __init__(self, graph: OnnxGraph) -> None:
        self._takers: defaultdict[str, list[tuple[OnnxNode, int]]] = defaultdict(list)
        for node in graph.nodes:
            for index, name in enumerate(node.inputs):
                if name:
                    self._takers[name].append((node, index))

    def of(self, name: str, depth: int = 0) -> list[tuple[OnnxNode, int]]:
        """The nodes that do something with a tensor, and at which place they take it."""
        found = []
        for node, index in self._takers.get(name, ())[:100]:
            if node.operator in _PASSED_ON and depth < _FOLLOWED:
                found += [use for output in node.outputs[:4] for use in self.of(output, depth + 1)]
            else:
                found.append((node, index))
            if len(found) > 100:
                break
        return found


def is_quantised(uses: Sequence[tuple[OnnxNode, int]]) -> bool:
    """Whether a tensor is packed numbers, or a scale or zero point of such."""
    return any(_QUANTISED.fullmatch(node.operator) for node, _ in uses)


def why_no_weight(name: str, shape: Sequence[int], uses: Sequence[tuple[OnnxNode, int]]) -> str:
    """Why a tensor of floats is no weight; empty if it is one."""
    statistics = [_STATISTICS.get((node.operator, index)) for node, index in uses]
    if reason := next(filter(None, statistics), None):
        return reason
    if any(index in _PLACES.get(node.operator, ()) for node, index in uses) and shape:
        return ""
    elementwise = any(node.operator in _ELEMENTWISE for node, _ in uses)
    long = sum(size > 1 for size in shape)
    if elementwise and long and (not is_anonymous(name) or long == 1):
        return ""  # a bias or a gain; a mask or a table of positions without a name is a constant
    if long and "." in name and uses and not is_anonymous(name):
        return ""  # the name of a parameter or a buffer in PyTorch: which of them, the rules for names decide
    return _constant(uses)


def _constant(uses: Sequence[tuple[OnnxNode, int]]) -> str:
    operators = sorted({node.operator for node, _ in uses})
    return f"a constant ({', '.join(operators)[:100]})" if operators else "a constant that nothing takes"


def is_anonymous(name: str) -> bool:
    """Whether an exporter made the name up."""
    return _ANONYMOUS.fullmatch(name) is not None


def name_by_use(name: str, uses: Sequence[tuple[OnnxNode, int]]) -> str:
    """The module of the node that takes a tensor, and what the tensor is there; else its own name.

    The node `/model/layers.0/mlp/up_proj/MatMul` names its weight `model.layers.0.mlp.up_proj.weight`.
    """
    if not is_anonymous(name):
        return name
    return next((found for use in uses if (found := place_in_module(*use))), name)


def place_in_module(node: OnnxNode, index: int) -> str:
    """The module of a node and what it takes at a place (`layers.0.norm.weight`); empty if unknown."""
    what = _PLACES.get(node.operator, {}).get(index) or _ELEMENTWISE.get(node.operator, "")
    return f"{node.module}.{what}" if what and node.module else ""
