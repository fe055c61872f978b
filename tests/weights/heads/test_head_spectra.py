"""Spectra of heads over a series of checkpoints: in the run file, as measures, and what is refused."""

import json

import numpy as np
import pytest
import torch

import normscope as ns
from normscope.errors import UsageError
from tests.cli.calling import call, call_json
from tests.weights.test_spectrum import save

WIDTH, HEADS, KEY_HEADS = 32, 4, 2
CONFIG = {"model_type": "llama", "num_attention_heads": HEADS, "num_key_value_heads": KEY_HEADS}
PLAIN = {"model_type": "something", "num_attention_heads": HEADS}
QUERY, KEY = "model.layers.{}.self_attn.q_proj.weight", "model.layers.{}.self_attn.k_proj.weight"


def state(step, seed=0):
    """Two layers whose queries and keys are those of seed 0, times √(step/100)."""
    random = torch.Generator().manual_seed(seed)
    weights = {}
    for layer in range(2):
        prefix = f"model.layers.{layer}"
        for name, rows in (("q", WIDTH), ("k", WIDTH // 2), ("v", WIDTH // 2), ("o", WIDTH)):
            drawn = torch.randn(rows, WIDTH, generator=random) * (layer + 1) * (step / 100) ** 0.5
            weights[f"{prefix}.self_attn.{name}_proj.weight"] = drawn
        weights[f"{prefix}.input_layernorm.weight"] = torch.rand(WIDTH, generator=random) + 0.5
    return weights


@pytest.fixture
def series(tmp_path):
    folder = tmp_path / "series"
    for step in range(100, 900, 100):
        save(folder, step, state(step))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def products(weights, layer):
    """W_Q W_Kᵀ / √d of every head, in full."""
    query, key = (weights[name.format(layer)].double().numpy() for name in (QUERY, KEY))
    heads = zip(query.reshape(HEADS, 8, -1), np.repeat(key.reshape(KEY_HEADS, 8, -1), 2, axis=0), strict=True)
    return [q.T @ k / 8**0.5 for q, k in heads]


def test_heads_of_a_series_with_grouped_queries(series, tmp_path):
    found = ns.spectrum(series, tmp_path / "run.db", of=["qk", "ov"])
    assert len(found.rows) == 8 * 2 * 2 * HEADS
    names = {tensor.id: tensor.name for tensor in found.tensors}
    for row in found.rows:
        if row.kind == "qk" and row.step in (100, 800):
            layer = int(names[row.tensor].split(".")[2])
            wanted = np.linalg.svd(products(state(row.step), layer)[row.part], compute_uv=False)
            assert row.spectral_norm == pytest.approx(wanted[0], rel=1e-6)
            assert row.detail["key_head"] == row.part // 2
            assert row.detail["rotary"] is True
            assert row.detail["factors"] >= row.spectral_norm
    documents = found.documents()
    assert {document["head"] for document in documents} == set(range(HEADS))
    assert {document["role"] for document in documents} == {"q", "attention output"}


def test_the_largest_head_is_a_measure_that_grows_by_a_law(series, tmp_path):
    run = tmp_path / "run.db"
    ns.spectrum(series, run, of=["qk", "ov", "weights"])
    shown = call_json("show", run, "--measure", "qk-spectral-norm", "--by", "layer")
    at = {(row["step"], row["group"]): row["value"] for row in shown}
    for layer, group in enumerate(("00", "01")):
        largest = max(np.linalg.norm(each, 2) for each in products(state(800), layer))
        assert at[800, group] == pytest.approx(largest, rel=1e-6)
    total = call_json("show", run, "--measure", "qk-spectral-norm")
    assert [row["value"] for row in total] == pytest.approx([at[s, "01"] for s in range(100, 900, 100)])
    fitted = ns.fit_growth(run, measure="qk-spectral-norm")  # (√t)² grows like t
    assert fitted.exponent.low <= 1 <= fitted.exponent.high
    ahead = call_json("forecast", run, "--measure", "qk-spectral-norm", "--threshold", 1.5 * at[800, "01"])
    assert ahead["crossing"]["step"] == pytest.approx(1200, rel=0.1)
    bounds = call_json("show", run, "--measure", "qk-logit-bound")
    assert all(a["value"] > b["value"] for a, b in zip(bounds, total, strict=True))
    assert call_json("show", run, "--measure", "ov-spectral-norm")


MEASURES = (
    "spectral-norm",
    "stable-rank",
    "effective-rank",
    "nuclear-norm",
    "qk-spectral-norm",
    "ov-spectral-norm",
)


@pytest.mark.parametrize("measure", MEASURES)
def test_every_measure_is_taken_by_fit_forecast_and_compare(series, tmp_path, measure):
    run = tmp_path / "run.db"
    ns.spectrum(series, run, of=["qk", "ov", "weights"])
    assert call_json("fit", run, "--measure", measure)["points"] == 8
    assert call_json("forecast", run, "--measure", measure, "--to", 1000)["to"] == 1000
    assert call("compare", run, run, "--measure", measure).code == 0


def test_only_what_is_missing_is_measured_and_other_facts_measure_again(series, tmp_path, monkeypatch):
    run = tmp_path / "run.db"
    first = ns.spectrum(series, run, of=["qk"])
    task = ns.weights.spectrum.head_tasks.HeadTask
    original, measured = task._rows, []
    monkeypatch.setattr(task, "_rows", lambda self, i, kinds: measured.append(i) or original(self, i, kinds))
    assert ns.spectrum(series, run, of=["qk"]).rows == first.rows
    assert measured == []
    save(series, 900, state(900))
    ns.spectrum(series, run, of=["qk"])
    assert measured == [8, 8]
    (series / "config.json").write_text(json.dumps(CONFIG | {"num_attention_heads": 8}))
    again = ns.spectrum(series, run, of=["qk"])
    assert (again.rows, len(again.notes)) == ((), 9 * 2)
    assert "unknown measure" in call("show", run, "--measure", "qk-logit-bound").stderr
    counts = {"num_attention_heads": 8, "num_key_value_heads": 4}
    (series / "config.json").write_text(json.dumps(CONFIG | counts))
    assert {row.part for row in ns.spectrum(series, run, of=["qk"]).rows} == set(range(8))


def test_a_changed_checkpoint_is_measured_again(series, tmp_path):
    run = tmp_path / "run.db"
    ns.spectrum(series, run, of=["qk", "ov"])
    save(series, 300, state(300, seed=5))
    found = ns.spectrum(series, run, of=["qk", "ov"])
    assert found.rows == ns.spectrum(series, tmp_path / "fresh.db", of=["qk", "ov"]).rows


def test_without_a_count_of_heads_nothing_is_guessed(series, tmp_path):
    (series / "config.json").unlink()
    with pytest.raises(UsageError, match=r"number of attention heads is not known.*--query-heads N"):
        ns.spectrum(series, tmp_path / "run.db", of=["qk"])
    assert not (tmp_path / "run.db").exists()
    done = call("spectrum", series, "--of", "qk", "--run", tmp_path / "run.db")
    assert (done.code, "--query-heads N" in done.stderr) == (2, True)
    found = ns.spectrum(series, tmp_path / "run.db", of=["qk"], query_heads=HEADS)
    first = found.rows[0]
    wanted = np.linalg.norm(products(state(100), 0)[0], 2)
    assert first.spectral_norm == pytest.approx(wanted, rel=1e-6)
    assert first.detail["logit_bound"] is None
    assert any("qk is divided by √(head size)" in note for note in found.notes)
    assert any("no bound of the logits: the family" in note for note in found.notes)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"query_heads": 3}, "multiple|contradicts"),
        ({"query_heads": 4, "kv_heads": 4}, r"4 parts of 8 were expected"),
        ({"query_heads": 0}, "query_heads must be an integer"),
        ({"kv_heads": 2}, "need query_heads"),
        ({"query_heads": 4, "qkv_order": "mixed"}, "qkv_order must be blocks or groups"),
    ],
)
def test_counts_that_do_not_fit_are_refused_or_said(series, tmp_path, options, says):
    (series / "config.json").unlink()
    try:
        config = ns.SpectrumConfig(of=["qk"], **options)
        notes = ns.spectrum(series, tmp_path / "run.db", config).notes
    except UsageError as error:
        notes = [str(error)]
    assert notes and all(len(note) < 500 for note in notes)
    import re

    assert any(re.search(says, note) for note in notes)


