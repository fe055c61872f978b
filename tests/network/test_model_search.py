"""The models that a study measures are those that a scan finds, with the same steps and stages."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from normscope.checkpoints import open_series
from normscope.errors import CheckpointError, ModelError, UsageError
from normscope.network.loading import pretrained_series
from normscope.network.loading.model_search import find_models
from normscope.network.loading.models import SeriesOptions, StudyText
from normscope.network.loading.pretrained import LoadedModel, load_model, load_tokenizer
from normscope.network.places.placement import Placement
from normscope.network.study import StudyConfig, study
from normscope.weights.scan.scan import scan
from tests.network.saved_models import BUILD, TEXT, save_model

pytest.importorskip("transformers")

AWKWARD = ("step143k", "step_1000", "global_step7", "stage1-step500-tokens2B", "stage2-step500")
PLACES = {("", 7), ("", 1000), ("", 143000), ("stage1", 500), ("stage2", 500)}
WORDS = StudyText(TEXT.splitlines())
QUICK = {"baseline": False, "heads": False, "placement": Placement("cpu")}


def encoder(seed=0, layers=2):
    torch.manual_seed(seed)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


@pytest.fixture
def program(tmp_path):
    (tmp_path / "helper.py").write_text("width = 8\n")
    (tmp_path / "my_model.py").write_text(BUILD)
    return f"{tmp_path / 'my_model.py'}:build"


def find(*sources, text=WORDS, **options):
    return find_models([str(source) for source in sources], text, Placement("cpu"), SeriesOptions(**options))


def same_weights(model, state, prefix=""):
    """Whether the loaded model has these values; a pooler is not in the files and is not measured."""
    found = model.load()[0].state_dict()
    names = [name for name in found if "pooler" not in name]
    return len(names) > 10 and all(torch.equal(found[name], state[prefix + name]) for name in names)


def places_of_scan(source, run):
    with scan(source, run) as found:
        return {(row.stage, row.step) for row in found.checkpoints()}


def places_of_study(*sources, run):
    found = study([str(source) for source in sources], WORDS, StudyConfig(run=run, **QUICK))
    return {(row.stage, row.step) for row in found.layers}


def test_scan_and_a_study_of_a_built_model_agree(program, tmp_path):
    folder = tmp_path / "series"
    folder.mkdir()
    for number, name in enumerate((*AWKWARD, "model_final")):
        torch.save(encoder(number).state_dict(), folder / f"{name}.pt")
    assert places_of_study(program, folder, run=tmp_path / "study.db") == PLACES
    assert places_of_scan(folder, tmp_path / "scan.db") == PLACES


def test_scan_and_a_study_of_model_folders_agree(tmp_path):
    folder = tmp_path / "series"
    for number, name in enumerate((*AWKWARD, "model_final")):
        save_model(folder / name, seed=number)
    assert places_of_study(folder, run=tmp_path / "study.db") == PLACES
    assert places_of_scan(folder, tmp_path / "scan.db") == PLACES


def test_each_step_is_its_own_checkpoint(program, tmp_path):
    for step in (5, 50):
        torch.save(encoder(step).state_dict(), tmp_path / f"step{step}.pt")
        save_model(tmp_path / "folders" / f"checkpoint-{step}", seed=step)
    for model in find(program, tmp_path / "step*.pt"):
        assert same_weights(model, encoder(model.step).state_dict())
    for model in find(tmp_path / "folders"):
        stored = load_file(tmp_path / "folders" / f"checkpoint-{model.step}" / "model.safetensors")
        assert same_weights(model, stored)


def test_a_single_model_without_a_step_is_step_0(program, tmp_path):
    save_model(tmp_path / "model")
    torch.save(encoder().state_dict(), tmp_path / "weights.pt")
    assert [model.step for model in find(tmp_path / "model")] == [0]
    assert [model.step for model in find(program, tmp_path / "weights.pt")] == [0]
    assert [model.step for model in find(program)] == [0]
    assert [model.step for model in find("gpt2")] == [0]
    assert [model.step for model in find(program, tmp_path / "weights.pt", steps=[12])] == [12]
    with pytest.raises(CheckpointError, match="--steps"):
        find(program, tmp_path / "weights.pt", save_model(tmp_path / "other") / "model.safetensors")


def test_hub_ids_have_the_steps_of_their_revisions():
    found = find("owner/name@step143k", "owner/name@step_1000", "owner/name@stage2-step7")
    assert [(model.stage, model.step) for model in found] == [("", 1000), ("", 143000), ("stage2", 7)]
    assert [model.step for model in find("gpt2", "distilgpt2", steps=[3, 1])] == [1, 3]
    with pytest.raises(UsageError, match="one step per model"):
        find("gpt2", steps=[1, 2])
    with pytest.raises(CheckpointError, match="[Ss]tep 0"):
        find("gpt2", "distilgpt2")


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("kind", ["safetensors", "pt", "npz", "dcp"])
def test_every_format_of_a_scan_can_be_loaded(kind, program, tmp_path):
    state, place = encoder(3).state_dict(), tmp_path / f"step3.{kind}"
    if kind == "safetensors":
        save_file(state, place)
    elif kind == "pt":
        torch.save({"model": state, "optimizer": {}}, place)
    elif kind == "npz":
        import numpy as np

        np.savez(place, **{name: value.numpy() for name, value in state.items()})
    else:
        import torch.distributed.checkpoint as dcp

        dcp.save(state, checkpoint_id=place, no_dist=True)
    (model,) = find(program, place)
    assert model.step == 3
    assert same_weights(model, state)


def test_one_config_at_the_top_serves_all_checkpoints(tmp_path):
    """Weights that from_pretrained would not find are read as a scan reads them."""
    top = save_model(tmp_path / "series", seed=9)
    (top / "model.safetensors").unlink()
    for step in (10, 20):
        other = save_model(tmp_path / "other" / str(step), seed=step)
        state = load_file(other / "model.safetensors")
        save_file({f"bert.{name}": value for name, value in state.items()}, top / f"step_{step}.safetensors")
        (top / f"step_{step + 1}").mkdir()
        (other / "model.safetensors").rename(top / f"step_{step + 1}" / "model.safetensors")
    found = find(top)
    assert [model.step for model in found] == [10, 11, 20, 21]
    for model in found:
        state = load_file(top / f"step_{model.step // 10 * 10}.safetensors")
        assert same_weights(model, state, "bert.")
    for named in (top / "step_11" / "model.safetensors", top / "step_11", top / "step_1[1]"):
        (alone,) = find(named)  # finds what it found in its series
        assert alone.step == 11 and alone.identify() == found[1].identify()


def test_weights_that_the_checkpoint_lacks_are_an_error(tmp_path):
    """They would have random values."""
    folder = save_model(tmp_path / "model")
    state = load_file(folder / "model.safetensors")
    del state["encoder.layer.0.output.dense.weight"]
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    (model,) = find(folder)
    with pytest.raises(ModelError, match="lacks encoder.layer.0.output.dense.weight, which would have"):
        model.load()


def test_a_checkpoint_whose_names_match_nothing_is_refused(tmp_path):
    """Otherwise a random model would be measured."""
    folder = save_model(tmp_path / "model")
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    save_file({f"x{number}": value for number, value in enumerate(state.values())}, folder / "a.safetensors")
    (model,) = find(folder)
    with pytest.raises(ModelError, match="does not fit the model of .*lacks embeddings.LayerNorm.bias"):
        model.load()


def test_checkpoints_without_a_config_are_named(tmp_path):
    for step in (1, 2):
        folder = save_model(tmp_path / "series" / f"step{step}")
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match="step2/model.safetensors: no config.json"):
        find(tmp_path / "series")


def test_a_series_of_the_lab(tmp_path):
    from normscope.lab.model import ModelConfig, Transformer
    from normscope.lab.training.checkpointing import save_model as save_lab_model

    for step in (0, 20):
        torch.manual_seed(step)
        model = Transformer(ModelConfig(d_model=8, n_heads=2, d_ff=8))
        save_lab_model(model, tmp_path / f"step-{step:06d}")
    found = find(tmp_path, text=StudyText(TEXT.splitlines(), str(save_model(tmp_path / "tokens"))))
    assert [model.step for model in found] == [0, 20]
    assert type(found[0].load()[0]) is Transformer


def test_revisions_are_loaded_from_the_hub(tmp_path, monkeypatch):
    """Steps come from the revisions' names, and each model is loaded at its revision."""
    folder, asked = save_model(tmp_path / "model"), []

    def listed(sources, *, steps, revisions, pattern, default_step):
        assert (sources, revisions, default_step) == (["hf://owner/name"], "step*", 0)
        found = open_series([save_model(tmp_path / name) for name in ("step143k", "step0", "step512")])
        entries = (
            replace(entry, source=f"hf://owner/name@{entry.label}/model.safetensors")
            for entry in found.entries
        )
        return replace(found, entries=tuple(entries))

    def load(place, placement):
        asked.append((place.name, place.options))
        return LoadedModel(load_model(folder, placement))

    monkeypatch.setattr(pretrained_series, "open_series", listed)
    monkeypatch.setattr(pretrained_series, "load_pretrained", load)
    monkeypatch.setattr(pretrained_series, "check_model", lambda place: None)
    monkeypatch.setattr(pretrained_series, "load_tokenizer", lambda place: load_tokenizer(folder))
    found = find("hf://owner/name", revisions="step*")
    assert [model.step for model in found] == [0, 512, 143000]
    for model in found:
        model.load()
    assert asked == [("owner/name", {"revision": name}) for name in ("step0", "step512", "step143k")]


