"""The spectra of one model: a checkpoint, a folder, a function that builds it, a live module."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save, save_file
from torch import nn

import normscope as ns
from normscope.errors import ModelError
from tests.checkpoints import test_hub
from tests.cli.calling import call, call_json

PROGRAM = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    return nn.Sequential(model), [torch.zeros(1, 3, 16)]
"""


def layer():
    torch.manual_seed(0)
    return nn.Sequential(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True))


def values(found):
    named = {tensor.id: tensor.name for tensor in found.tensors}
    return {(row.kind, named[row.tensor], row.part): row.spectral_norm for row in found.rows}


def test_a_module_a_file_and_a_function_give_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = layer()
    save_file(model.state_dict(), tmp_path / "some.safetensors")
    (tmp_path / "my_model.py").write_text(PROGRAM)
    found = ns.spectrum(model)
    assert len(found.rows) == 4
    for row in found.rows:
        tensor = next(each for each in found.tensors if each.id == row.tensor)
        wanted = torch.linalg.svdvals(model.get_parameter(tensor.name).double())
        assert row.spectral_norm == pytest.approx(wanted[0].item(), rel=1e-6)
    assert values(ns.spectrum("some.safetensors")) == values(found)
    assert values(ns.spectrum("my_model.py:build")) == values(found)
    document = call_json("spectrum", "my_model.py:build")
    assert len(document["matrices"]) == 4
    assert found.run is None
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".db") == []


def test_a_run_file_is_written_where_one_is_given(tmp_path):
    found = ns.spectrum(layer(), tmp_path / "one.db")
    assert found.run == tmp_path / "one.db"
    with ns.Run(tmp_path / "one.db") as run:
        assert len(list(run.table(ns.SpectrumRow))) == 4
        (checkpoint,) = run.checkpoints()
        assert checkpoint.bytes == sum(each.numel() * each.element_size() for each in layer().parameters())


def test_heads_of_torchs_own_attention_are_known_from_a_live_module():
    model = layer()
    found = ns.spectrum(model, of=["qk", "ov"])
    weight = model[0].self_attn.in_proj_weight.detach().double().numpy()
    query, key, value = weight.reshape(3, 4, 4, 16)
    output = model[0].self_attn.out_proj.weight.detach().double().numpy().T.reshape(4, 4, 16)
    measured = values(found)
    for head in range(4):
        wanted = np.linalg.norm(query[head].T @ key[head], 2) / 2
        assert measured["qk", "0.self_attn.in_proj_weight", head] == pytest.approx(wanted, rel=1e-6)
        wanted = np.linalg.norm(output[head].T @ value[head], 2)
        assert measured["ov", "0.self_attn.out_proj.weight", head] == pytest.approx(wanted, rel=1e-6)


def test_the_lab_says_how_many_heads_its_models_have(tmp_path):
    from normscope.lab.model import Transformer

    torch.manual_seed(0)
    config = ns.ModelConfig(d_model=32, n_heads=4, n_layers=2, d_ff=32, positions="rotary")
    model = Transformer(config)
    found = ns.spectrum(model, of=["qk"])
    assert len(found.rows) == 8
    assert {row.detail["rotary"] for row in found.rows} == {True}
    assert all(row.detail["logit_bound"] > row.spectral_norm for row in found.rows)
    after = ns.spectrum(Transformer(ns.ModelConfig(d_model=32, n_heads=4, norm="post")), of=["qk"])
    assert any("known only where it is 'pre'" in note for note in after.notes)


def test_a_folder_as_transformers_saves_it_needs_no_count(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_head=4, n_embd=16, vocab_size=30, n_positions=8,
                                     bos_token_id=0, eos_token_id=1)  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    model.save_pretrained(tmp_path / "model")
    saved, live = (ns.spectrum(each, of=["qk", "ov"]) for each in (tmp_path / "model", model))
    assert [row.spectral_norm for row in saved.rows] == [row.spectral_norm for row in live.rows]
    assert len(saved.rows) == 8
    printed = call("spectrum", tmp_path / "model", "--of", "qk", "--by", "tensor").stdout
    assert "logits up to" in printed
    assert "run file" not in printed


def test_a_module_without_values_is_refused():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(8, 8))
    with pytest.raises(ModelError, match="on the meta device"):
        ns.spectrum(model)


def test_half_precision_and_tied_parameters_of_a_module():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 12), nn.Linear(12, 12)).bfloat16()
    model[1].weight = model[0].weight
    (row,) = ns.spectrum(model).rows
    wanted = torch.linalg.svdvals(model[0].weight.detach().double())[0].item()
    assert row.spectral_norm == pytest.approx(wanted, rel=1e-6)


def test_json_has_the_fields_that_were_promised(tmp_path):
    save_file({"h.0.mlp.up_proj.weight": torch.randn(40, 30)}, tmp_path / "w.safetensors")
    (matrix,) = call_json("spectrum", tmp_path / "w.safetensors")["matrices"]
    promised = (
        "step",
        "name",
        "layer",
        "role",
        "spectral_norm",
        "stable_rank",
        "effective_rank",
        "alpha",
        "xmin",
    )
    assert all(json.dumps(matrix[name]) for name in (*promised, "outliers"))
    assert len(matrix["top"]) == 30
    assert matrix["error"]["spectral_norm"] >= 0


@pytest.mark.parametrize("by", ["layer", "role", "tensor"])
def test_tables_by_every_group(tmp_path, by):
    names = [f"h.{i}.mlp.{part}_proj.weight" for i in range(2) for part in ("up", "down")]
    save_file({name: torch.randn(10, 10) for name in names}, tmp_path / "w.safetensors")
    printed = call("spectrum", tmp_path / "w.safetensors", "--by", by).stdout
    expected = {"layer": ["00", "01"], "role": ["mlp in", "mlp out"], "tensor": names}[by]
    assert all(name in printed for name in expected)


hub = test_hub.hub  # the fixture


def test_a_model_on_the_hub_brings_its_config(hub):
    names = [f"model.layers.0.self_attn.{part}_proj.weight" for part in "qkvo"]
    random = torch.Generator().manual_seed(0)
    tensors = {name: torch.randn(16, 16, generator=random) for name in names}
    config = {"model_type": "llama", "num_attention_heads": 2}
    files = {"config.json": json.dumps(config).encode(), "model.safetensors": save(tensors)}
    hub.repositories["owner/llama"] = {"main": files}
    rows = ns.spectrum("owner/llama", of=["qk"]).rows
    query, key = (tensors[name][8:].double() for name in names[:2])
    assert len(rows) == 2
    assert rows[1].spectral_norm == pytest.approx(torch.linalg.svdvals(query.T @ key)[0].item() / 8**0.5)
    assert rows[1].detail["rotary"] is True