def test_a_count_that_contradicts_the_config_is_refused(series, tmp_path):
    with pytest.raises(UsageError, match="--query-heads 8 contradicts the config, which says 4"):
        ns.spectrum(series, tmp_path / "run.db", of=["qk"], query_heads=8)


def test_options_of_heads_without_heads_are_refused():
    with pytest.raises(UsageError, match="are for of=qk or ov"):
        ns.SpectrumConfig(query_heads=4)


def test_nan_in_one_head_is_said_and_the_other_heads_go_on(series, tmp_path):
    broken = state(900)
    broken[QUERY.format(1)][9, 3] = float("nan")  # head 1
    save(series, 900, broken)
    found = ns.spectrum(series, tmp_path / "run.db", of=["qk"])
    assert any("at step 900: 1 entries of head 1 are NaN" in note for note in found.notes)
    last = [row for row in found.rows if row.step == 900]
    assert len(last) == 2 * HEADS - 1
    with ns.Run(tmp_path / "run.db") as run:
        values = run.query("SELECT value FROM measure WHERE name = 'qk-spectral-norm' AND step = 900")
    assert sorted(values, key=str)[-1] == (None,)


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_zero_and_rank_one_heads(tmp_path, scale):
    weights = state(100)
    for name in (QUERY, KEY):
        matrix = weights[name.format(0)]
        weights[name.format(0)] = scale * torch.ones_like(matrix)
    save(tmp_path / "series", 100, weights)
    row = ns.spectrum(tmp_path / "series", of=["qk"], query_heads=HEADS).rows[0]
    assert row.spectral_norm == pytest.approx(scale * 8 * 32 / 8**0.5)
    assert row.stable_rank == (pytest.approx(1) if scale else None)


