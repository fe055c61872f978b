"""What the words after `saturate` and `homogeneity` name: paths here, hub ids, or a program and its function.

Nothing here imports torch or asks the hub, so that a mistyped path is an error at once.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from pathlib import Path

from normscope.errors import MissingCheckpoints, SourceNotFound
from normscope.network.places.programs import check_program

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?")
_FILE_SUFFIX = re.compile(
    r".*\.(py|pt|pth|pkl|pickle|bin|ckpt|safetensors|gguf|ggml|npy|npz|h5|hdf5|msgpack|onnx|index|json|jsonl"
    r"|txt|zip|tar|gz|db|distcp)"
)
EXPECTED = (
    "expected a Hugging Face folder (config.json and weights), a GGUF file, a hub id such as gpt2 or "
    "OWNER/NAME@REVISION, or a Python file and function such as my_model.py:build"
)


def is_build_reference(source: str) -> bool:
    """Whether a source has the form `file.py:function`."""
    path, _, function = source.rpartition(":")
    return path.endswith(".py") and function.isidentifier()


def is_hub_id(source: str) -> bool:
    """Whether a source is a hub id, such as gpt2 or OWNER/NAME@REVISION, and not a path, even a wrong one.

    `out/checkpoint-5` is a path where there is a folder `out`, and so is a name with the suffix of a
    file, or one that differs by one letter from something here.
    """
    is_path = Path(source).exists() or source.startswith((".", "/", "~"))
    if is_path or _HUB_ID.fullmatch(source) is None or _is_file_name(source):
        return False
    return not _inside_a_folder(source) and _meant_path(source) is None


def check_sources(sources: Sequence[str]) -> None:
    """Raise if a source is a path and nothing exists there; this takes no time."""
    if sources and is_build_reference(sources[0]):
        path, _, name = sources[0].rpartition(":")
        check_program(Path(path), name)
        for source in filter(_is_missing, sources[1:]):
            raise MissingCheckpoints(
                f"{source} does not exist; expected a folder of checkpoints, files or a glob."
            )
        return
    for source in filter(_is_missing, sources):
        if not is_hub_id(source):
            raise SourceNotFound(not_a_model(source))


def _is_missing(source: str) -> bool:
    return "://" not in source and not glob.has_magic(source) and not Path(source).exists()


def not_a_model(source: str) -> str:
    """What to say of a source that is neither a path here nor a hub id."""
    meant = None if Path(source).exists() else _meant_path(source)
    if meant is not None:
        return f"{source} does not exist; did you mean {meant}? A model on the hub is named OWNER/NAME"
    problem = "is not a model" if Path(source).exists() else "does not exist, so it is not a model"
    hub = f" (a model on the hub: hf://{source})" if _is_repository(source) else ""
    return f"{source} {problem}: {EXPECTED}{hub}"


def _meant_path(source: str) -> str | None:
    """The path that a source was probably meant to be, because one letter differs; None if there is none.

    Another digit is another model, not a mistake.
    """
    path = Path(source)
    outer = path if path.parent == Path() or path.parent.is_dir() else path.parent
    names = sorted(other.name for other in outer.parent.iterdir()) if outer.parent.is_dir() else []
    found = next((name for name in names if _one_letter_apart(outer.name, name)), None)
    return None if found is None else str(outer.parent / found / path.relative_to(outer))


def _inside_a_folder(source: str) -> bool:
    path = Path(source)
    return path.parent != Path() and path.parent.is_dir()


def _is_file_name(source: str) -> bool:
    return _FILE_SUFFIX.fullmatch(source.partition("@")[0].lower()) is not None


def _is_repository(source: str) -> bool:
    relative = "/" in source and not source.startswith((".", "/", "~"))
    return relative and _HUB_ID.fullmatch(source) is not None and not _is_file_name(source)


def _one_letter_apart(a: str, b: str) -> bool:
    """Whether one letter was changed, added or left out, or two neighbours exchanged."""
    start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    rest, other = a[start:], b[start:]
    end = next((i for i, (x, y) in enumerate(zip(rest[::-1], other[::-1], strict=False)) if x != y), None)
    end = min(len(rest), len(other)) if end is None else end
    rest, other = rest[: len(rest) - end], other[: len(other) - end]
    swapped = len(rest) == 2 and rest == other[::-1]
    changed = rest + other
    return bool(changed) and (swapped or max(len(rest), len(other)) == 1) and not re.search(r"\d", changed)