def test_a_tokenizer_needs_no_model_beside_it(tmp_path):
    folder = save_model(tmp_path / "model")
    words = save_model(tmp_path / "words")
    for name in ("config.json", "model.safetensors"):
        (words / name).unlink()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    (model,) = find(folder, text=StudyText(TEXT.splitlines(), str(words)))
    assert model.load()[1].batches
    assert json.loads((folder / "config.json").read_text())["model_type"] == "bert"


def test_a_hub_model_is_identified_by_its_commit(monkeypatch, tmp_path):
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError

    def download(name, file, *, revision):
        assert (name, revision) == ("owner/name", "step5")
        if file == "config.json":
            raise EntryNotFoundError("a repository with only a tokenizer")
        return str(tmp_path / "hub" / "models--owner--name" / "snapshots" / "c0ffee" / file)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    (model,) = find("owner/name@step5")
    assert model.identify() == {
        "checkpoint": "c0ffee",
        "config": "c0ffee",
        "tokenizer": "owner/name@step5",
        "vocabulary": "c0ffee",
    }


def laid_out(top, names, steps=None):
    for number, name in enumerate(names):
        folder = save_model(top / name, seed=number)
        if name in (steps or {}):
            (folder / "trainer_state.json").write_text(json.dumps({"global_step": steps[name]}))
    return top


@pytest.mark.parametrize(
    ("names", "steps", "last"),
    [
        (("checkpoint-10", "checkpoint-20", "."), {".": 30}, 30),
        (("step9", "step10", "step100", "final"), {"final": 150}, 150),
        (("step10", "step20", "final"), {}, 20),
        (("checkpoint-10", "checkpoint-20", "best"), {"best": 10}, 20),
        (("stage1/step10", "stage1/step20", "stage2/step10"), {}, 10),
        (("stage1-step10", "stage2-step5", "stage10-step1"), {}, None),
        (("epoch_0", "epoch_2", "epoch_10"), {}, 10),
    ],
)
def test_order_stages_and_final_are_those_of_a_scan(names, steps, last, tmp_path):
    top = laid_out(tmp_path / "series", names, steps)
    series = open_series(top)
    found = find(top)
    assert [(model.stage, model.step) for model in found] == [(e.stage, e.step) for e in series.entries]
    assert all(model.remarks == series.remarks for model in found)
    assert last is None or found[-1].step == last
    assert places_of_scan(top, tmp_path / "scan.db") == {(model.stage, model.step) for model in found}
