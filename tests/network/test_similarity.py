"""CKA and PWCCA against slow versions, and what they must not change with."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

import normscope as ns
from normscope.errors import UsageError
from normscope.network.measuring.layer_similarity import compare_states, missing_pwcca
from normscope.network.measuring.similarity import CentredStates, linear_cka, pwcca
from normscope.network.running.batches import as_batches
from normscope.network.watching.token_sample import SampledStates, sample_states
from tests.network.models import HandWritten, hugging_face, token_batch


def states(tokens=200, width=6, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    scales = torch.logspace(0, 2, width, dtype=torch.float64)
    made = torch.randn(tokens, width, generator=generator, dtype=torch.float64) * scales + 3
    return made.to(dtype)


def related(tokens=200, seed=0):
    """Two states that share a part."""
    x = states(tokens, 6, seed)
    return x, x[:, :4] @ states(4, 5, seed + 1) + 30 * states(tokens, 5, seed + 2)


# -- slow versions -------------------------------------------------------------------


def slow_cka(x, y):
    """With the tokens' kernels and the centring matrix, as in the paper."""
    x, y = x.numpy(), y.numpy()
    centring = np.eye(len(x)) - 1 / len(x)
    k, l = centring @ x @ x.T @ centring, centring @ y @ y.T @ centring  # noqa: E741
    return np.trace(k @ l) / math.sqrt(np.trace(k @ k) * np.trace(l @ l))


def slow_hsic(x, y):
    """The U-statistic by its definition: the mean over all four different tokens (Song et al., eq. 4)."""
    k, l = (x @ x.T).numpy(), (y @ y.T).numpy()  # noqa: E741
    terms = [
        k[t, u] * (l[t, u] + l[v, w] - 2 * l[t, v]) for t, u, v, w in itertools.permutations(range(len(k)), 4)
    ]
    return np.mean(terms)


def slow_pwcca(x, y):
    """By whitening with covariances: eigenvectors of W Σxy Σy^-1 Σyx W, with W the inverse root of Σx.

    What a layer normalisation leaves of the direction that it removes is rounding, and is left out.
    """
    x, y = (part.numpy() - part.numpy().mean(0) for part in (x, y))
    values, vectors = np.linalg.eigh(x.T @ x)
    real = values > 1e-9 * values.max()
    whiten = vectors[:, real] / np.sqrt(values[real])
    inner = whiten.T @ x.T @ y @ np.linalg.pinv(y.T @ y, 1e-9, hermitian=True) @ y.T @ x @ whiten
    squares, directions = np.linalg.eigh(inner)
    pairs = min(real.sum(), np.linalg.matrix_rank(y.T @ y, 1e-6))
    correlations = np.sqrt(squares[-pairs:].clip(0, 1))
    variates = x @ whiten @ directions[:, -pairs:]
    weights = np.abs(variates.T @ x).sum(1)
    return (weights * correlations).sum() / weights.sum()


@pytest.mark.parametrize("tokens", [5, 40, 200])
def test_cka_is_that_of_the_kernels(tokens):
    x, y = related(tokens)
    assert linear_cka(x, y) == pytest.approx(slow_cka(x, y), rel=1e-9)


def test_debiased_cka_is_the_u_statistic_by_definition():
    x, y = related(9)
    slow = slow_hsic(x, y) / math.sqrt(slow_hsic(x, x) * slow_hsic(y, y))
    assert linear_cka(x, y, debiased=True) == pytest.approx(slow, rel=1e-6)


def test_pwcca_is_that_of_the_covariances():
    x, y = related()
    assert pwcca(x, y) == pytest.approx(slow_pwcca(x, y), rel=1e-9)
    assert pwcca(y, x) == pytest.approx(slow_pwcca(y, x), rel=1e-9)
    assert abs(pwcca(x, y) - pwcca(y, x)) > 1e-3, "the weights are the first argument's"


# -- properties ----------------------------------------------------------------------


@pytest.mark.parametrize("debiased", [False, True])
def test_cka_ignores_rotation_scale_and_shift_and_is_symmetric(debiased):
    x, y = related()
    rotation = torch.linalg.qr(states(6, 6, 9))[0]
    value = linear_cka(x, y, debiased=debiased)
    assert linear_cka(1e-20 * x @ rotation - 7e-20, y, debiased=debiased) == pytest.approx(value, rel=1e-6)
    assert linear_cka(x, 1e150 * y, debiased=debiased) == pytest.approx(value, rel=1e-9)
    assert linear_cka(y, x, debiased=debiased) == pytest.approx(value, rel=1e-12)
    stretched = linear_cka(x @ torch.diag(torch.logspace(0, 3, 6, dtype=x.dtype)), y, debiased=debiased)
    assert abs(stretched - value) > 1e-3, "CKA sees a stretch"


