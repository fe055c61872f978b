"""Which files and folders below a folder are checkpoints, and which of them may form a series."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path

from normscope.checkpoints.base import WIDTHS, Folder
from normscope.checkpoints.formats.registry import recognise_folder
from normscope.checkpoints.series.file_groups import FoundCheckpoint, find_file_checkpoints, trainer_step
from normscope.checkpoints.series.names import names_step, parse_label, strip_suffix
from normscope.checkpoints.series.parts import refuse_parts
from normscope.checkpoints.series.unread import (
    DEEPEST,
    beside_models,
    folders_with_models,
    subfolders,
    unlistable_folders,
    unread_files,
    unread_folder,
)
from normscope.errors import CheckpointError
from normscope.remarks import LeftOut
from normscope.words import natural_key, some

# A folder often contains one model in several formats; the first of these names is used.
_PREFERRED: tuple[str, ...] = ("model", "pytorch_model", "consolidated.00", "consolidated")
_PREFERRED += ("diffusion_pytorch_model", "flax_model", "diffusion_flax_model")


@dataclass(frozen=True)
class Discovery:
    """The checkpoints below a folder, unordered; those that are not read; what the user should know."""

    checkpoints: tuple[FoundCheckpoint, ...]
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()


def find_series(folder: Folder, depth: int = 0) -> Discovery:
    """The checkpoints that may form the series in a folder.

    These are its files and its subfolders with one checkpoint each, and those in subfolders named after
    stages; if none of them is numbered, those of the only subfolder that contains several (`checkpoints/`).
    """
    if whole := _folder_checkpoint(folder, _own_label(folder)):
        return Discovery((whole,))
    files = [_with_trainer_step(folder, found) for found in find_file_checkpoints(folder)]
    singles, groups, unread = _find_below(folder, depth)
    unread += unread_files(folder, {name for found in files for name in found.files})
    parents = {name: group for name, group in groups.items() if _is_parent(name, group)}
    others = {name: group for name, group in groups.items() if name not in parents}
    direct = _flattened(Discovery((*files, *singles), tuple(unread)), parents)
    if any(parse_label(found.label).number is not None for found in direct.checkpoints):
        not_read = [_not_read(name, group) for name, group in others.items()]
        return replace(direct, left_out=(*direct.left_out, *not_read))
    if others:
        _refuse_several(folder, others)
        return _flattened(direct, others)
    several = len(files) > 1 and any(parse_label(found.label).kind == "final" for found in files)
    if files and not several and (single := find_single(folder, _own_label(folder))):
        reason = f"another model in a subfolder; {single.files[0]} is read"
        beside = {each.label.rsplit("/", 1)[-1] for each in single.beside}
        unread += [LeftOut(each.label, reason) for each in singles if each.label not in beside]
        return Discovery((single,), tuple(unread))
    if files:
        unread += [
            LeftOut(f"{each.label}/", "in a subfolder; give it as the source to read it") for each in singles
        ]
    return Discovery(tuple(files or singles), tuple(unread))


def _find_below(
    folder: Folder, depth: int
) -> tuple[list[FoundCheckpoint], dict[str, Discovery], list[LeftOut]]:
    """The subfolders that contain one checkpoint, those that contain several, and those that should."""
    singles: list[FoundCheckpoint] = []
    groups: dict[str, Discovery] = {}
    unread: list[LeftOut] = []
    for name in subfolders(folder):
        child = folder.folder(name)
        if not _has_series(child, name) and (single := find_single(child, name.rstrip("/"))):
            own = single.label.split("/")[0] == name.rstrip("/")
            singles += [single] if own else []
            groups |= {} if own else {name.rstrip("/"): Discovery((single,))}
        elif depth < DEEPEST and (inner := find_series(child, depth + 1)).checkpoints:
            groups[name.rstrip("/")] = inner
        else:
            unread += unread_folder(child, name.rstrip("/"))
    unread += unlistable_folders(folder)
    return singles, groups, unread


def _has_series(folder: Folder, name: str) -> bool:
    """Whether a folder that names no step contains folders that do: its own model is only the last one."""
    return parse_label(name).number is None and any(map(names_step, folders_with_models(folder)))


def find_single(folder: Folder, label: str, depth: int = 0) -> FoundCheckpoint | None:
    """The checkpoint, if a folder contains exactly one."""
    if whole := _folder_checkpoint(folder, label):
        return whole
    files = [found for found in find_file_checkpoints(folder) if parse_label(found.label).kind != "state"]
    if chosen := _one_file(folder, files):
        beside = tuple(LeftOut(f"{label}/{found.label}", reason) for found, reason in _others(chosen, files))
        beside += tuple(LeftOut(f"{label}/{other.label}", other.reason) for other in beside_models(folder))
        named = replace(chosen, label=_inner_label(label, chosen.label), beside=beside)
        named = replace(named, stored_step=lambda: trainer_step(folder))
        return _main_model(folder, label, named, depth, usual=chosen.label in _PREFERRED)
    return None if files else _single_below(folder, label, depth)


def _main_model(
    folder: Folder, label: str, file: FoundCheckpoint, depth: int, usual: bool
) -> FoundCheckpoint:
    """A file, or the model below if the file has no usual name and is small beside it (`data.pt`)."""
    others = folders_with_models(folder, depth)
    below = _quietly_below(folder, label, depth) if others and not usual else None
    if below is not None and 2 * _parameters(file) < _parameters(below):
        return replace(below, beside=(*below.beside, *file.beside, _beside(folder, label, file, below)))
    named = [_beside(folder, label, below, file)] if below is not None else []
    return replace(file, beside=(*file.beside, *(named or _all_below(label, others, file))))


def _quietly_below(folder: Folder, label: str, depth: int) -> FoundCheckpoint | None:
    try:
        return _single_below(folder, label, depth)
    except CheckpointError:
        return None


def _beside(folder: Folder, label: str, other: FoundCheckpoint, read: FoundCheckpoint) -> LeftOut:
    inside, where = (
        found.source.rstrip("/").removeprefix(folder.name.rstrip("/") + "/") for found in (other, read)
    )
    return LeftOut(f"{label}/{inside}", f"beside the model in the same folder; {where} is read")


def _all_below(label: str, names: Sequence[str], file: FoundCheckpoint) -> list[LeftOut]:
    reason = f"another model in a subfolder; {file.files[0]} is read"
    return [LeftOut(f"{label}/{name}", reason) for name in names]


def _parameters(found: FoundCheckpoint) -> int:
    """The elements that a checkpoint holds; 0 if it cannot be read."""
    try:
        with closing(found.open()) as checkpoint:
            return sum(tensor.numel for tensor in checkpoint.tensors.values() if tensor.dtype in WIDTHS)
    except CheckpointError:
        return 0


def _single_below(folder: Folder, label: str, depth: int) -> FoundCheckpoint | None:
    """The checkpoint, if the subfolders contain exactly one."""
    if depth >= DEEPEST:
        return None
    names = [name.rstrip("/") for name in subfolders(folder)]
    inside = [find_single(folder.folder(f"{name}/"), _inner_label(label, name), depth + 1) for name in names]
    below = [found for found in inside if found is not None]
    # Trainers also save each rank's own files; a folder that is a checkpoint as a whole is preferred.
    whole_folders = [found for found in below if found.source == found.folder.name]
    preferred = below if len(below) == 1 else whole_folders
    if len(preferred) == 1:
        return preferred[0]
    refuse_parts(names if below else [], folder.name)
    return None


def _inner_label(label: str, inner: str) -> str:
    """The name of what is inside a folder, if only that has a number; the folder's own name otherwise."""
    outer, own = parse_label(label), parse_label(inner)
    if own.number is None or outer.unit == "step" or (outer.number is not None and own.unit == "number"):
        return label
    return f"{label}/{inner}" if outer.stage or outer.unit == "epoch" else inner


