"""Names that differ only by a prefix are one tensor, and the answer says so."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest
import torch
from torch import nn

from normscope.checkpoints.base import Tensor
from normscope.errors import CheckpointError
from normscope.theory.measures.run_summary import summarise
from normscope.weights.inventory.prefixes import common_spelling
from normscope.weights.scan.scan import scan
from tests.conftest import random_walk, save_series
from tests.weights.test_majority import scanned
from tests.weights.test_scan import assert_rows, rows_of

STEPS = [0, 10, 20, 30, 40]


def prefixed(prefix):
    return lambda name: prefix + name


def inside(name):
    """As FSDP and activation checkpointing name the parameters of wrapped blocks."""
    parts = name.split(".")
    wrapped = [parts[0], parts[1], "_checkpoint_wrapped_module", *parts[2:]] if parts[0] == "h" else parts
    return ".".join(["_fsdp_wrapped_module", *wrapped])


RENAMINGS = {
    **{
        prefix: prefixed(prefix)
        for prefix in (
            "module.",
            "model.",
            "bert.",
            "roberta.",
            "transformer.",
            "_orig_mod.",
            "base_model.model.",
            "module._orig_mod.model.",
            "gpt/",
            "my_very_own_wrapper.",
        )
    },
    "inside": inside,
}


def renamed(state, rename):
    return {rename(name): value for name, value in state.items()}


@pytest.mark.parametrize("rename", RENAMINGS.values(), ids=RENAMINGS)
@pytest.mark.parametrize("most", [False, True], ids=["few", "most"])
def test_names_that_differ_by_a_prefix_are_one_tensor(tmp_path, rename, most):
    """Few or most checkpoints have the prefix: the names of most are used."""
    states = random_walk(STEPS)
    with_prefix = STEPS[1:] if most else STEPS[3:]
    spelled = {s: renamed(state, rename) if s in with_prefix else state for s, state in states.items()}
    found = scanned(tmp_path, save_series(tmp_path / "series", spelled))
    expected = {s: renamed(state, rename) for s, state in states.items()} if most else states
    assert found.left_out == ()
    assert_rows(tmp_path / "run.db", expected)
    (note,) = found.warnings
    count = "step_0 has " if most else "2 checkpoints (step_30, step_40) have "
    assert note.startswith(count)
    assert note.endswith("names that differ only by a prefix are read as the same tensors")


def test_one_prefix_for_another(tmp_path):
    states = random_walk(STEPS)
    spelled = {s: renamed(state, prefixed("roberta." if s == 20 else "bert.")) for s, state in states.items()}
    found = scanned(tmp_path, save_series(tmp_path / "series", spelled))
    assert found.left_out == ()
    assert_rows(tmp_path / "run.db", {s: renamed(state, prefixed("bert.")) for s, state in states.items()})


def test_several_spellings_at_once(tmp_path):
    states = random_walk(STEPS)
    spelled = dict(states)
    for step, prefix in {10: "module.", 20: "_orig_mod.", 30: "base_model.model."}.items():
        spelled[step] = renamed(states[step], prefixed(prefix))
    found = scanned(tmp_path, save_series(tmp_path / "series", spelled))
    assert (found.left_out, len(found.warnings)) == ((), 3)
    assert_rows(tmp_path / "run.db", states)


def test_other_processes_read_the_renamed_tensors(tmp_path):
    """Only the source of a checkpoint is sent to them, so the stored name must go along."""
    states = random_walk(STEPS)
    states[20] = renamed(states[20], prefixed("module."))
    folder = save_series(tmp_path / "series", states)
    scan(folder, tmp_path / "threads.db").close()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        scan(folder, tmp_path / "processes.db", engine=executor).close()
    assert rows_of(tmp_path / "processes.db") == rows_of(tmp_path / "threads.db")


def test_skip_takes_either_spelling(tmp_path):
    states = random_walk(STEPS)
    spelled = {**states, 20: renamed(states[20], prefixed("module."))}
    folder = save_series(tmp_path / "series", spelled)
    for name, pattern in {"a.db": "wte.*", "b.db": "module.wte.*"}.items():
        with scan(folder, tmp_path / name, skip=[pattern]) as run:
            assert summarise(run).left_out == ()
            assert set(run.skipped()) == {"wte.weight"}


@pytest.mark.parametrize(
    "prefix", ["ema.", "model_ema.", "module.ema_model.", "critic.", "teacher.", "optim."]
)
def test_a_prefix_that_means_a_copy_or_another_network_is_another_network(tmp_path, prefix):
    states = random_walk(STEPS)
    spelled = {**states, 20: renamed(states[20], prefixed(prefix))}
    found = scanned(tmp_path, save_series(tmp_path / "series", spelled))
    assert [each.label for each in found.left_out] == ["step_20"]


def test_two_networks_with_equal_names_are_not_told_apart_by_guessing(tmp_path):
    """`fc.weight` could be that of either network: a file with one of them is left out."""
    both = {
        f"{part}.{name}": (8, 8) for part in ("encoder", "decoder") for name in ("fc.weight", "out.weight")
    }
    states = random_walk(STEPS, shapes=both)
    states[20] = random_walk([20], shapes={"fc.weight": (8, 8), "out.weight": (8, 8)})[20]
    found = scanned(tmp_path, save_series(tmp_path / "series", states))
    assert [each.label for each in found.left_out] == ["step_20"]


def test_encoder_and_decoder_files_are_not_one_network(tmp_path):
    states = random_walk([0, 10], shapes={"fc.weight": (8, 8), "out.weight": (8, 8)})
    spelled = {0: renamed(states[0], prefixed("encoder.")), 10: renamed(states[10], prefixed("decoder."))}
    with pytest.raises(CheckpointError, match="is another network"):
        scan(save_series(tmp_path / "series", spelled), tmp_path / "run.db")


@pytest.mark.parametrize("pair", [("model_a.", "model_b."), ("net1.", "net2.")])
def test_words_that_only_count_networks_are_not_one_network(tmp_path, pair):
    states = random_walk([0, 10], shapes={"fc.weight": (8, 8), "out.weight": (8, 8)})
    spelled = {step: renamed(states[step], prefixed(word)) for step, word in zip(states, pair, strict=True)}
    with pytest.raises(CheckpointError, match="is another network"):
        scan(save_series(tmp_path / "series", spelled), tmp_path / "run.db")


def test_one_block_is_not_the_network(tmp_path):
    """The tensors of a single block fit every layer of the network equally well."""
    states = random_walk(STEPS)
    block = {n.removeprefix("h.1."): v for n, v in states[20].items() if n.startswith("h.1.")}
    found = scanned(tmp_path, save_series(tmp_path / "series", {**states, 20: block}))
    assert [each.label for each in found.left_out] == ["step_20"]


def test_shapes_must_agree(tmp_path):
    states = random_walk(STEPS)
    other = {n: torch.randn(*(size + 1 for size in v.shape)) for n, v in states[20].items()}
    spelled = {**states, 20: renamed(other, prefixed("module."))}
    found = scanned(tmp_path, save_series(tmp_path / "series", spelled))
    assert [each.label for each in found.left_out] == ["step_20"]


def test_a_wrapped_module_and_its_spelling():
    """Real wrappers put their own words in front, also of a part."""
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False)
    parts = nn.ModuleDict({"layers": nn.ModuleList(nn.DataParallel(layer) for layer in model.layers)})
    wrapped = [model, nn.DataParallel(model), nn.DataParallel(nn.DataParallel(model)), parts]
    tables = [
        {n: Tensor(n, tuple(v.shape), "float32", n) for n, v in m.state_dict().items()}
        for m in (model, *wrapped)
    ]
    plain = list(tables[0])
    for table, names in zip(tables, common_spelling(tables), strict=True):
        assert [names.get(name, name) for name in table] == plain


# -- Hugging Face's classes of one model -------------------------------------------------------------------


def bert(step):
    """A masked language model, its encoder alone, and a classifier, with the same encoder."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(step)
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "num_hidden_layers": 2}
    config = transformers.BertConfig(vocab_size=40, max_position_embeddings=12, **sizes)
    model = transformers.BertForMaskedLM(config)
    classifier = transformers.BertForSequenceClassification(config)
    classifier.bert.load_state_dict(model.bert.state_dict(), strict=False)
    return model, model.bert, classifier


