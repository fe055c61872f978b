"""The graph of objects in TensorFlow 2's checkpoints: what variables are called, and which are copies.

A checkpoint names a variable by its path through Python objects. Keras's exports keep variables in lists, so
that a path ends with a number (`variables/13`), and each of them is stored twice.
tensorflow/core/protobuf/trackable_object_graph.proto
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping

from normscope.checkpoints.base import Folder
from normscope.checkpoints.formats.tensorflow.protobuf import message_field, read_message, read_varint

GRAPH_KEY = b"_CHECKPOINTABLE_OBJECT_GRAPH"
LARGEST_GRAPH = 32_000_000
_NUMBERED = re.compile(r"(?:^|.*/)(?P<list>[^/]+)/(?P<index>\d+)$")
_OF_OPTIMIZER = re.compile(r"^(?:.*/)?_?optimizer/_trainable_variables/\d+$")
COPY = "a copy of a variable that is stored under another name"
NUMBERED = re.compile(r"\D*variables_\d+/[^/]+")
"""A name that says the number of a variable, not its layer."""
NUMBERS_NOTE = (
    "this TensorFlow checkpoint keeps variables in a list, without the names of their layers: the numbers in "
    "their names count variables, and groups by layer or role say little"
)


def stored_text(data: bytes) -> bytes:
    """The text of a variable that is one text: its length, a checksum of that, and its bytes."""
    length, start = read_varint(data, 0)
    return data[start + 4 : start + 4 + length]


def full_names(graph: bytes) -> dict[str, str]:
    """Key of each variable → the name it had in TensorFlow, without the number of its output."""
    found = {}
    for node in message_field(read_message(graph), 1):
        for attribute in message_field(read_message(node), 2):
            texts = read_message(attribute)
            name, key = (
                b"".join(message_field(texts, field)[-1:]).decode("utf-8", "replace") for field in (2, 3)
            )
            found[key] = re.sub(r":\d+$", "", name)
    return found


def is_model_of_optimizer(name: str) -> bool:
    """Whether a variable is the model's, although its path leads through the optimizer that trains it."""
    return _OF_OPTIMIZER.match(name) is not None


def meaningful_names(names: Collection[str], known: Mapping[str, str]) -> dict[str, str]:
    """A name for each variable: in a list, what it was called, and its number if others were called so."""
    listed = [name for name in names if _NUMBERED.match(name) and known.get(name) and not _is_private(name)]
    called = Counter(known[name] for name in listed)
    result = dict(zip(names, names, strict=True))
    for name in listed:
        above, _, last = known[name].rpartition("/")
        number = "_".join(name.split("/")[-2:]).lstrip("_")
        alone = called[known[name]] == 1 and known[name] not in result
        result[name] = known[name] if alone else "/".join(filter(None, (above, number, last)))
    times = Counter(result.values())
    result = {name: found if times[found] == 1 else name for name, found in result.items()}
    return result if len(set(result.values())) == len(result) else dict(zip(names, names, strict=True))


def _is_private(name: str) -> bool:
    """Whether a variable is in a list that only Keras uses, such as `_all_variables`."""
    match = _NUMBERED.match(name)
    return match is not None and match["list"].startswith("_") and not is_model_of_optimizer(name)


def copies(marks: Mapping[str, tuple[object, ...]]) -> set[str]:
    """The variables of private lists (`_all_variables/3`) that a list of the same object has too.

    `marks` are shape, dtype and checksum of each; one of two equal variables is the copy of one only.
    """
    lists = {name: match["list"] for name in marks if (match := _NUMBERED.match(name))}
    public = Counter(marks[name] for name, each in lists.items() if not each.startswith("_"))
    found = set()
    for name in lists:
        if _is_private(name) and public[marks[name]] > 0:
            public[marks[name]] -= 1
            found.add(name)
    return found


def is_saved_model(folder: Folder) -> bool:
    """Whether a folder is a SavedModel with variables."""
    names = folder.names()
    return "saved_model.pb" in names and "variables/" in names and bool(_index(folder.folder("variables/")))


def variables_of(folder: Folder) -> tuple[Folder, str]:
    """The folder of a SavedModel's variables, and the name of their index."""
    inside = folder.folder("variables/")
    return inside, _index(inside)


def _index(folder: Folder) -> str:
    return "variables.index" if "variables.index" in folder.names() else ""