def _is_parent(name: str, group: Discovery) -> bool:
    """Whether a subfolder is a stage, or an epoch with several steps: part of the series around it."""
    label = parse_label(name)
    inside = [parse_label(found.label) for found in group.checkpoints]
    return bool(label.stage) or (label.unit == "epoch" and all(each.unit == "step" for each in inside))


def _one_file(folder: Folder, files: list[FoundCheckpoint]) -> FoundCheckpoint | None:
    """The file that is the model of a folder: the one with the usual name, or else the only one."""
    whole = _prefer([found for found in files if not parse_label(found.label).rank])
    if len(whole) == 1 and (whole == files or whole[0].label in _PREFERRED):
        return whole[0]
    refuse_parts([found.label for found in files], folder.name)
    preferred = _prefer(files)
    return preferred[0] if len(preferred) == 1 else None


def _prefer(found: list[FoundCheckpoint]) -> list[FoundCheckpoint]:
    """Choose one, if it is the same model in several formats: safetensors first."""
    for stem in _PREFERRED:
        same = [each for each in found if each.label == stem]
        if same:
            return sorted(same, key=lambda each: "safetensors" not in each.source)[:1]
    return found


def _others(chosen: FoundCheckpoint, files: Sequence[FoundCheckpoint]) -> list[tuple[FoundCheckpoint, str]]:
    """The other models of a folder, each with the reason why it is not read."""
    read = f"{chosen.files[0]} is read"
    return [
        (found, f"the same model in another format, by its name; {read}" if found.label in _PREFERRED else
         f"another file in the same folder; {read}")
        for found in files
        if found is not chosen
    ]  # fmt: skip


