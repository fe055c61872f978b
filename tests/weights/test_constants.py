"""Constants are told from parameters by their names and values, in both directions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn
from torch.nn.utils import prune

from normscope.checkpoints import open_file
from normscope.checkpoints.base import WIDTHS
from normscope.checkpoints.buffer_names import buffer_by_name
from normscope.checkpoints.storage.local import LocalFile
from normscope.weights.inventory.constants import judge
from normscope.weights.inventory.not_parameters import not_parameters
from normscope.weights.inventory.number_series import alibi_slopes
from normscope.weights.inventory.peeks import Sample, rounding_of, to_float64
from tests.weights.buffer_zoo import (
    BUFFERS,
    PARAMETERS,
    Holder,
    alibi,
    angles,
    causal,
    grid_sincos,
    halves,
    interleaved,
)

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
BELOW_ROUNDING = {"dct.weight", "trained.pe", "trained.cos"}
"""Trained by about a thousandth, which bfloat16 does not show: only a second checkpoint would."""


@pytest.fixture
def skipped(tmp_path):
    """A function: states → the names that are no parameters, with the reasons."""
    opened = []

    def judged(*states):
        found = []
        for state in states:
            path = tmp_path / f"{len(opened)}.safetensors"
            save_file({name: value.detach().clone().contiguous() for name, value in state.items()}, path)
            opened.append(open_file(LocalFile(path)))
            found.append(opened[-1])
        return not_parameters(found, [t for t in found[0].tensors.values() if t.dtype in WIDTHS])

    yield judged
    for checkpoint in opened:
        checkpoint.close()


def cast(values, dtype):
    return {name: value.to(dtype) for name, value in values.items()}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_constant_is_found_in_one_checkpoint(skipped, dtype):
    missed = set(BUFFERS) - skipped(cast(BUFFERS, dtype)).keys()
    assert missed == ({"tst.W_pos"} if dtype is torch.bfloat16 else set())  # a circle around an unknown point


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_parameter_is_taken_for_a_constant(skipped, dtype):
    expected = BELOW_ROUNDING if dtype is torch.bfloat16 else set()
    assert skipped(cast(PARAMETERS, dtype)).keys() == expected


def test_a_module_before_and_after_a_few_steps(skipped):
    both = {f"left.{name}": value for name, value in BUFFERS.items()}
    module = Holder(both, {f"right.{name}": value for name, value in PARAMETERS.items()})
    before = {name: value.clone() for name, value in module.state_dict().items()}
    after = module.train_steps().state_dict()
    for states in ([before], [after], [before, after], [after, before, after]):
        assert skipped(*states).keys() == both.keys()


def test_a_table_that_is_trained_from_its_formula_is_a_parameter(skipped):
    tables = {
        "pos.pe": interleaved(),
        "rope.freqs": angles()[1],
        "attn.slopes": alibi(8),
        "rope.cos": angles()[0].cos(),
    }
    assert skipped(tables).keys() == tables.keys()
    module = Holder({}, tables)
    module.train_steps(steps=1, lr=1e-3)
    assert skipped(module.state_dict()) == {}
    assert skipped(tables, module.state_dict()) == {}


def test_statistics_change_and_are_still_no_parameters(skipped):
    first = {"bn.running_mean": torch.zeros(4), "bn.weight": torch.ones(4), "ema_w": torch.randn(4)}
    last = {"bn.running_mean": torch.randn(4), "bn.weight": torch.rand(4), "ema_w": torch.randn(4)}
    assert skipped(first, last).keys() == {"bn.running_mean", "ema_w"}


def test_a_frozen_layer_is_a_parameter(skipped):
    layer = nn.TransformerEncoderLayer(16, 2, 32).state_dict()
    assert skipped(layer, layer, layer) == {}


@pytest.mark.parametrize(
    "module",
    [
        nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2),
        nn.Transformer(16, 2, 1, 1, 32, batch_first=True),
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.PReLU(8), nn.GroupNorm(2, 8)),
        nn.Sequential(nn.LSTM(8, 8, 2), nn.GRU(8, 8), nn.Bilinear(4, 4, 3)),
        nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)),
        nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)),
        nn.utils.parametrizations.orthogonal(nn.Linear(8, 8)),
        prune.l1_unstructured(nn.Linear(8, 8), "weight", 0.5),
        nn.SyncBatchNorm(8),
        nn.InstanceNorm1d(8, affine=True, track_running_stats=True),
        nn.EmbeddingBag(10, 4),
        nn.MultiheadAttention(16, 2, add_bias_kv=True),
        nn.AdaptiveLogSoftmaxWithLoss(16, 40, [10, 20]),
    ],
    ids=lambda module: type(module).__name__,
)
def test_modules_of_torch(skipped, module):
    state = {name: value for name, value in module.state_dict().items() if value.is_floating_point()}
    parameters = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    base = {name for name in state if name.endswith(".base")}  # orthogonal's: a buffer like any matrix
    assert skipped(state).keys() == state.keys() - parameters - base


KINDS = (
    "bert",
    "gpt2",
    "gpt_neox",
    "gptj",
    "llama",
    "t5",
    "opt",
    "bloom",
    "mpt",
    "falcon",
    "mamba",
    "swin",
    "swinv2",
    "whisper",
    "distilbert",
    "vit",
    "olmo2",
    "qwen3",
    "gemma2",
    "rwkv",
)
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 99,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "max_position_embeddings": 64,
    "d_model": 32,
    "d_ff": 64,
    "d_kv": 8,
    "num_layers": 2,
    "num_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "n_layers": 2,
    "n_heads": 4,
    "dim": 32,
    "hidden_dim": 64,
    "ffn_dim": 64,
    "word_embed_proj_dim": 32,
    "rotary_dim": 8,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "max_source_positions": 40,
    "max_target_positions": 40,
    "image_size": 32,
    "patch_size": 4,
    "embed_dim": 16,
    "depths": [1, 1],
    "window_size": 4,
    "state_size": 8,
    "attention_hidden_size": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}


@pytest.mark.parametrize("kind", KINDS)
def test_models_of_transformers(skipped, kind):
    transformers = pytest.importorskip("transformers")
    kind_of_config = transformers.CONFIG_MAPPING[kind]
    plain = kind_of_config()
    fixed = {"num_attention_heads", "num_hidden_layers"} if kind.startswith("swin") else set()
    sizes = {
        name: [2, 4] if name == "num_heads" and fixed else value
        for name, value in SIZES.items()
        if hasattr(plain, name)
        and name not in fixed
        and not isinstance(getattr(kind_of_config, name, None), property)
    }
    model = transformers.AutoModel.from_config(kind_of_config(**sizes)).float()
    trained = {name for name, p in model.named_parameters(remove_duplicate=False) if p.requires_grad}
    state = {name: value for name, value in model.state_dict().items() if value.is_floating_point()}
    assert skipped(state).keys() == state.keys() - trained


@pytest.mark.parametrize(
    ("name", "shape", "reason"),
    [
        ("transformer.h.0.attn.bias", (1, 1, 1024, 1024), "attention mask"),
        ("gpt_neox.layers.0.attention.bias", (1, 1, 2048, 2048), "attention mask"),
        ("gpt_neox.layers.0.attention.masked_bias", (), "attention mask"),
        ("model.layers.0.self_attn.rotary_emb.inv_freq", (64,), "rotary table"),
        ("bert.embeddings.position_ids", (1, 512), "index buffer"),
        ("encoder/block_000/layer_000/SelfAttention/q_slot_vr", (768,), "optimizer state"),
        ("global_step", (), "bookkeeping"),
        ("batch_stats/layer1/mean", (8,), "batch statistics"),
        ("sequential/batch_norm/moving_variance", (8,), "batch statistics"),
        ("module.bn.running_mean", (8,), "batch statistics"),
        ("model_ema.decay", (), "bookkeeping"),
    ],
)
def test_names_that_only_buffers_have(name, shape, reason):
    assert buffer_by_name(name, shape) == reason


@pytest.mark.parametrize(
    "name", ["h.0.attn.c_attn.bias", "self_attn.q_proj.weight", "attention.bias", "step", "decay"]
)
def test_names_that_parameters_have_too(name):
    assert buffer_by_name(name, (768,)) is None


def sample(values, dtype=torch.float32, settled=False):
    flat = to_float64(
        values.to(dtype).contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(), str(dtype)[6:]
    )
    return Sample(
        flat.reshape([n for n in values.shape if n != 1]), rounding_of(flat, str(dtype)[6:]), settled
    )


lengths = st.integers(8, 300)
widths = st.integers(2, 40).map(lambda n: 2 * n)


@given(
    lengths,
    widths,
    st.sampled_from([100.0, 1e4, 5e5]),
    st.integers(0, 3),
    st.sampled_from(DTYPES),
    st.integers(0, 7),
)
@settings(max_examples=150, deadline=None)
def test_tables_of_any_size_base_and_layout(n, d, base, start, dtype, layout):
    phase, _ = angles(n, d, base, start)
    sin, cos = phase.sin(), phase.cos()
    table = [
        torch.stack([sin, cos], -1).reshape(n, d),
        torch.cat([sin, cos], 1),
        torch.cat([cos, sin], 1),
        torch.cat([sin, cos], 1).T,
        torch.stack([cos, sin], -1),
        torch.stack([sin, cos], -1).reshape(n, 1, d),
        torch.cat([torch.zeros(1, d), torch.cat([sin, cos], 1)]),
        0.3 * torch.stack([cos, sin], -1).reshape(n, d).T,
    ][layout]
    assert judge(sample(table, dtype), frozenset()) is not None
    if start == 0:
        for single in (sin, cos, torch.cat([cos, cos], 1), cos.repeat_interleave(2, 1), sin.T):
            assert judge(sample(single, dtype), frozenset()) is not None


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("n", [10, 30])
def test_what_decays_from_row_to_row_is_no_wave(n, sign):
    """Also if it changes its sign at each row: x(m+1) + x(m−1) is a multiple of x(m), but more than twice."""
    rates = torch.tensor([sign * 0.9, -0.5, 0.6, 0.7, 0.8], dtype=torch.float64)
    table = rates ** torch.arange(n)[:, None]
    assert judge(sample(table), frozenset()) is None


@given(st.integers(2, 130), st.sampled_from(DTYPES), st.sampled_from([1, -1]))
@settings(max_examples=60, deadline=None)
def test_slopes_for_any_number_of_heads(heads, dtype, sign):
    np.testing.assert_allclose(alibi_slopes(heads), alibi(heads).numpy(), rtol=1e-6)
    assert judge(sample(sign * alibi(heads), dtype), frozenset()) == "ALiBi slopes"


@given(
    st.integers(4, 90),
    st.sampled_from([-1e9, -1e4, float("-inf"), 1.0, -100.0]),
    st.booleans(),
    st.integers(0, 2),
)
@settings(max_examples=60, deadline=None)
def test_triangles_of_any_size(n, value, transpose, offset):
    mask = torch.triu(torch.full((n, n), value), diagonal=1 - offset)
    assert judge(sample(mask.T if transpose else mask), frozenset()) == "attention mask"


shapes = st.one_of(
    st.tuples(st.integers(2, 64)),
    st.tuples(st.integers(2, 64), st.integers(2, 64)),
    st.tuples(st.integers(2, 9), st.integers(2, 9), st.integers(1, 3), st.integers(1, 3)),
)
EVERY_KIND = frozenset(
    ("mask", "table", "frequencies", "slopes", "schedule", "indices", "identity", "window", "queue", "image")
)


DRAWN = (
    "normal",
    "gain",
    "uniform",
    "ternary",
    "sign",
    "pruned",
    "zeros",
    "ones",
    "constant",
    "quantised",
    "large",
    "nan",
)


def draws(shape, kind, seed):
    random = torch.Generator().manual_seed(seed)
    noise = torch.randn(shape, generator=random)
    whole = torch.randint(-1, 2, shape, generator=random).float()
    return {
        "normal": noise * 0.02,
        "gain": 1 + noise * 0.05,
        "uniform": torch.rand(shape, generator=random) - 0.5,
        "ternary": whole,
        "sign": torch.sign(noise),
        "pruned": noise * whole.abs(),
        "zeros": torch.zeros(shape),
        "ones": torch.ones(shape),
        "constant": torch.full(shape, 1e-5),
        "quantised": torch.round(noise * 8) / 64,
        "large": noise * 1e4,
        "nan": torch.where(noise > 1, torch.tensor(math.nan), noise),
    }[kind]


@given(shapes, st.sampled_from(DRAWN), st.integers(0, 10**6), st.sampled_from(DTYPES))
@settings(max_examples=400, deadline=None)
def test_random_weights_are_never_constants(shape, kind, seed, dtype):
    values = draws(shape, kind, seed)
    if values.numel() >= 8 or values.dim() > 1:
        assert judge(sample(values, dtype), frozenset()) is None, (shape, kind)
    if values.numel() >= 24 and kind in ("normal", "gain", "uniform", "quantised"):
        assert judge(sample(values, dtype), EVERY_KIND) is None, (shape, kind)


def test_little_is_read_of_parameters_that_change(tmp_path, skipped, reads):
    first = {"w": torch.randn(1000, 100), "pe": halves(1000, 64)}
    assert skipped(first, {**first, "w": torch.randn(1000, 100)}).keys() == {"pe"}
    assert sum(count for (_, name), count in reads.items() if name == "w") < 4000


def test_a_frozen_batch_norm_has_no_parameters(skipped):
    """Detectors keep gain and shift as buffers, and count no batches; one checkpoint cannot show that."""
    norm = {
        f"bn.{n}": torch.rand(8, generator=torch.Generator().manual_seed(i))
        for i, n in enumerate(("weight", "bias", "running_mean", "running_var"))
    }
    statistics = {"bn.running_mean", "bn.running_var"}
    last = {**norm, "w": torch.ones(4, 4)}
    assert skipped({**norm, "w": torch.eye(4)}, last).keys() == norm.keys()
    assert skipped(last).keys() == statistics
    trained = {**norm, "bn.bias": torch.zeros(8), "w": torch.eye(4)}
    assert skipped(trained, last).keys() == statistics
    counted = {"bn.num_batches_tracked": torch.tensor(3.0)}
    found = skipped({**norm, **counted, "w": torch.eye(4)}, {**last, **counted})
    assert found.keys() == {*statistics, *counted}


def test_a_large_setting_is_no_parameter_at_any_number_of_checkpoints(skipped):
    state = {"ffw.gradient_limit": torch.tensor(1e10), "w": torch.eye(4)}
    assert skipped(state).keys() == {"ffw.gradient_limit"}
    assert skipped(state, {**state, "w": torch.ones(4, 4)}).keys() == {"ffw.gradient_limit"}


def test_a_scale_that_is_trained_is_a_parameter(skipped):
    first, last = ({"embed_scale": torch.tensor(x), "w": torch.ones(4)} for x in (4.0, 4.1))
    assert skipped(first, last) == {}


def test_a_mask_at_the_end_of_a_large_tensor_is_seen(skipped):
    masks = torch.zeros(64, 49, 49)
    masks[-1, :20, 20:] = -100
    assert skipped({"blocks.attention_windows": masks, "w": torch.zeros(64, 49, 49)}).keys() == {
        "blocks.attention_windows"
    }
    assert skipped({"b": causal(), "w": torch.eye(32)}).keys() == {"b"}


def test_large_constants_under_any_name_pass_the_first_look(skipped):
    phase, _ = angles(1500, 128)
    long = torch.cat([phase.sin(), phase.cos()], 1)
    large = {
        "a.t0": long,
        "a.t1": long[1:],
        "a.t2": long.T,
        "a.t3": long[3:].T,
        "a.t4": interleaved(1500, 128)[7:],
        "a.t5": phase.cos(),
        "a.t6": phase.sin().T,
        "a.t7": phase.cos().T,
        "a.t8": phase,
        "a.t9": grid_sincos(30, 64),
        "a.m0": torch.tril(torch.ones(900, 900)),
        "a.m1": causal(n=900),
        "a.m2": causal(-1e9, 900).T,
        "a.i0": torch.arange(3000).float(),
        "a.f0": angles(4, 4000)[1],
        "a.b0": alibi(16)[:, None, None] * -torch.arange(3000.0),
        "a.b1": alibi(12)[:, None, None]
        * (torch.arange(300)[None] - torch.arange(300)[:, None])[None].float(),
    }
    assert skipped(large).keys() == large.keys()