def save_pretrained(folder, step, model):
    model.save_pretrained(folder / f"checkpoint-{step}")


def test_an_encoder_alone_lacks_the_head_and_can_be_measured_without(tmp_path):
    folder = tmp_path / "series"
    for step in (100, 200, 300, 400):
        model, encoder, _ = bert(step)
        save_pretrained(folder, step, encoder if step == 300 else model)
    found = scanned(tmp_path, folder)
    (left_out,) = found.left_out
    assert left_out.label == "checkpoint-300"
    assert "for example cls.predictions" in left_out.reason
    assert "--skip 'cls.*'" in left_out.reason
    again = scanned(tmp_path, folder, skip=["cls.*"])
    assert (again.left_out, again.stages[0].checkpoints) == ((), 4)
    assert any("read as the same tensors" in warning for warning in again.warnings)
    first = bert(100)[1].state_dict()
    norm = (
        torch.stack([v.double().square().sum() for v in first.values() if v.is_floating_point()]).sum().sqrt()
    )
    assert again.stages[0].norm_all_first == pytest.approx(float(norm), rel=1e-7)


def test_three_classes_of_one_model_are_refused_with_the_options_to_type(tmp_path):
    folder = tmp_path / "series"
    for step, which in {100: 0, 200: 1, 300: 2}.items():
        save_pretrained(folder, step, bert(step)[which])
    with pytest.raises(CheckpointError, match="fewer than two thirds of them agree") as refused:
        scan(folder, tmp_path / "run.db")
    text = str(refused.value)
    options = text.split("--skip ")[1:]
    patterns = [option.split("'")[1] for option in options]
    found = scanned(tmp_path, folder, skip=patterns)
    assert (found.left_out, found.stages[0].checkpoints) == ((), 3)
