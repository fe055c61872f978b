"""Names for the datasets of Keras's files, in which layers have paths and variables have numbers.

`blocks/block_1/attn/query_dense/vars/0` becomes `blocks.1.attn.query_dense.kernel`. Names that Keras makes up
count on through a session (`dense_17`), so those that the user did not choose are replaced by their place.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from normscope.checkpoints.formats.hdf5.hdf5_tree import Hdf5Array, Hdf5Tree, Path
from normscope.checkpoints.formats.hdf5.keras_variables import (
    RANDOM,
    class_in_words,
    is_random_state,
    variable_names,
)
from normscope.checkpoints.slot_names import OPTIMIZER

_VARIABLES, _LAYERS = "vars", ("layers", "_layer_checkpoint_dependencies")
_METRICS = re.compile(r"_?(?:compile_)?metrics|_?loss_tracker|_?metrics_\w+")
_OPTIMIZER = re.compile(r"_?optimizers?|optimizer_weights")
_COUNTER = re.compile(r"(?:iter|iteration|iterations)(?::0)?")
_OUTPUT = re.compile(r":\d+$")


@dataclass
class NamedDatasets:
    """Name → path of each dataset that belongs to the model; the others with the reason, and the step."""

    paths: dict[str, Path] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    counter: Path | None = None


def name_datasets(tree: Hdf5Tree, classes: Mapping[str, str]) -> NamedDatasets:
    """Names for the datasets of a file; `classes` are those of layers by their own names, as far as known."""
    named = NamedDatasets(skipped=dict(tree.skipped))
    kept = [path for path in tree.datasets if not _skip(named, path, tree.datasets)]
    numbered = [path for path in kept if len(path) > 1 and path[-2] == _VARIABLES]
    layers = _Layers(tree, numbered, classes)
    found = {path: layers.name(path) for path in numbered}
    found |= {path: legacy_name(path) for path in kept if path not in found}
    for path, reason in layers.skipped.items():
        named.skipped[found.pop(path) or "/".join(path)] = reason
    repeated = _repeated(found.values())
    for path, name in found.items():
        named.paths["/".join(path) if name in repeated or not name else name] = path
    if len(named.paths) < len(found):  # a path that is the name of another
        named.paths.clear()
        named.paths.update({"/".join(path): path for path in found})
    if len(named.paths) < len(found):
        raise ValueError("two datasets of one name")
    return named


def legacy_name(path: Path) -> str:
    """The name of a variable in a file of Keras 2, where the layer comes first: `dense/dense/kernel:0`."""
    inside = path[1:] if path[0] == "model_weights" and len(path) > 1 else path
    layer, rest = inside[0], inside[1:]
    if rest and (layer == "top_level_model_weights" or layer in rest[:-1]):
        inside = rest
    return _OUTPUT.sub("", "/".join(inside))


def classes_in_config(config: object) -> dict[str, str]:
    """Class of each layer by its name, from a model's config; names of layers of two classes are left out."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    waiting, visited = [config], 0
    while waiting and visited < 1_000_000:
        value, visited = waiting.pop(), visited + 1
        if isinstance(value, dict):
            kind, inside = value.get("class_name"), value.get("config")
            name = inside.get("name") if isinstance(inside, dict) else None
            if isinstance(kind, str) and isinstance(name, str):
                found[name].add(class_in_words(kind))
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return {name: next(iter(kinds)) for name, kinds in found.items() if len(kinds) == 1}


def _skip(named: NamedDatasets, path: Path, datasets: Mapping[Path, Hdf5Array]) -> bool:
    """Note what is beside the model: the optimizer, from which the step is known, and metrics."""
    first = path[0] if path else ""
    if len(path) > 1 and _OPTIMIZER.fullmatch(first):
        named.skipped[first] = OPTIMIZER
        whole = not datasets[path].shape and datasets[path].dtype in ("int64", "int32")
        if whole and (_COUNTER.fullmatch(path[-1]) or path[1:] == (_VARIABLES, "0")):
            named.counter = path
        return True
    if len(path) > 1 and _METRICS.fullmatch(first):
        named.skipped[first] = "a metric"
        return True
    return False