def _flattened(direct: Discovery, groups: Mapping[str, Discovery]) -> Discovery:
    """What is in a folder, and in some of its subfolders; names of stages are kept as part of the label."""
    found, left_out = list(direct.checkpoints), list(direct.left_out)
    for name, group in groups.items():
        prefix = f"{name}/" if _is_parent(name, group) else ""
        found += [replace(each, label=f"{prefix}{each.label}") for each in group.checkpoints]
        left_out += [replace(each, label=f"{prefix}{each.label}") for each in group.left_out]
    return Discovery(tuple(found), tuple(left_out))


def _refuse_several(folder: Folder, groups: Mapping[str, Discovery]) -> None:
    """Refuse a folder with several series, or with several models per step."""
    place = folder.name.rstrip("/")
    name, group = next(iter(groups.items()))
    if parse_label(name).number is not None and not _is_numbered(group):
        models = sorted({found.label for found in group.checkpoints}, key=_likely)
        raise CheckpointError(
            f"{place}/{name} contains several models: {some(models)}. Name the one to be measured, "
            f"for example with the glob '{escape(place)}/*/{_inside(group, models[0])}'."
        )
    if len(groups) > 1:
        counts = [f"{each}/ ({_count(found)})" for each, found in groups.items()]
        raise CheckpointError(
            f"{place} contains several series: {some(counts, 5)}. Give one of them, "
            f"for example {place}/{name}; or, if they are one series, their checkpoints with a glob."
        )


def _inside(group: Discovery, label: str) -> str:
    """The file or the subfolder of a model, as a glob names it."""
    found = next(each for each in group.checkpoints if each.label == label)
    last = found.source.rstrip("/").rsplit("/", 1)[-1]
    if strip_suffix(last) == label:
        return escape(last)
    return escape(label) if f"/{label}/" in found.source else f"{escape(label)}*"


def _likely(label: str) -> tuple[object, ...]:
    """Names that say "model" first, averages and the like last."""
    return parse_label(label).kind in ("ema", "average", "best"), "model" not in label, natural_key(label)


def _is_numbered(group: Discovery) -> bool:
    return any(parse_label(found.label).number is not None for found in group.checkpoints)


def _count(group: Discovery) -> str:
    return f"{(number := len(group.checkpoints))} checkpoint{'s' * (number > 1)}"


def _not_read(name: str, group: Discovery) -> LeftOut:
    if parse_label(name).number is not None and not _is_numbered(group):
        models = some(sorted(found.label for found in group.checkpoints))
        return LeftOut(name, f"contains several models ({models}); name one of them with a glob")
    return LeftOut(f"{name}/", f"a folder of its own with {_count(group)}; give it as the source to read it")


def _folder_checkpoint(folder: Folder, label: str) -> FoundCheckpoint | None:
    """The folder itself, if its format stores checkpoints as folders."""
    format = recognise_folder(folder)
    if format is None:
        return None
    return FoundCheckpoint(label, folder.name, lambda: format.open(folder), folder, tuple(folder.names()))


def _with_trainer_step(folder: Folder, found: FoundCheckpoint) -> FoundCheckpoint:
    """A state file in the folder belongs to the model with the usual name."""
    if found.label not in _PREFERRED:
        return found
    return replace(found, stored_step=lambda: trainer_step(folder))


def _own_label(folder: Folder) -> str:
    """The folder's name if it names a step, or that of the folder around it if that names nothing else.

    A number at the end of a name counts only inside a series.
    """
    whole = folder.name if "://" in folder.name else str(Path(folder.name).absolute())
    *_, parent, name = f"//{whole.rstrip('/')}".rsplit("/", 2)
    if names_step(name):
        return name
    only_a_step = names_step(parent) and re.fullmatch("(?:[a-z]+_?)?#", parse_label(parent).skeleton)
    return f"{parent}/{name}" if only_a_step else "model"
