"""The graph in an ONNX file: its nodes, and the tensors stored in it, in sub-graphs too.

https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from normscope.checkpoints.formats.onnx.proto_file import LENGTH, ProtoField, ProtoFile
from normscope.checkpoints.limits import AXES, limits

_MODEL_GRAPH, _MODEL_FUNCTION = 7, 25
_NODE, _INITIALIZER, _SPARSE = 1, 5, 15
_FUNCTION_NODE = 7
_INPUT, _OUTPUT, _NAME, _OPERATOR, _ATTRIBUTE, _METADATA = 1, 2, 3, 4, 5, 9
_SCOPES = "pkg.torch.onnx.name_scopes"
"""Where torch's exporter says in which modules a node is: "['', 'layers.0', 'layers.0.mlp', 'linear']"."""
_ATTRIBUTE_TENSOR, _ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS = 5, 6, 11
_DIMS, _DTYPE, _TENSOR_NAME, _RAW, _EXTERNAL, _LOCATION = 1, 2, 8, 9, 13, 14
_TYPED = {4: "float", 5: "int32", 7: "int64", 10: "double", 11: "uint64"}
_DEEPEST = 32
_TENSORS_AND_NODES = 1_000_000


@dataclass(frozen=True)
class StoredTensor:
    """A TensorProto: `raw` or `typed` say where its bytes are in the file, `external` where in another.

    `scope` are the names of the nodes around the sub-graph in which it is.
    """

    name: str
    shape: tuple[int, ...]
    dtype: int
    raw: ProtoField | None
    typed: tuple[tuple[str, ProtoField], ...]
    external: dict[str, str]
    scope: str


@dataclass(frozen=True)
class OnnxNode:
    """An operation: its name, its operator, the tensors that it takes and gives, and the module it is of."""

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    module: str


@dataclass
class OnnxGraph:
    """All nodes and stored tensors of a model; names in a sub-graph are those of the graph around it."""

    nodes: list[OnnxNode] = field(default_factory=list)
    tensors: list[StoredTensor] = field(default_factory=list)
    sparse: int = 0


def looks_like_a_model(proto: ProtoFile) -> bool:
    """Whether the fields are those of a ModelProto: a version first, a graph, nothing that is unknown."""
    known = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
    found = set()
    try:
        for index, each in enumerate(proto.fields(0, proto.file.size)):
            if known.get(each.number) != each.kind or (index == 0 and (each.number != 1 or each.value > 99)):
                return False
            found.add(each.number)
            if index > 10_000:
                return False
    except (ValueError, IndexError):
        return False
    return _MODEL_GRAPH in found


def read_graph(proto: ProtoFile) -> OnnxGraph:
    """Read the nodes and the places of the tensors of a model."""
    found = OnnxGraph()
    reader = _Reader(proto, found)
    for each in proto.fields(0, proto.file.size):
        if each.number == _MODEL_GRAPH and each.kind == LENGTH:
            reader.graph(each, "", 0, _NODE)
        elif each.number == _MODEL_FUNCTION and each.kind == LENGTH:
            reader.graph(each, "", 0, _FUNCTION_NODE)
    return found


class _Reader:
    """Collects what is in graphs and in the graphs inside them."""

    def __init__(self, proto: ProtoFile, found: OnnxGraph) -> None:
        self.proto, self.found = proto, found

    def graph(self, place: ProtoField, scope: str, depth: int, node: int) -> None:
        """Read a graph, or a function, in which nodes have another number."""
        if depth > _DEEPEST:
            raise ValueError(f"graphs are nested more than {_DEEPEST} deep")
        for each in self._parts(place):
            if each.number == node:
                self._node(each, scope, depth)
            elif node == _NODE and each.number == _INITIALIZER:
                self._add(self._tensor(each, scope))
            elif node == _NODE and each.number == _SPARSE:
                self.found.sparse += 1

    def _parts(self, place: ProtoField) -> Iterator[ProtoField]:
        return (each for each in self.proto.fields(place.start, place.stop) if each.kind == LENGTH)

    def _node(self, place: ProtoField, scope: str, depth: int) -> None:
        texts: dict[int, list[str]] = {_INPUT: [], _OUTPUT: [], _NAME: [], _OPERATOR: []}
        attributes, scopes = [], ""
        for each in self._parts(place):
            if each.number in texts:
                texts[each.number].append(self.proto.text(each))
            elif each.number == _METADATA:
                key, value = self._pair(each)
                scopes = value if key == _SCOPES else scopes
            elif each.number == _ATTRIBUTE:
                attributes.append(each)
        name, operator = "".join(texts[_NAME][-1:]), "".join(texts[_OPERATOR][-1:])
        outputs = tuple(texts[_OUTPUT])
        self.found.nodes.append(
            OnnxNode(name, operator, tuple(texts[_INPUT]), outputs, _module(name, scopes))
        )
        self._check()
        inside = f"{scope}/{name}" if scope else name
        for attribute in attributes:
            for each in self._parts(attribute):
                if each.number in (_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS):
                    self.graph(each, inside, depth + 1, _NODE)
                elif each.number == _ATTRIBUTE_TENSOR and operator == "Constant" and outputs:
                    self._add(self._tensor(each, scope, outputs[0]))

    def _add(self, tensor: StoredTensor) -> None:
        self.found.tensors.append(tensor)
        self._check()

    def _check(self) -> None:
        if len(self.found.nodes) + len(self.found.tensors) > _TENSORS_AND_NODES:
            raise ValueError(f"too many nodes and tensors (limit {_TENSORS_AND_NODES:,})")
        if len(self.found.tensors) > limits().tensors:
            raise ValueError(f"too many tensors (limit {limits().tensors:,})")

    def _tensor(self, place: ProtoField, scope: str, name: str = "") -> StoredTensor:
        shape: list[int] = []
        external: dict[str, str] = {}
        typed: list[tuple[str, ProtoField]] = []
        dtype, raw = 0, None
        for each in self.proto.fields(place.start, place.stop):
            if each.number == _DIMS:
                shape += self.proto.integers(each, AXES)
            elif each.number == _DTYPE:
                dtype = each.value
            elif each.number == _TENSOR_NAME and not name:
                name = self.proto.text(each)
            elif each.number == _RAW and each.kind == LENGTH:
                raw = each
            elif each.number in _TYPED and each.stop > each.start:
                typed.append((_TYPED[each.number], each))
            elif each.number == _EXTERNAL:
                key, value = self._pair(each)
                external[key] = value
        if len(shape) > AXES or any(not 0 <= size < 1 << 62 for size in shape):
            raise ValueError(f"the shape of {name[:80]!r} is impossible")
        return StoredTensor(name, tuple(shape), dtype, raw, tuple(typed[:1000]), external, scope)

    def _pair(self, place: ProtoField) -> tuple[str, str]:
        pair = {part.number: self.proto.text(part) for part in self._parts(place) if part.number in (1, 2)}
        return pair.get(1, ""), pair.get(2, "")


def _module(name: str, scopes: str) -> str:
    """The module of a node, from the names around it, or from its own: `/layers.0/mlp/up_proj/MatMul`."""
    listed: list[str] = re.findall(r"'([^']*)'", scopes)
    if len(listed) > 1:
        return listed[-2]
    return name.strip("/").rpartition("/")[0].replace("/", ".")