def _repeated(names: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    return {name for name in names if name in seen or seen.add(name)}  # type: ignore[func-returns-value]


class _Layers:
    """The layers of a model, found in the paths of their numbered variables."""

    def __init__(self, tree: Hdf5Tree, paths: Iterable[Path], classes: Mapping[str, str]) -> None:
        self._tree, self._classes = tree, classes
        self.skipped: dict[Path, str] = {}
        self._variables: defaultdict[Path, list[Path]] = defaultdict(list)
        for path in paths:
            self._variables[path[:-2]].append(path)
        self._children: defaultdict[Path, set[str]] = defaultdict(set)
        for where in self._variables:
            for depth in range(len(where)):
                self._children[where[:depth]].add(where[depth])
        self._named = {
            path[:-1]: found["name"]
            for path, found in tree.attributes.items()
            if path[-1:] == (_VARIABLES,) and found.get("name")
        }
        self._names = {path: name for where in self._variables for path, name in self._leaves(where)}

    def name(self, path: Path) -> str:
        """The name of a variable: its layers from the outermost on, then its own."""
        where = path[:-2]
        nodes = [self._node(where[: depth + 1]) for depth in range(len(where))]
        return ".".join([*filter(None, nodes), self._names[path]])

    def _leaves(self, where: Path) -> list[tuple[Path, str]]:
        paths = sorted(self._variables[where], key=lambda path: (len(path[-1]), path[-1]))
        kind, node = self._kind(where), where[-1] if where else ""
        if is_random_state(kind, node):
            self.skipped |= dict.fromkeys(paths, RANDOM)
        if [path[-1] for path in paths] != [str(index) for index in range(len(paths))]:
            return [(path, path[-1] if not path[-1].isdigit() else f"vars.{path[-1]}") for path in paths]
        names = variable_names(kind, node, [self._tree.datasets[path] for path in paths])
        return list(zip(paths, names, strict=True))

    def _kind(self, where: Path) -> str:
        """The class of a layer: from the config, the name that Keras gave it, or its place in a list."""
        named = self._named.get(where, "")
        if named in self._classes:
            return self._classes[named]
        made_up = re.sub(r"_\d+$", "", named)
        place = re.sub(r"_\d+$", "", where[-1]) if where else ""
        return place if self._in_list(where) else made_up

    def _in_list(self, where: Path) -> bool:
        """Whether a layer is in a list or a dict: the node above is no layer itself."""
        above = where[:-1]
        return len(where) > 1 and (above[-1] in _LAYERS or above not in self._named)

    def _node(self, where: Path) -> str:
        """What one part of a path is called; empty for the list of all layers of a model."""
        part, above = where[-1], where[:-1]
        if part in _LAYERS:
            return "" if len(self._bases(where)) > 1 or not self._composite(where) else "layers"
        if not self._in_list(where):
            return part
        base = re.sub(r"_\d+$", "", part)
        chosen = self._named.get(where, "")
        if chosen and not re.fullmatch(rf"{re.escape(base)}(?:_\d+)?", chosen):
            return chosen.replace("/", "_")
        siblings = self._children[above]
        if f"{base}_1" not in siblings:
            return part
        index = part.removeprefix(f"{base}_") if part != base else "0"
        if not self._children[where]:
            return f"{base}_{index}"
        return index if len(self._bases(above)) == 1 else f"{base}.{index}"

    def _bases(self, above: Path) -> set[str]:
        return {re.sub(r"_\d+$", "", part) for part in self._children[above]}

    def _composite(self, above: Path) -> bool:
        return all(self._children[(*above, part)] for part in self._children[above])
