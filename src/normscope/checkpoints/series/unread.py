"""What looks like a checkpoint in a folder and is not read: it is named, so that nothing is lost unsaid."""

from __future__ import annotations

import os
import re
from collections.abc import Collection

from normscope.checkpoints.base import Folder
from normscope.checkpoints.formats.other_layouts import beside_weights, layout_by_name, layout_of
from normscope.checkpoints.formats.registry import file_suffixes, recognise_folder
from normscope.checkpoints.limits import is_text
from normscope.checkpoints.series.file_groups import IGNORED, find_file_checkpoints, is_other_file
from normscope.checkpoints.series.names import names_step, parse_label
from normscope.checkpoints.storage.local import LocalFolder
from normscope.errors import CheckpointError
from normscope.remarks import LeftOut
from normscope.words import natural_key, printable, some

NOT_TEXT = "its name is not valid UTF-8; rename it to read it"
DEEPEST = 3
"""How many levels of subfolders are looked at."""
_MODEL = re.compile(r"\.ot$", re.IGNORECASE)
_ARCHIVE = re.compile(r"\.(zip|tar|tgz|gz|xz|zst|7z|pb|params|weights)$", re.IGNORECASE)
_CONTENT = re.compile(r"ggml|ggjt|\.(ggml|engine|plan|ort|tflite|mnn)$", re.IGNORECASE)
"""Names of files whose content is looked at, although no format claims them."""
_UNFINISHED = re.compile(r"\.(tmp|part|incomplete)$", re.IGNORECASE)


def unread_files(folder: Folder, read: Collection[str]) -> list[LeftOut]:
    """The files of a folder that are models by their names, in a format that is not read."""
    files = [n for n in folder.names() if not n.endswith("/") and n not in read and is_text(n)]
    reasons = ((name, _layout(folder, name) or _reason(name)) for name in files if not IGNORED.match(name))
    packages = ((name, layout_by_name(name)) for name in folder.names() if name.endswith("/"))
    unnamed = [LeftOut(printable(name), NOT_TEXT) for name in folder.names() if not is_text(name)]
    known = [LeftOut(printable(name), str(layout)) for name, layout in packages if layout]
    return [*(LeftOut(name, reason) for name, reason in reasons if reason), *known, *unnamed]


def beside_models(folder: Folder) -> list[LeftOut]:
    """The files of a folder that belong to its model and are not its weights, told by their content."""
    names = [name for name in folder.names() if not name.endswith("/") and is_text(name)]
    return [LeftOut(name, _layout(folder, name)) for name in names if is_other_file(folder, name)]


def known_layouts(folder: Folder) -> list[str]:
    """What the files of a folder are that cannot be read, each as a sentence."""
    found = ((name, _layout(folder, name)) for name in folder.names() if is_text(name))
    return [f"{printable(name)} is {words}" for name, words in found if words]


def _layout(folder: Folder, name: str) -> str:
    """The layout of a file and what to scan instead, if it is known; its content is read if it may be one."""
    if name.endswith("/"):
        return str(layout_by_name(name) or "")
    if is_other_file(folder, name):
        return str(beside_weights(folder.file(name)) or "")
    if (layout := layout_by_name(name)) is not None or not _CONTENT.search(name):
        return str(layout or "")
    try:
        return str(layout_of(folder.file(name)) or "")
    except CheckpointError:
        return ""


def unread_folder(folder: Folder, name: str) -> list[LeftOut]:
    """A folder that is named after a step, although no model in it can be read."""
    if not names_step(name):
        return []
    inside = folder.names()
    reason = f"contains no checkpoint, only {some(inside)}" if inside else "is empty"
    return [LeftOut(name, reason)]


def folders_with_models(folder: Folder, depth: int = 0) -> list[str]:
    """The subfolders of a folder that contain a checkpoint at some level."""
    return [
        name.rstrip("/")
        for name in subfolders(folder)
        if _has_model(child := folder.folder(name))
        or (depth < DEEPEST and folders_with_models(child, depth + 1))
    ]


def subfolders(folder: Folder) -> list[str]:
    """The names of the subfolders that may contain checkpoints, each with a slash at its end."""
    names = [name for name in folder.names() if name.endswith("/") and not IGNORED.match(name)]
    return sorted((name for name in names if is_text(name) and _is_listable(folder, name)), key=natural_key)


def unlistable_folders(folder: Folder) -> list[LeftOut]:
    """The subfolders that cannot be listed: they may not be read, or are gone."""
    names = [name for name in folder.names() if name.endswith("/") and not IGNORED.match(name)]
    return [
        LeftOut(name, "cannot be listed")
        for name in names
        if is_text(name) and not _is_listable(folder, name)
    ]


def _is_listable(folder: Folder, name: str) -> bool:
    if not isinstance(folder, LocalFolder):
        return True  # an error of the network ends the scan
    return os.access(folder.path / name, os.R_OK | os.X_OK)


def _has_model(folder: Folder) -> bool:
    files = find_file_checkpoints(folder)
    return (
        any(parse_label(found.label).kind != "state" for found in files)
        or recognise_folder(folder) is not None
    )


def _reason(name: str) -> str:
    label = parse_label(name)
    if _UNFINISHED.search(name):
        whole = _UNFINISHED.sub("", name).lower().endswith(file_suffixes())
        return "an unfinished copy, by its name" if whole else ""
    says_which = label.number is not None or label.kind not in ("plain", "several", "state")
    unknown = "." not in name and names_step(name)
    if _MODEL.search(name) or unknown or (_ARCHIVE.search(name) and says_which):
        return "a model in a format that is not read, by its name" if "." in name else "no known format"
    return ""
