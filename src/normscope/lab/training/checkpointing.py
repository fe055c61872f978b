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
import typing
from dataclasses import asdict, fields
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from normscope.atomic_write import atomic_write
from normscope.errors import (
    AnotherSeries,
    CorruptCheckpoint,
    ModelError,
    NormscopeError,
    TrainingError,
    UnknownFormat,
    UsageError,
)
from normscope.lab.config import completed
from normscope.lab.model import ModelConfig
from normscope.lab.training.network_building import build_network
from normscope.run import Run
from normscope.run_files.document_shapes import MAYBE, fits
from normscope.run_files.json_files import read_document

try:
    import fcntl
except ImportError:  # not on Windows, where folders are not locked
    fcntl = None  # type: ignore[assignment]

MODEL_TYPE = "normscope-lab"
LOCK_TRIES = 50
MOST_SAID = 160
STATE = {"step": int, "loss": MAYBE, "norm_start": MAYBE, "body_norm_start?": MAYBE}
STATE |= {"evaluation": dict, "model": dict, "optimizer": dict, "random": Tensor}
"""What a state has; a constraint may add its own."""
TOKENIZER_CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}


def checkpoint_folder(out: Path, step: int) -> Path:
    """Return the folder of the checkpoint of a step."""
    return out / "checkpoints" / f"step-{step:06d}"