def test_pwcca_ignores_any_invertible_map_of_the_other_states():
    x, y = related()
    mapped = y @ (states(5, 5, 9) + 50 * torch.eye(5, dtype=y.dtype)) + 100
    assert pwcca(x, mapped) == pytest.approx(pwcca(x, y), rel=1e-8)
    assert pwcca(x, x @ torch.randn(6, 6, dtype=x.dtype)) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_states_are_as_similar_as_possible_to_themselves(dtype):
    x = states(dtype=dtype)
    assert linear_cka(x, x) == pytest.approx(1, abs=1e-12)
    assert linear_cka(x, x, debiased=True) == pytest.approx(1, abs=1e-12)
    assert pwcca(x, x) == pytest.approx(1, abs=1e-9)


def test_unrelated_states_are_not_similar_and_few_tokens_do_not_hide_it():
    x, y = (torch.randn(60, 40, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    assert linear_cka(x, y) > 0.3 and abs(linear_cka(x, y, debiased=True)) < 0.1
    assert pwcca(x, y) > 0.7 and not CentredStates.of(x).enough_for_pwcca
    x, y = (torch.randn(400, 40, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    assert pwcca(x, y) < 0.3 and CentredStates.of(x).enough_for_pwcca


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_directions_that_are_only_rounding_do_not_count(dtype):
    """Copied, constant and dead columns, and a column that is much larger than all others."""
    x, y = (states(200, 6, seed, dtype=dtype) for seed in (0, 5))
    wide = torch.cat([x, x @ torch.randn(6, 6, dtype=dtype), torch.full((200, 1), 1e4), 0 * x[:, :1]], 1)
    assert CentredStates.of(wide).basis.shape[1] == 6
    assert 0 <= pwcca(wide, y) <= 1 and not CentredStates.of(wide).enough_for_pwcca
    large = torch.cat([x, 1e6 * states(200, 1, 8, dtype=dtype)], 1)
    assert CentredStates.of(large).basis.shape[1] == 7, "small columns beside a large one are real"


def test_more_dimensions_than_tokens():
    x, y = states(20, 50), states(20, 30, 3)
    assert linear_cka(x, y) == pytest.approx(slow_cka(x, y), rel=1e-9)
    assert pwcca(x, y) == pytest.approx(1, abs=1e-9), "which is why it is not given"
    assert math.isfinite(linear_cka(x, y, debiased=True))


@pytest.mark.parametrize("value", [0.0, 1 / 3, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_constant_states_have_no_similarity(value, dtype):
    x, y = torch.full((50, 4), value, dtype=dtype), states(50, 4, dtype=dtype)
    for measure in (linear_cka, pwcca):
        assert math.isnan(measure(x, y)) and math.isnan(measure(y, x)) and math.isnan(measure(x, x))
    assert CentredStates.of(x).fault == "constant"


def test_states_that_are_not_finite_or_not_of_the_same_tokens():
    x, y = states(), states(seed=1)
    y[3, 2] = math.inf
    assert math.isnan(linear_cka(x, y)) and math.isnan(pwcca(x, y))
    with pytest.raises(UsageError, match="same tokens; got 200 tokens and 100 tokens"):
        linear_cka(x, x[:100])
    assert math.isnan(linear_cka(x[:3], x[:3], debiased=True)), "the estimator needs four tokens"


def test_repeated_states_are_not_more_tokens():
    """Twelve kinds of token span the same space in every network: PWCCA would be 1 whatever it learned."""
    kinds = torch.randint(12, (500,), generator=torch.Generator().manual_seed(0))
    x, y = (states(12, 20, seed)[kinds] for seed in (1, 2))
    assert pwcca(x, y) == pytest.approx(1, abs=1e-6)
    assert not CentredStates.of(x).enough_for_pwcca


# -- which tokens --------------------------------------------------------------------


def test_the_sample_is_of_real_tokens_evenly_spread_and_of_the_allowed_size():
    model = HandWritten()
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(50, (1, 90), generator=generator) for _ in range(10)]
    masks = [torch.arange(90)[None] < 80 + number for number in range(10)]
    batches = as_batches([ns.Batch((row,), mask=mask) for row, mask in zip(rows, masks, strict=True)])
    whole = sample_states(model, batches, 10_000)["blocks.1"]
    part = sample_states(model, batches, 100)["blocks.1"]
    assert len(whole.states) == sum(80 + number for number in range(10)) == 845
    assert len(part.states) == 100
    places = [int((whole.states == row).all(1).nonzero()[0]) for row in part.states]
    gaps = np.diff(places)
    assert (gaps > 0).all() and len(set(gaps)) <= 3 and gaps.max() <= 21
    assert places[0] < 21 and places[-1] > 845 - 21


def test_the_sample_survives_a_model_that_changes_its_states_in_place():
    class InPlace(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = HandWritten()
            self.blocks = self.inner.blocks

        def forward(self, ids):
            return self.inner(ids).mul_(0)

    torch.manual_seed(0)
    found = sample_states(InPlace(), as_batches(torch.arange(20).reshape(2, 10)), 100)
    assert all(layer.states.abs().sum() > 0 for layer in found.values())


# -- two models ----------------------------------------------------------------------


def test_two_models_layer_by_layer_and_the_models_stay_as_they_are():
    a, b = (hugging_face("bert", seed=seed).train() for seed in (0, 1))
    before = {name: value.clone() for name, value in a.state_dict().items()}
    batch = token_batch(rows=40, length=30)
    found = ns.layer_similarity(a, b, batch)
    assert [row.module for row in found.layers] == [
        "encoder.layer.input",
        "encoder.layer.0",
        "encoder.layer.1",
    ]
    assert {row.tokens for row in found.layers} == {1198}
    assert all(0 < row.cka_debiased < row.cka < 0.9 for row in found.layers)
    assert [row.pwcca is None for row in found.layers] == [True, False, False]
    assert a.training and all((value == before[name]).all() for name, value in a.state_dict().items())
    hidden = [model.eval()(**batch).last_hidden_state.detach().double() for model in (a, b)]
    x, y = (value[batch["attention_mask"].bool()] for value in hidden)
    assert found.layers[-1].cka == pytest.approx(slow_cka(x, y), rel=1e-5)
    assert found.layers[-1].pwcca == pytest.approx(slow_pwcca(x, y), rel=1e-4)


def test_few_tokens_give_no_pwcca_and_it_is_said():
    model = hugging_face("gpt2")
    found = ns.layer_similarity(model, model, token_batch())
    assert all(row.pwcca is None and row.cka == pytest.approx(1) for row in found.layers)
    assert [text for text in found.warnings if "PWCCA is missing for 2 of 2 layers" in text]


def test_encoder_and_decoder_are_compared_each_with_its_own_tokens():
    found = ns.layer_similarity(hugging_face("t5"), hugging_face("t5", seed=1), token_batch("t5"))
    tokens = {row.module.split(".")[0]: row.tokens for row in found.layers}
    assert tokens == {"encoder": 19, "decoder": 15}


def test_models_of_other_depth_or_with_a_task_head():
    import transformers as tf

    config = {"vocab_size": 50, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    deep = tf.BertModel(tf.BertConfig(**config, num_hidden_layers=3))
    shallow = tf.BertModel(tf.BertConfig(**config | {"hidden_size": 8}, num_hidden_layers=2))
    found = ns.layer_similarity(deep, shallow, token_batch())
    assert [row.layer for row in found.layers] == [0, 1, 2]
    assert any("only the first model has encoder.layer.2" in text for text in found.warnings)
    tuned = tf.BertForMaskedLM(deep.config)
    tuned.bert.load_state_dict(deep.state_dict(), strict=False)
    found = ns.layer_similarity(deep, tuned, token_batch())
    assert len(found.layers) == 4 and all(row.cka == pytest.approx(1) for row in found.layers)
    with pytest.raises(UsageError, match="no layer in common"):
        ns.layer_similarity(deep, hugging_face("gpt2"), token_batch())


def test_states_that_are_nan_or_constant_are_said():
    good, bad = hugging_face("bert"), hugging_face("bert")
    bad.encoder.layer[1].output.LayerNorm.weight.data.fill_(math.nan)
    bad.encoder.layer[0].output.LayerNorm.weight.data.zero_()
    found = ns.layer_similarity(good, bad, token_batch())
    assert [row.cka is None for row in found.layers] == [False, True, True]
    text = " ".join(found.warnings)
    assert "all tokens have the same state in the second model, from encoder.layer.0 on" in text
    assert "states are NaN or infinite in the second model, from encoder.layer.1 on" in text


def test_states_in_another_layout_are_not_compared():
    x = SampledStates(1, states(20, 4), ((4, 5),))
    y = SampledStates(1, states(20, 4), ((5, 4),))
    found = compare_states({"h.0": x}, {"h.0": y}, ("a", "b"))
    assert not found.layers and "different shapes" in found.warnings[0]
    assert not missing_pwcca(found.layers)


def test_ambiguous_layers_are_left_out():
    x = SampledStates(1, states(20, 4), ((4, 5),))
    found = compare_states({"encoder.h.0": x, "decoder.h.0": x}, {"h.0": x}, ("a", "b"))
    assert not found.layers and len(found.warnings) == 2