def test_a_fused_matrix_in_an_unknown_order_needs_it(tmp_path):
    fused = torch.randn(96, 32, generator=torch.Generator().manual_seed(0))
    out = torch.randn(32, 32, generator=torch.Generator().manual_seed(1))
    save(tmp_path / "s", 1, {"h.0.attn.query_key_value.weight": fused, "h.0.attn.dense.weight": out})
    plain = ns.spectrum(tmp_path / "s", of=["qk"], query_heads=4)
    assert any("unknown order" in note and "--qkv-order" in note for note in plain.notes)
    query, key = fused.double().numpy()[:8], fused.double().numpy()[32:40]
    blocks = ns.spectrum(
        tmp_path / "s", config=ns.SpectrumConfig(of=["qk"], query_heads=4, qkv_order="blocks")
    )
    assert blocks.rows[0].spectral_norm == pytest.approx(np.linalg.norm(query.T @ key / 8**0.5, 2), rel=1e-6)
    key = fused.double().numpy()[8:16]
    groups = ns.spectrum(
        tmp_path / "s", config=ns.SpectrumConfig(of=["qk"], query_heads=4, qkv_order="groups")
    )
    assert groups.rows[0].spectral_norm == pytest.approx(np.linalg.norm(query.T @ key / 8**0.5, 2), rel=1e-6)
    wrong = ns.SpectrumConfig(of=["qk"], query_heads=4, kv_heads=2, qkv_order="blocks")
    assert any(
        "check --query-heads and --kv-heads" in note
        for note in ns.spectrum(tmp_path / "s", config=wrong).notes
    )


def test_a_square_parameter_whose_input_side_is_not_known_is_refused(tmp_path):
    random = torch.Generator().manual_seed(0)
    names = ("q_proj", "k_proj", "v_proj", "o_proj")
    save(tmp_path / "s", 1, {f"h.0.attn.{n}": torch.randn(16, 16, generator=random) for n in names})
    found = ns.spectrum(tmp_path / "s", of=["qk"], query_heads=4)
    assert any("does not say which side is the input" in note for note in found.notes)
    stored = {f"h.0.attn.{n}.kernel": torch.randn(16, 16, generator=random) for n in names}
    save(tmp_path / "kernels", 1, stored)
    row = ns.spectrum(tmp_path / "kernels", of=["qk"], query_heads=4).rows[0]
    query, key = (stored[f"h.0.attn.{n}.kernel"].double().numpy()[:, :4] for n in ("q_proj", "k_proj"))
    assert row.spectral_norm == pytest.approx(np.linalg.norm(query @ key.T / 2, 2), rel=1e-6)


def test_latent_attention_is_said_and_not_measured(tmp_path):
    names = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
    random = torch.Generator().manual_seed(0)
    save(
        tmp_path / "s", 1,
        {f"model.layers.0.self_attn.{n}.weight": torch.randn(16, 16, generator=random) for n in names},
    )  # fmt: skip
    found = ns.spectrum(tmp_path / "s", of=["qk"], query_heads=4)
    assert found.rows == ()
    assert any("multi-head latent attention" in note for note in found.notes)


def test_a_model_without_attention_is_said(tmp_path):
    save(tmp_path / "s", 1, {"h.0.mlp.up_proj.weight": torch.ones(16, 8)})
    found = ns.spectrum(tmp_path / "s", of=["qk"], query_heads=4)
    assert found.notes == ("no qk: no attention was found among the tensors",)


def test_orthogonal_factors_change_nothing_and_scaling_scales(tmp_path):
    weights = state(100)
    turned, _ = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(3)))
    other = {
        name: value @ turned if value.dim() == 2 and "o_proj" not in name else value
        for name, value in weights.items()
    }
    doubled = {name: 2 * value for name, value in weights.items()}
    for folder, each in (("a", weights), ("b", other), ("c", doubled)):
        save(tmp_path / folder, 1, each)
    first, second, third = (
        ns.spectrum(tmp_path / folder, of=["qk", "ov"], query_heads=HEADS).rows for folder in "abc"
    )
    for a, b, c in zip(first, second, third, strict=True):
        assert b.detail["top"] == pytest.approx(a.detail["top"], rel=1e-5)
        assert c.detail["top"] == pytest.approx([4 * value for value in a.detail["top"]], rel=1e-6)
        assert (b.stable_rank, c.effective_rank) == pytest.approx((a.stable_rank, a.effective_rank), rel=1e-5)
