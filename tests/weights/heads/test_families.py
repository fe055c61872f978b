"""Heads as they are cut out of fused and separate projections, against what real models compute with them."""

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

import normscope as ns
from normscope.errors import UsageError
from normscope.run import TensorRow
from normscope.weights.heads.attention_facts import AttentionSettings, HeadOptions
from normscope.weights.heads.attention_tensors import find_attention, module_of
from normscope.weights.heads.head_matrices import head_matrices
from normscope.weights.spectrum.module_checkpoint import module_document
from tests.weights.heads.tiny_models import Logits, build, calls_of, configs

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # GPT-BigCode
CONFIGS = configs()
NORMED = {"qwen3", "qwen3-moe", "olmo2", "gemma3", "cohere"}  # their logits are not those of the projections
ALIBI = {"bloom", "falcon-many", "mpt"}  # adds to the logits
WITHOUT_BOUND = {"persimmon", "mpt", "modernbert"}
TOKENS = torch.arange(40)[:, None]  # one token each: no rotation, no distance, attention is 1


def attentions(model, found):
    """Every attention of a model with its heads, in the order of the layers."""
    settings = AttentionSettings(module_document(model))
    values = dict(model.named_parameters())
    read = lambda row: values[row.name].detach().numpy()  # noqa: E731
    for attention in find_attention(found.tensors):
        facts = settings.facts(attention.first.component, attention.first.layer)
        yield attention, head_matrices(attention, facts, "module", read)


@pytest.mark.parametrize("name", CONFIGS)
def test_heads_are_those_of_the_model(name, monkeypatch):
    model = build(CONFIGS[name])
    found = ns.spectrum(model, of=["qk", "ov"])
    several = list(attentions(model, found))
    assert len(several) == 2
    rows = {(row.kind, row.tensor, row.part): row for row in found.rows}
    for attention, heads in several:
        assert_products(rows, attention, heads)
    places = [
        module_of(a.matrices[r].name)
        for a, _ in several
        for r in (next(iter(a.matrices)), "attention output")
    ]
    calls, logits = calls_of(model, places), Logits(monkeypatch)
    with torch.no_grad():
        model(TOKENS)
    scales = {row.tensor: row.detail["scale"] for row in found.rows if row.kind == "qk"}
    for (attention, heads), seen in zip(several, logits.seen, strict=True):
        inputs = calls[places[0]][0].reshape(40, -1).numpy()
        outputs = calls[places[1]][1].reshape(40, -1).numpy()
        places = places[2:]
        for head in range(heads.heads):
            group = heads.group(head)
            query, key = inputs @ heads.queries[head].T, inputs @ heads.keys[group].T
            query += 0 if heads.query_bias is None else heads.query_bias[head]
            key += 0 if heads.key_bias is None else heads.key_bias[group]
            mine = np.sum(query * key, axis=1) * scales[attention.first.id]
            if name not in NORMED:
                assert mine == pytest.approx(seen[:, head, 0, 0].numpy(), rel=1e-4, abs=1e-5)
        mixed = sum(
            inputs @ heads.values[heads.group(head)].T @ heads.output[head] for head in range(heads.heads)
        )
        assert mixed - mixed[:1] == pytest.approx(outputs - outputs[:1], rel=1e-4, abs=1e-4)


def assert_products(rows, attention, heads):
    """The rows of an attention against its products in full."""
    for head in range(heads.heads):
        group = heads.group(head)
        row = rows["qk", attention.first.id, head]
        product = heads.queries[head].astype(float).T @ heads.keys[group].astype(float)
        assert_values(row, np.linalg.svd(product * row.detail["scale"], compute_uv=False))
        row = rows["ov", attention.output.id, head]
        product = heads.output[head].astype(float).T @ heads.values[group].astype(float)
        assert_values(row, np.linalg.svd(product, compute_uv=False))


def assert_values(row, values):
    assert row.spectral_norm == pytest.approx(values[0], rel=1e-9)
    assert row.norm == pytest.approx(np.linalg.norm(values), rel=1e-9)
    assert row.stable_rank == pytest.approx(np.sum(values**2) / values[0] ** 2, rel=1e-9)
    kept = values[: len(row.detail["top"])]
    assert row.detail["top"] == pytest.approx(kept, rel=1e-5, abs=1e-9 * values[0])
    shares = values / values.sum()
    shares = shares[shares > 1e-14]
    assert row.effective_rank == pytest.approx(np.exp(-np.sum(shares * np.log(shares))), rel=1e-6)
    assert row.spectral_norm <= row.detail["factors"] * (1 + 1e-9)


