"""The files of a run: model folders in the layout of Hugging Face, and the state to resume from.

    OUT/config.json                 the config of the run
    OUT/checkpoints/step-000123/    model.safetensors, config.json, tokenizer.json
    OUT/state.pt                    the latest state, from which the run continues bit for bit
    OUT/data/                       the tokenised text, mapped into memory by every process

Files and folders are written under a temporary name and then renamed, so a killed run leaves no
half-written ones.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import asdict, fields
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from normscope.atomic_write import atomic_write
from normscope.errors import AnotherSeries, CorruptCheckpoint, TrainingError, UnknownFormat, UsageError
from normscope.lab.model import ModelConfig, Transformer
from normscope.run import Run

try:
    import fcntl
except ImportError:  # not on Windows, where folders are not locked
    fcntl = None  # type: ignore[assignment]

MODEL_TYPE = "normscope-lab"
LOCK_TRIES = 50
TOKENIZER_CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}


def checkpoint_folder(out: Path, step: int) -> Path:
    """Return the folder of the checkpoint of a step."""
    return out / "checkpoints" / f"step-{step:06d}"


def save_model(model: Transformer, folder: Path, tokenizer: str | None = None) -> None:
    """Write a model as a folder of model.safetensors and config.json; a tied head is stored once."""
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tied_head:
        del tensors["head.weight"]
    save_file(tensors, part / "model.safetensors", {"format": "pt"})
    _write_json(part / "config.json", _model_document(model))
    if tokenizer is not None:
        (part / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
        _write_json(part / "tokenizer_config.json", TOKENIZER_CONFIG)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def _model_document(model: Transformer) -> dict[str, Any]:
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    names = {"model_type": MODEL_TYPE, "architectures": ["Transformer"], "dtype": dtype}
    return names | asdict(model.config)


def is_lab_model(folder: Path) -> bool:
    """Return whether this folder is a model of the lab."""
    try:
        document = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and document.get("model_type") == MODEL_TYPE


def load_model(folder: str | os.PathLike[str]) -> Transformer:
    """Load the model of a folder, in evaluation mode and in the dtype it was saved in."""
    place = Path(folder)
    if not is_lab_model(place):
        raise UnknownFormat(
            f"{place} is not a model of the lab: expected a config.json with model_type {MODEL_TYPE!r}"
        )
    document = json.loads((place / "config.json").read_text(encoding="utf-8"))
    known = {entry.name for entry in fields(ModelConfig)}
    model = Transformer(ModelConfig(**{name: document[name] for name in known & document.keys()}))
    try:
        tensors = load_file(place / "model.safetensors")
        if model.config.tied_head:
            tensors["head.weight"] = tensors["embed.weight"]
        model.to(next(iter(tensors.values())).dtype).load_state_dict(tensors)
    except (SafetensorError, OSError, RuntimeError, StopIteration) as error:
        raise CorruptCheckpoint(f"{place}/model.safetensors cannot be read: {error}") from None
    return model.eval()


def lock_folder(out: Path) -> IO[str]:
    """Keep other processes out of a folder until the returned file is closed.

    A killed process may hold its lock for another moment, so locking is tried for a few seconds.
    """
    check_folder(out)
    out.mkdir(parents=True, exist_ok=True)
    file = (out / ".lock").open("w")
    if fcntl is None:
        return file
    for wait in (*[0.1] * LOCK_TRIES, None):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if wait is not None:
                time.sleep(wait)
    file.close()
    raise TrainingError(f"another process is working in {out}: wait for it to end, or choose another folder")


def check_folder(out: Path) -> None:
    """Refuse a name that a file has: the files of a run need a folder."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; expected the name of a folder, new or of an earlier run")


def claim_folder(out: Path, config: dict[str, Any]) -> None:
    """Write the config of this run into the folder; refuse a folder with a different run."""
    path = out / "config.json"
    if path.exists():
        _check_same(json.loads(path.read_text(encoding="utf-8")), config, out)
    else:
        _write_json(path, config)


def check_run_file(run: Run, config: dict[str, Any], out: Path) -> None:
    """Refuse a run file that has something else in it: a training deletes what is after its step."""
    meta = run.meta
    if not meta and not run.checkpoints() and not run.stages():
        return
    home = Path(meta.get("source", out / "checkpoints")).parent
    elsewhere = home.exists() and not (out.exists() and home.samefile(out))
    if elsewhere or meta.get("config") != json.loads(json.dumps(config)):
        raise AnotherSeries(
            f"{run.path} is the run file of {meta.get('source', 'another run')}, and this training would "
            "delete from it: choose another file with --run FILE"
        )


def _check_same(there: dict[str, Any], here: dict[str, Any], out: Path) -> None:
    different = [name for name in here if there.get(name) != here[name]]
    if different:
        name = different[0]
        raise UsageError(
            f"{out} contains another run ({name} is {there.get(name)} there and {here[name]} now): "
            "choose another folder, or delete that one"
        )


def save_state(out: Path, state: dict[str, Any]) -> None:
    """Replace the state that a killed run continues from; it is on disk when this function returns."""
    with atomic_write(out / "state.pt") as part, part.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def load_state(out: Path) -> dict[str, Any] | None:
    """Return the latest state, or None if the run has not begun."""
    path = out / "state.pt"
    if not path.exists():
        return None
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def _write_json(path: Path, document: dict[str, Any]) -> None:
    with atomic_write(path) as part:
        part.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
