"""normscope saturate and normscope homogeneity, as a user calls them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import torch
import typer
from typer.testing import CliRunner

from normscope.cli.homogeneity import homogeneity
from normscope.cli.saturate import saturate
from normscope.errors import CheckpointError, ModelError, NormscopeError, ScaleOverflow, UsageError
from normscope.run import HeadRow, Run, SaturationRow
from normscope.views.page.formatting import number as written
from normscope.views.page.page import provenance
from normscope.views.reports.report import run_page
from tests.network.saved_models import BUILD, TEXT, save_model

pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def call(*arguments):
    app = typer.Typer()
    app.command("saturate")(saturate)
    app.command("homogeneity")(homogeneity)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, NormscopeError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def test_table_for_a_person(model, text):
    out = call("saturate", model, "--text", text)
    assert "encoder.layer.1" in out and "random" in out
    assert "4 heads: 4 argmax" in out
    assert "sees later tokens (not causal by design)" in out


def test_json_has_the_documented_fields(model, text):
    found = json.loads(call("saturate", model, "--text", text, "--json"))
    assert list(found) == ["layers", "heads", "warnings", "look_ahead", "head_changes", "similarity"]
    assert found["similarity"] == []
    assert [row["layer"] for row in found["layers"]] == [0, 1, 2]
    assert set(found["layers"][0]) >= {"step", "module", "layer", "cosine", "baseline", "converged"}
    assert set(found["heads"][0]) >= {"step", "module", "layer", "head", "type", "positions", "split"}
    assert found["layers"][0]["tokens"] == sum(len(line.split()) for line in TEXT.splitlines())
    quick = json.loads(
        call("saturate", model, "--text", text, "--json", "--no-heads", "--no-baseline", "--scale", 1024)
    )
    assert quick["heads"] == [] and quick["layers"][1]["baseline"] is None
    assert quick["layers"][1]["cosine"] == pytest.approx(found["layers"][1]["cosine"], abs=1e-6)


def test_before_and_after_fine_tuning(tmp_path, text):
    pair = [save_model(tmp_path / name, seed=seed) for seed, name in enumerate(("before", "after"))]
    common = ("--steps", "0,1", "--text", text, "--no-heads", "--no-baseline", "--run", tmp_path / "run.db")
    out = call("saturate", *pair, *common, "--similarity")
    assert "CKA last" in out and "PWCCA is missing for 2 of 2 layers" in " ".join(out.split())
    found = json.loads(call("saturate", *pair, *common, "--similarity", "--json"))
    assert [(row["step"], row["other"]) for row in found["similarity"][::3]] == [(0, "last"), (1, "previous")]
    forth, back = found["similarity"][:3], found["similarity"][3:]
    assert [row["cka"] for row in forth] == pytest.approx([row["cka"] for row in back])
    with pytest.raises(UsageError, match="needs at least two models"):
        call("saturate", pair[0], "--text", text, "--similarity")


def test_text_at_hand_is_used_without_a_file(tmp_path):
    import transformers as tf

    folder = save_model(tmp_path / "m")
    tokenizer = tf.AutoTokenizer.from_pretrained(folder)
    with pytest.raises(
        UsageError, match="unknown to the model's tokenizer"
    ):  # its prose is not this vocabulary's
        call("saturate", folder, "--json")
    assert tokenizer is not None


def test_encoder_and_decoder_apart(tmp_path, text):
    found = json.loads(call("saturate", save_model(tmp_path / "t5", family="t5"), "--text", text, "--json"))
    modules = [row["module"] for row in found["layers"]]
    assert modules == ["encoder.block.input", "encoder.block.0", "decoder.block.input", "decoder.block.0"]
    assert {head["module"].split(".")[-1] for head in found["heads"]} == {"SelfAttention", "EncDecAttention"}
    assert found["look_ahead"][0]["sees_future"] is False


def test_a_series_goes_into_the_run_file_and_is_continued(tmp_path, text, monkeypatch):
    for step in (0, 10, 100):
        save_model(tmp_path / "series" / f"checkpoint-{step}", seed=step)
    run = tmp_path / "run.db"
    out = call("saturate", tmp_path / "series", "--text", text, "--run", run)
    assert "step" in out.splitlines()[1]
    with Run(run) as found:
        table = found.table(SaturationRow)
        assert sorted(set(table["step"])) == [0, 10, 100] and len(table) == 9
        assert len(found.table(HeadRow)) == 12
        example = found.artifacts("attention")["100/encoder.layer.0.attention.self/1"]
        size = len(example["tokens"])
        assert size <= 24 and len(example["soft"]) == len(example["saturated"]) == size
        for row in (*example["soft"], *example["saturated"]):
            assert sum(row) == pytest.approx(1, abs=0.01)
    run.unlink()
    before = json.loads(call("saturate", tmp_path / "series", "--text", text, "--run", run, "--json"))
    monkeypatch.setattr("normscope.network.study.saturation_and_heads", None)  # nothing is measured twice
    again = json.loads(call("saturate", tmp_path / "series", "--text", text, "--run", run, "--json"))
    assert again["layers"] == before["layers"] and again["heads"] == before["heads"]


def test_other_settings_are_measured_anew(model, text, tmp_path):
    quick = ("--run", tmp_path / "run.db", "--no-baseline", "--json")
    first = json.loads(call("saturate", model, "--text", text, *quick))
    second = json.loads(call("saturate", model, "--text", text, "--sentences", 2, *quick))
    assert second["layers"][0]["tokens"] < first["layers"][0]["tokens"]


@pytest.fixture
def program(tmp_path):
    (tmp_path / "helper.py").write_text("width = 8\n")
    (tmp_path / "my_model.py").write_text(BUILD)
    return tmp_path / "my_model.py"


def test_any_module_by_its_build_function(program):
    found = json.loads(call("saturate", f"{program}:build", "--json"))
    assert [row["module"] for row in found["layers"]] == ["layers.input", "layers.0", "layers.1"]
    assert len(found["heads"]) == 4 and found["layers"][1]["baseline"] is not None


def test_batches_follow_the_dtype_asked_for(program):
    found = json.loads(call("homogeneity", f"{program}:build", "--dtype", "float64", "--at", 4096, "--json"))
    assert found["degrees"][-1]["exists"] and found["degrees"][-1]["degree"] == pytest.approx(1, abs=0.01)


def test_checkpoints_loaded_into_a_built_model(program, tmp_path):
    from torch import nn

    for step in (5, 50):
        torch.manual_seed(step)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        state = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).state_dict()
        wrapped = {"model": {f"module.{name}": value for name, value in state.items()}, "step": step}
        torch.save(wrapped, tmp_path / f"step{step}.pt")
    run = tmp_path / "run.db"
    found = json.loads(call("saturate", f"{program}:build", tmp_path, "--run", run, "--json"))
    assert sorted({row["step"] for row in found["layers"]}) == [5, 50]
    files = [tmp_path / f"step{step}.pt" for step in (5, 50)]
    run.unlink()
    named = call("saturate", f"{program}:build", *files, "--steps", "7,143", "--run", run, "--json")
    assert sorted({row["step"] for row in json.loads(named)["layers"]}) == [7, 143]
    one = json.loads(call("homogeneity", f"{program}:build", files[1], "--json"))["degrees"]
    assert one != json.loads(call("homogeneity", f"{program}:build", files[0], "--json"))["degrees"]
    with pytest.raises(
        UsageError, match=r"series of 2 models: choose one of them, such as .*:build .*step5.pt"
    ):
        call("homogeneity", f"{program}:build", tmp_path)
    torch.save({"weight": torch.zeros(3)}, tmp_path / "bad.pt")
    with pytest.raises(ModelError, match=r"bad.pt does not fit the model"):
        call("saturate", f"{program}:build", tmp_path / "bad.pt")


def test_a_causal_model_that_sees_the_future_is_reported(program):
    found = json.loads(call("saturate", f"{program}:leaky", "--json"))
    assert found["look_ahead"][0]["causal"] and found["look_ahead"][0]["sees_future"]
    assert any("its mask leaks" in text for text in found["warnings"])


def test_long_sequences_are_cut_with_a_warning(tmp_path, text):
    folder = save_model(tmp_path / "short", max_position_embeddings=6)
    found = json.loads(call("saturate", folder, "--text", text, "--json"))
    assert "were cut to 6 tokens" in found["warnings"][0]
    assert found["layers"][0]["tokens"] == 6 + 6 + 4 + 6


def test_bad_input_is_one_clear_sentence(tmp_path, model, text, program):
    def refuses(kind, match, *arguments):
        with pytest.raises(kind, match=match):
            call(*arguments)

    empty = tmp_path / "empty.txt"
    empty.write_text("\n \n")
    cyrillic = tmp_path / "other.txt"
    cyrillic.write_text("кошка сидела на коврике\n")
    half = save_model(tmp_path / "half")
    refuses(UsageError, "is empty", "saturate", model, "--text", empty)
    refuses(UsageError, "language and alphabet", "saturate", model, "--text", cyrillic)
    refuses(UsageError, "no text at", "saturate", model, "--text", tmp_path / "none.txt")
    refuses(ModelError, "no attention to measure", "saturate", f"{program}:linear")
    refuses(ModelError, "expected a tuple", "saturate", f"{program}:wrong")
    refuses(UsageError, r"has no function nothing\(\)", "saturate", f"{program}:nothing")
    refuses(UsageError, "name the function .* as in .*my_model.py:build", "saturate", program)
    for number, line in enumerate(("raise OSError('no space')", "def build(): return 1 / 0")):
        (tmp_path / f"wrong{number}.py").write_text(line)
    refuses(
        ModelError, "wrong0.py:build failed: OSError: no space", "saturate", f"{tmp_path}/wrong0.py:build"
    )
    refuses(ModelError, "failed: ZeroDivisionError", "homogeneity", f"{tmp_path}/wrong1.py:build")
    refuses(UsageError, "no file at", "saturate", f"{tmp_path}/none.py:build")
    refuses(UsageError, "is not a model", "saturate", tmp_path / "none")
    refuses(ModelError, "cannot load a model from", "saturate", "no-such/model-anywhere", "--text", text)
    refuses(UsageError, "power of two", "saturate", model, "--text", text, "--scale", 1000)
    refuses(UsageError, "dtype 'int8' is not one of", "saturate", model, "--text", text, "--dtype", "int8")
    refuses(UsageError, "device 'tpu' cannot be used", "saturate", model, "--text", text, "--device", "tpu")
    (half / "tokenizer.json").unlink()
    (half / "tokenizer_config.json").unlink()
    refuses(ModelError, "--tokenizer", "saturate", half, "--text", text)
    for file in half.glob("*.safetensors"):
        file.unlink()
    refuses(CheckpointError, "contains no checkpoint, only config.json", "saturate", half, "--text", text)
    bare = save_model(tmp_path / "series" / "checkpoint-5").parent
    (bare / "checkpoint-5" / "config.json").unlink()
    refuses(ModelError, "checkpoint-5/model.safetensors: no config.json", "saturate", bare, "--text", text)
    refuses(UsageError, "cannot be mixed", "saturate", model, "no-such/model", "--text", text)
    refuses(UsageError, "transformers cannot load", "saturate", "s3://bucket/model", "--text", text)
    refuses(UsageError, "--revisions", "saturate", "no-such/model", "--revisions", "step*", "--text", text)
    refuses(UsageError, "--steps, --pattern and --revisions", "saturate", f"{program}:build", "--steps", "5")


def test_half_precision_that_would_overflow_names_a_wider_dtype(tmp_path, text):
    import transformers as tf

    folder = save_model(tmp_path / "half")
    model = tf.BertModel.from_pretrained(folder, add_pooling_layer=False)
    model.encoder.layer[0].output.dense.weight.data[0, 0] = 100.0
    model.half().save_pretrained(folder)
    with pytest.raises(ScaleOverflow, match="use bfloat16"):
        call("saturate", folder, "--text", text, "--scale", "1024")
    chosen = json.loads(call("saturate", folder, "--text", text, "--json"))
    assert any("use bfloat16" in text for text in chosen["warnings"]) and {
        row["scale"] for row in chosen["layers"]
    } == {128}
    assert json.loads(call("saturate", folder, "--text", text, "--dtype", "float32", "--json"))["layers"]
    shutil.rmtree(folder)


def test_homogeneity(model, text, tmp_path):
    run = tmp_path / "run.db"
    out = call("homogeneity", model, "--text", text, "--run", run)
    assert "degree" in out and "output" in out
    found = json.loads(
        call("homogeneity", model, "--text", text, "--at", 4096, "--dtype", "float64", "--json")
    )
    output = found["degrees"][-1]
    assert output["module"] == "output" and output["degree"] == pytest.approx(1, abs=0.05)
    with Run(run) as kept:
        curve = kept.artifacts("scaling-curve")["output"]
    assert set(curve) >= {"c", "cosine", "degree"} and len(curve["c"]) == len(curve["cosine"])


def test_a_folder_of_the_lab(tmp_path):
    """A model that transformers does not know, with sentences of different lengths and no mask to give."""
    from normscope.lab.config import TrainConfig, override
    from normscope.lab.training.train import train

    changes = {"steps": 3, "batch": 2, "length": 32, "d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 32}
    result = train(override(TrainConfig(), changes), tmp_path / "lab")
    folder = sorted(result.checkpoints.iterdir())[-1]
    found = json.loads(call("saturate", folder, "--sentences", 4, "--no-baseline", "--json"))
    assert [layer["layer"] for layer in found["layers"]] == [0, 1, 2]
    assert len(found["heads"]) > 0
    (look_ahead,) = found["look_ahead"]
    assert look_ahead["causal"] and not look_ahead["sees_future"]


# -- your own sentence, and heads that change ------------------------------------------


def maps(run):
    with Run(run) as opened:
        return opened.artifacts("attention")


def test_attention_is_shown_on_your_own_sentence(model, text, tmp_path):
    run = tmp_path / "run.db"
    call("saturate", model, "--text", text, "--run", run)
    assert {tuple(m["tokens"]) for m in maps(run).values()} != {("the", "dog", "saw", "it")}
    call("saturate", model, "--text", text, "--run", run, "--sentence", "the dog saw it")
    assert {tuple(m["tokens"]) for m in maps(run).values()} == {("the", "dog", "saw", "it")}
    assert len(maps(run)) == 4


def test_a_long_or_strange_sentence_is_said(model, text, tmp_path):
    said = call("saturate", model, "--text", text, "--run", tmp_path / "a.db", "--sentence", "the cat " * 15)
    assert "first 24 of the sentence's 30 tokens" in " ".join(said.split())
    said = call("saturate", model, "--text", text, "--run", tmp_path / "b.db", "--sentence", "the zebra sat")
    assert "1 of the 3 tokens of the sentence" in " ".join(said.split())


def test_a_sentence_that_would_not_be_shown_is_said(model, text, tmp_path):
    said = call("saturate", model, "--text", text, "--sentence", "the cat sat")
    assert "add --run run.db" in " ".join(said.split())
    with pytest.raises(UsageError, match="--sentence has no effect with --no-heads"):
        call("saturate", model, "--text", text, "--sentence", "the cat", "--no-heads")
    with pytest.raises(UsageError, match="is empty"):
        call("saturate", model, "--text", text, "--run", tmp_path / "a.db", "--sentence", " ")
    (tmp_path / "helper.py").write_text("width = 8\n")
    (tmp_path / "my_model.py").write_text(BUILD)
    with pytest.raises(UsageError, match="--sentence has no effect"):
        call("saturate", f"{tmp_path / 'my_model.py'}:build", "--sentence", "the cat")


def zero_queries(folder):
    """The saved model with queries and keys of zero: every position ties, so every head is a mean head."""
    import transformers

    model = transformers.BertModel.from_pretrained(folder)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".query." in name or ".key." in name:
                parameter.zero_()
    model.save_pretrained(folder)


def test_heads_that_change_type_are_printed(text, tmp_path):
    for step in (0, 10):
        save_model(tmp_path / "series" / f"checkpoint-{step}")
    zero_queries(tmp_path / "series" / "checkpoint-0")
    arguments = (tmp_path / "series", "--text", text, "--no-baseline", "--run", tmp_path / "run.db")
    assert "4 of 4 heads changed type between step 0 and step 10" in call("saturate", *arguments)
    (found,) = json.loads(call("saturate", *arguments, "--json"))["head_changes"]
    assert found["counts"] == [{"before": "mean", "after": "argmax", "heads": 4}]
    assert {(head["before"], head["after"]) for head in found["heads"]} == {("mean", "argmax")}


def test_two_run_files_are_compared_head_by_head(text, tmp_path):
    """Before and after fine-tuning: the second model is wrapped, so its modules have a prefix more."""
    from tests.cli.calling import call as command
    from tests.cli.calling import call_json

    before, after = save_model(tmp_path / "a"), save_model(tmp_path / "b")
    zero_queries(before)
    for folder in (before, after):
        call("saturate", folder, "--text", text, "--no-baseline", "--run", f"{folder}.db")
    with Run(f"{after}.db", write=True) as run, run.transaction():
        rows = [HeadRow(*row) for row in zip(*run.table(HeadRow).columns.values(), strict=True)]
        run.delete_network(0)
        run.write([replace(row, module=f"bert.{row.module}") for row in rows])
    pair = (f"{before}.db", f"{after}.db")
    said = " ".join(command("compare", *pair).stdout.split())
    assert "4 of 4 attention heads have another type in b: step 0 of a, step 0 of b" in said
    found = call_json("compare", *pair)["head_changes"]
    assert (found["changed"], found["missing"]) == (4, 0)
    refused = command("compare", *pair, "--measure", "norm")
    assert refused.code == 2 and "--measure has no effect" in refused.stderr


def test_the_page_says_what_the_command_says(model, text, tmp_path):
    """Every number of a layer, the order of the heads, and how both were measured."""
    path = tmp_path / "run.db"
    found = json.loads(call("saturate", model, "--text", text, "--run", path, "--json"))
    with Run(path) as run:
        (note,) = run.artifacts("saturation-settings").values()
        stage = run_page(run).stages[0]
    sections = {section.key: section for section in stage.sections}
    (table,) = [table for table in sections["saturation"].tables if table.key == "saturation"]
    names = ("module", "layer", "cosine", "deviation", "baseline", "scale")
    rows = [tuple(layer[name] for name in names) for layer in found["layers"]]
    assert sorted(row[:6] for row in table.rows) == sorted(rows)
    (table,) = [table for table in sections["heads"].tables if table.key == "heads"]
    assert len(table.rows) == len(found["heads"])
    argmax = sorted(found["heads"], key=lambda head: (-head["margin"], head["effective"]))
    said = next(text for text in sections["heads"].sentences if "clearest argmax" in text)
    named = [f"layer {head['layer']} head {head['head']}" for head in argmax[:3]]
    assert [said.index(name) for name in named] == sorted(said.index(name) for name in named)
    printed = call("saturate", model, "--text", text, "--run", path)
    lines = [line.split() for line in printed.splitlines() if line.startswith("argmax")]
    assert [f"layer {layer} head {head}" for _, layer, head, *_ in lines] == named
    for section in (sections["saturation"], sections["heads"]):
        assert section.made["text (digest)"] == note["text"] and section.made["model"] == note["model"]
        assert section.made["time"] == note["time"] and section.made["command"].startswith("normscope")
    assert any(written(found["layers"][-1]["cosine"], 3) in sentence for sentence in stage.summary)
    assert provenance({"a": {"b": 1}}) == {"a": "b 1"}