@pytest.mark.parametrize("name", [name for name in CONFIGS if name not in {*ALIBI, *WITHOUT_BOUND}])
@pytest.mark.parametrize("seed", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in (1, 2))])
def test_no_logit_is_above_its_bound(name, seed, monkeypatch):
    model = build(CONFIGS[name], seed, size=1 + 2 * seed)
    found = ns.spectrum(model, of=["qk"])
    layers = {tensor.id: tensor.layer for tensor in found.tensors}
    logits = Logits(monkeypatch)
    with torch.no_grad():
        model(torch.randint(40, (4, 30), generator=torch.Generator().manual_seed(seed)))
    assert len(logits.seen) == 2
    assert found.rows
    for row in found.rows:
        seen = logits.seen[layers[row.tensor]][:, row.part]
        largest = float(seen[seen > -1e9].abs().max())
        assert largest <= row.detail["logit_bound"]


@pytest.mark.parametrize("name", ["gpt2", "opt"])
def test_some_input_reaches_the_bound_if_nothing_is_rotated_and_no_bias_added(name, monkeypatch):
    model = build(CONFIGS[name])
    for parameter, value in model.named_parameters():
        if parameter.endswith("bias") or "wpe" in parameter or "embed_positions" in parameter:
            torch.nn.init.zeros_(value)
    found = ns.spectrum(model, of=["qk"])
    attention, heads = next(iter(attentions(model, found)))
    gain = next(
        v for n, v in model.named_parameters() if "ln_1.weight" in n or "self_attn_layer_norm.weight" in n
    )
    for head in range(heads.heads):
        folded = [m[head] * gain.detach().numpy() for m in (heads.queries, heads.keys)]
        folded = [m - m.mean(axis=1, keepdims=True) for m in folded]
        left, _, right = np.linalg.svd(folded[0].T @ folded[1])
        inputs = torch.from_numpy(np.stack([right[0], left[:, 0]])).float()[None] * 1000
        with pytest.MonkeyPatch.context() as patch, torch.no_grad():
            logits = Logits(patch)
            model(inputs_embeds=inputs)
        (row,) = [row for row in found.rows if (row.tensor, row.part) == (attention.first.id, head)]
        reached = abs(float(logits.seen[0][0, head, 1, 0]))
        assert reached == pytest.approx(row.detail["logit_bound"], rel=1e-4)


@pytest.mark.parametrize("name", sorted(WITHOUT_BOUND))
def test_where_the_norm_is_not_known_there_is_no_bound(name):
    found = ns.spectrum(build(CONFIGS[name]), of=["qk"])
    assert all(row.detail["logit_bound"] is None for row in found.rows)
    assert any("which norm comes before the attention" in note for note in found.notes)


def test_an_order_that_contradicts_the_family_is_refused():
    """CodeGen's order is neither of the two: taking either would give heads that do not exist."""
    for family, order in (("gpt_neox", "blocks"), ("codegen", "blocks"), ("codegen", "groups")):
        document = {"model_type": family, "num_attention_heads": 4}
        with pytest.raises(UsageError, match="contradicts the family"):
            AttentionSettings(document, HeadOptions(4, order=order)).facts("model", 0)


@pytest.mark.parametrize("kind", ["yarn", "longrope", "one-of-next-year"])
def test_rotations_that_lengthen_have_no_bound(kind):
    document = {"model_type": "llama", "num_attention_heads": 4, "rope_parameters": {"rope_type": kind}}
    assert "may also lengthen" in AttentionSettings(document).facts("model", 0).why


def test_the_two_attentions_of_a_decoder_are_told_apart():
    roles = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "attention output"}
    names = [f"layers.1.{a}.{p}.weight" for a in ("self_attn", "encoder_attn") for p in roles]
    rows = [
        TensorRow(i, name, "model", 1, roles[name.split(".")[3]], (32, 32), "float32", 1024)
        for i, name in enumerate(names)
    ]
    own, cross = find_attention(rows)
    assert (own.cross, cross.cross) == (False, True)
    assert own.output.name == "layers.1.self_attn.out_proj.weight"
    assert cross.output.name == "layers.1.encoder_attn.out_proj.weight"