def save_model(
    model: nn.Module, folder: Path, tokenizer: str | None = None, config: ModelConfig | None = None
) -> None:
    """Write a model as a folder of model.safetensors and config.json; tied parameters are stored once.

    `config` is that of the model, for a model of the user's own, which need not have one.
    """
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    tensors = {name: tensor.contiguous() for name, tensor in _stored_once(model).items()}
    save_file(tensors, part / "model.safetensors", {"format": "pt"})
    _write_json(
        part / "config.json", _model_document(model, config or typing.cast(ModelConfig, model.config))
    )
    if tokenizer is not None:
        (part / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
        _write_json(part / "tokenizer_config.json", TOKENIZER_CONFIG)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def _stored_once(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a model without second names of the same memory."""
    kept = {(tensor.data_ptr(), tensor.shape): name for name, tensor in reversed(model.state_dict().items())}
    state = model.state_dict()
    return {name: tensor for name, tensor in state.items() if kept[tensor.data_ptr(), tensor.shape] == name}


def _model_document(model: nn.Module, config: ModelConfig) -> dict[str, Any]:
    dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
    names = {"model_type": MODEL_TYPE, "architectures": [type(model).__name__], "dtype": dtype}
    return names | asdict(config)


def is_lab_model(folder: Path) -> bool:
    """Return whether this folder is a model of the lab."""
    try:
        document = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.get("model_type") == MODEL_TYPE


def load_model(folder: str | os.PathLike[str], network: Any = None) -> nn.Module:
    """Load the model of a folder, in evaluation mode and in the dtype it was saved in.

    A model of the user's own needs `network`, the function that built it or its `module:function`: a
    checkpoint contains parameters, and nothing in it is run.
    """
    place = Path(folder)
    if not is_lab_model(place):
        raise UnknownFormat(
            f"{place} is not a model of the lab: expected a config.json with model_type {MODEL_TYPE!r}"
        )
    try:
        config = _model_config(place, network)
        if network is None:
            _check_size(place, config)
        model = build_network(config)
    except NormscopeError as error:
        if isinstance(error, UsageError):
            raise CorruptCheckpoint(f"{place}/config.json has an unusable value: {error}") from None
        raise
    except (TypeError, ValueError, ArithmeticError, RuntimeError, OSError) as error:
        if network is not None:
            raise
        raise CorruptCheckpoint(f"{place}/config.json has an unusable value: {error}") from None
    try:
        tensors = load_file(place / "model.safetensors")
        model.to(next(iter(tensors.values())).dtype)
        _load_tensors(model, tensors)
    except (SafetensorError, OSError, RuntimeError, StopIteration) as error:
        raise CorruptCheckpoint(f"{place}/model.safetensors cannot be read: {error}") from None
    return model.eval()


def _model_config(place: Path, network: Any) -> ModelConfig:
    document = read_document(place / "config.json", CorruptCheckpoint, dict)
    own = document.get("network")
    if own is not None and network is None:
        raise ModelError(
            f"{place} has the parameters of a model of your own ({own}), and a checkpoint contains no code: "
            "load it with load_model(folder, network=your_function), or write a function that returns "
            "(model, batches) and call 'normscope saturate FILE.py:FUNCTION CHECKPOINTS'"
        )
    known = {entry.name for entry in fields(ModelConfig)}
    values = {name: document[name] for name in known & document.keys()}
    return ModelConfig(**values | {"network": network})


def _check_size(place: Path, config: ModelConfig) -> None:
    """Refuse a config of a larger model than its file can hold, before that model is built."""
    width, layers = config.d_model, config.n_layers
    needed = max(config.vocab_size * width, layers * width * width, layers * width * config.d_ff)
    if needed > (place / "model.safetensors").stat().st_size:  # a parameter has a byte at least
        raise ValueError(f"its model has more than {needed} parameters, and model.safetensors fewer bytes")


def _load_tensors(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    absent = set(missing) - (model.state_dict().keys() - _stored_once(model).keys())
    if absent or unexpected:
        raise RuntimeError(f"missing {sorted(absent)}, unexpected {sorted(unexpected)}")


def lock_folder(out: Path) -> IO[str]:
    """Keep other processes out of a folder until the returned file is closed.

    A killed process may hold its lock for another moment, so locking is tried for a few seconds.
    """
    check_folder(out)
    for wait in (*[0.1] * LOCK_TRIES, None):
        out.mkdir(parents=True, exist_ok=True)
        file = (out / ".lock").open("w")
        if _lock(file, out / ".lock"):
            return file
        file.close()
        if wait is not None:
            time.sleep(wait)
    raise TrainingError(f"another process is working in {out}: wait for it to end, or choose another folder")


def _lock(file: IO[str], path: Path) -> bool:
    """Whether the file could be locked, and nobody deleted it in between."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(file.fileno()).st_ino == path.stat().st_ino
    except (BlockingIOError, FileNotFoundError):
        return False


def check_folder(out: Path) -> None:
    """Refuse a name that a file has: the files of a run need a folder."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; expected the name of a folder, new or of an earlier run")


def claim_folder(out: Path, config: dict[str, Any]) -> None:
    """Write the config of this run into the folder; refuse a folder with a different run."""
    path = out / "config.json"
    if path.exists():
        _check_same(read_document(path, TrainingError, dict), config, out)
    else:
        _write_json(path, config)


def check_run_file(run: Run, config: dict[str, Any], out: Path) -> None:
    """Refuse a run file that has something else in it: a training deletes what is after its step."""
    meta = run.meta
    if not meta and not run.checkpoints() and not run.stages():
        return
    home = Path(meta.get("source", out / "checkpoints")).parent
    elsewhere = home.exists() and not (out.exists() and home.samefile(out))
    if elsewhere or "config" not in meta or completed(meta["config"]) != json.loads(json.dumps(config)):
        raise AnotherSeries(
            f"{run.path} is the run file of {meta.get('source', 'another run')}, and this training would "
            "delete from it: choose another file with --run FILE"
        )


def _check_same(there: dict[str, Any], here: dict[str, Any], out: Path) -> None:
    there = completed(there)
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
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file makes torch raise anything
        raise damaged_state(out, error) from None
    if not fits(state, STATE) or state["step"] < 0:
        raise damaged_state(out, "it lacks some of what a state has, or has something else in its place")
    kept: dict[str, Any] = state
    return kept


def damaged_state(out: Path, why: object) -> TrainingError:
    """The error for a state that a run cannot continue from; nothing of the run has been changed."""
    said = str(why).strip().partition("\n")[0][:MOST_SAID] or type(why).__name__
    return TrainingError(
        f"{out / 'state.pt'} is damaged, so the run cannot continue from it ({said}): restore a copy, or "
        f"delete {out / 'state.pt'} to begin this run again"
    )


def _write_json(path: Path, document: dict[str, Any]) -> None:
    with atomic_write(path) as part:
        part.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
