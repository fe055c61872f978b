"""Where heads attend: against loops in plain Python, on heads built by hand, and where it could lie."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from normscope.network.attention.attention_maps import query_mask
from normscope.network.attention.pattern_labels import PATTERNS
from normscope.network.attention.pattern_tally import STRETCH, PatternTally
from normscope.network.attention.patterns import (
    HeadPatterns,
    PatternShare,
    attends,
    head_patterns,
    share_interval,
)
from normscope.network.running.batches import Batch, as_batch
from normscope.network.running.token_ids import separator_ids
from normscope.network.watching.attention_call import HIDDEN, AttentionCall
from normscope.network.watching.tap import tap
from tests.network.models import HandWritten, hugging_face, token_batch

pytest.importorskip("transformers")

RANGES = {"2-4": (2, 4), "5-16": (5, 16), "17+": (17, 10**9)}
EOS = frozenset({2})


def is_decoder(path):
    return "decoder" in path.split(".")


def observe(tally, batch, network="soft", maps=None):
    """What the owner of a tally does with each call."""

    def look(call):
        for start, stop, scores in call.blocks():
            visible = scores > HIDDEN
            counted = visible[:, :1].any(-1)
            mask = query_mask(batch, call, is_decoder(call.module))
            if mask is not None:
                counted = counted & mask[:, None, start:stop]
            weights = scores.softmax(-1)
            tally.add(call, start, weights, visible, counted.to(torch.float64), network)
            if maps is not None:
                maps.setdefault(call.name, []).append((weights, visible, counted))

    return look


def tally_of(model, batches, separators=EOS):
    tally, maps = PatternTally(separators, is_decoder), {}
    with torch.no_grad():
        for batch in map(as_batch, batches):
            tally.prepare(batch)
            with tap(model, observe(tally, batch, maps=maps)):
                batch.run(model)
    return head_patterns(tally, "soft"), maps


def keys_of(i, length, ids, first, separators, aligned=True):
    """The keys of each pattern of query i, by definition."""
    found = {"first": {first}}
    if ids is not None:
        found["separator"] = {j for j in range(length) if ids[j] in separators and j != first}
    if not aligned:
        return found
    found |= {"previous": {i - 1}, "next": {i + 1}, "self": {i}}
    if ids is not None:
        found["same"] = {j for j in range(length) if ids[j] == ids[i] and j != i}
        earlier = [j for j in range(i) if ids[j] == ids[i]]
        found["induction"] = {earlier[-1] + 1} if earlier else set()
    for name, (low, high) in RANGES.items():
        found[f"before {name}"] = {j for j in range(length) if low <= i - j <= high}
        found[f"after {name}"] = {j for j in range(length) if low <= j - i <= high}
    return found


def slow(weights, visible, counted, ids, first, separators=EOS, aligned=True):
    """Pattern → rows (sentence, weight, clear weight or None, chance), one per query where it is possible."""
    rows = {}
    for b in range(len(weights)):
        for i in range(weights.shape[1]):
            seen = {j for j in range(weights.shape[2]) if visible[b][i][j]}
            if not counted[b][i] or len(seen) < 2:
                continue
            row = weights[b][i].tolist()
            own = keys_of(i, weights.shape[2], ids and ids[b], first[b], separators, aligned)
            own = {name: keys & seen for name, keys in own.items()}
            named = {name: keys for name, keys in own.items() if " " not in name}
            for name, keys in own.items():
                others = set().union(*(k for n, k in named.items() if n != name))
                if keys and keys != seen:
                    clear = keys - others
                    on_clear = sum(row[j] for j in clear) if clear else None
                    rows.setdefault(name, []).append(
                        (b, sum(row[j] for j in keys), on_clear, len(keys) / len(seen))
                    )
            even = sum(min(row[j], 1 / len(seen)) for j in seen)
            rows.setdefault("uniform", []).append((b, even, even, 1.0))
    return rows


def compare(found, rows, one_unit=True):
    assert set(found.shares) == set(rows)
    for name, expected in rows.items():
        share = found.shares[name]
        assert share.queries == len(expected)
        assert share.share == pytest.approx(np.mean([r[1] for r in expected]), abs=1e-6), name
        assert share.chance == pytest.approx(np.mean([r[3] for r in expected]), abs=1e-12), name
        clear = [r[2] for r in expected if r[2] is not None]
        assert (name in found.clear) == bool(clear)
        if clear:
            assert found.clear[name].share == pytest.approx(np.mean(clear), abs=1e-6), name
        by_sentence = [[r[1] for r in expected if r[0] == b] for b in {r[0] for r in expected}]
        if one_unit:
            x, n = (np.array([f(rows) for rows in by_sentence], float) for f in (sum, len))
            squares = ((x - share.share * n) ** 2).sum()
            known = share_interval(share.share, n.sum(), squares, (n**2).sum(), float(len(n)))
            assert [share.low, share.high] == pytest.approx([float(k) for k in known], abs=1e-6)
        assert 0 <= share.low <= share.share + 1e-12 and share.share - 1e-12 <= share.high <= 1


def few_tokens(rows=4, length=23, left=False):
    """Token ids with many repetitions and separators; the last row is padded."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(2, 9, (rows, length), generator=generator)
    mask = torch.ones_like(ids)
    padded = slice(0, 5) if left else slice(-5, None)
    mask[-1, padded] = ids[-1, padded] = 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "xlnet"])
def test_equal_to_loops(family, left):
    """Also with grouped queries (llama), and with padding on either side."""
    model, batch = hugging_face(family), few_tokens(left=left)
    found, maps = tally_of(model, [batch])
    assert len(found) == 8
    ids = batch["input_ids"].tolist()
    first = [0, 0, 0, 5 if left else 0]
    for (call, head), patterns in found.items():
        [(weights, visible, counted)] = maps[call]
        rows = slow(weights[:, head], visible[:, head], counted[:, 0], ids, first)
        compare(patterns, rows)


def test_equal_to_loops_in_blocks_of_queries(monkeypatch):
    """Long sequences come in blocks, form several units, and are labelled in parts."""
    model = HandWritten()
    ids = torch.randint(0, 9, (2, 100), generator=torch.Generator().manual_seed(0))
    whole, maps = tally_of(model, [ids])
    monkeypatch.setattr("normscope.network.watching.attention_call._BLOCK", 2 * 4 * 100 * 7)
    monkeypatch.setattr("normscope.network.attention.pattern_tally._PART", 2 * 100 * 3)
    parts, _ = tally_of(model, [ids])
    for key, found in whole.items():
        [(weights, visible, counted)] = maps[key[0]]
        rows = slow(weights[:, key[1]], visible[:, key[1]], counted[:, 0], ids.tolist(), [0, 0])
        compare(found, rows, one_unit=False)
        compare(parts[key], rows, one_unit=False)
        for name, share in found.shares.items():
            assert parts[key].shares[name].low == pytest.approx(share.low, abs=1e-6)


def test_cross_attention_has_the_labels_of_its_keys():
    """Decoder and encoder of one length: their lengths do not distinguish the two kinds of attention."""
    model, batch = hugging_face("t5"), few_tokens()
    batch["decoder_input_ids"] = batch["input_ids"].flip(0, 1)
    found, maps = tally_of(model, [batch])
    ids = batch["input_ids"].tolist()
    for (call, head), patterns in found.items():
        [(weights, visible, counted)] = maps[call]
        cross, decoder = "EncDec" in call, call.startswith("decoder")
        tokens = ids if cross or not decoder else batch["decoder_input_ids"].tolist()
        rows = slow(weights[:, head], visible[:, head], counted[:, 0], tokens, [0] * 4, aligned=not cross)
        compare(patterns, rows)
        assert cross == ("self" not in patterns.shares)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_cross_attention_without_a_telling_name_or_length():
    torch.manual_seed(0)
    model = torch.nn.Transformer(16, 4, 1, 1, 32, batch_first=True).eval()
    causal = model.generate_square_subsequent_mask(6)
    batch = {"src": torch.randn(3, 6, 16), "tgt": torch.randn(3, 6, 16), "tgt_mask": causal}
    found, _ = tally_of(model, [batch])
    has_self = {call: "self" in patterns.shares for (call, _), patterns in found.items()}
    assert has_self == {
        "encoder.layers.0.self_attn": True,
        "decoder.layers.0.self_attn": True,
        "decoder.layers.0.multihead_attn": False,
    }
    assert not any({"same", "induction", "separator"} & set(p.shares) for p in found.values())


def test_a_decoder_never_has_the_tokens_of_its_encoder():
    """BART makes its decoder's ids itself, shifted: they are unknown, not those of the encoder."""
    import transformers as tf

    size = {
        "d_model": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_ffn_dim": 8,
        "decoder_ffn_dim": 8,
    }
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = tf.BartConfig(vocab_size=50, pad_token_id=0, bos_token_id=1, eos_token_id=2, **size, **heads)
    found, _ = tally_of(tf.BartModel(config).eval(), [few_tokens()])
    knows = {call: {"same", "separator"} & set(p.shares) for (call, _), p in found.items()}
    assert knows == {
        "encoder.layers.0.self_attn": {"same", "separator"},
        "decoder.layers.0.self_attn": set(),
        "decoder.layers.0.encoder_attn": {"separator"},
    }


# Heads built by hand.


def by_hand(weights_of, ids, causal=True):
    """The patterns of one head whose weights are given by a function of the query."""
    rows, length = len(ids), len(ids[0])
    visible = torch.ones(rows, 1, length, length, dtype=torch.bool)
    visible = visible.tril() if causal else visible
    weights = torch.zeros(rows, 1, length, length)
    for b in range(rows):
        for i in range(length):
            for key, weight in weights_of(ids[b], i).items():
                weights[b, 0, i, key] += weight
    call = AttentionCall("attention", 1, rows, 1, length, length, lambda i, j: weights[:, :, i:j])
    tally = PatternTally(EOS, is_decoder)
    tally.prepare(Batch((torch.tensor(ids),)))
    tally.add(call, 0, weights, visible, torch.ones(rows, 1, length), "soft")
    return head_patterns(tally, "soft")["attention", 0]


def texts(rows=12, length=24, words=10, seed=0):
    generator = np.random.default_rng(seed)
    return [[1, *generator.integers(3, 3 + words, length - 2).tolist(), 2] for _ in range(rows)]


def last_seen(ids, i):
    earlier = [j for j in range(i) if ids[j] == ids[i]]
    return earlier[-1] if earlier else None


def induction(ids, i):
    last = last_seen(ids, i)
    return {last + 1: 0.9, 0: 0.1} if last is not None else {0: 1.0}


HEADS = {
    "previous": lambda ids, i: {max(i - 1, 0): 0.9, 0: 0.1},
    "first": lambda ids, i: {0: 0.8, i: 0.2},
    "self": lambda ids, i: {i: 1.0},
    "induction": induction,
    "uniform": lambda ids, i: dict.fromkeys(range(i + 1), 1 / (i + 1)),
    "before 2-4": lambda ids, i: {max(i - 3, 0): 1.0},
    None: lambda ids, i: {max(i - 1, 0): 0.5, i: 0.5},
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_built_by_hand_has_its_name(name):
    assert by_hand(HEADS[name], texts(rows=30)).name == name


def test_same_separator_and_next_need_keys_on_both_sides():
    words = texts(words=6)

    def same(ids, i):
        others = [j for j in range(len(ids)) if ids[j] == ids[i] and j != i]
        return {j: 1 / len(others) for j in others} if others else {i: 1.0}

    assert by_hand(same, words, causal=False).name == "same"
    assert by_hand(lambda ids, i: {len(ids) - 1: 1.0}, words, causal=False).name == "separator"
    assert by_hand(lambda ids, i: {min(i + 1, len(ids) - 1): 1.0}, words, causal=False).name == "next"


def test_patterns_that_always_coincide_give_no_name():
    """Two tokens: the previous one is the first one. And a text that repeats with period 2."""
    two = by_hand(lambda ids, i: {0: 1.0}, [[5, 6]] * 30)
    assert two.shares["previous"].share == two.shares["first"].share == 1
    assert two.name is None and not two.clear.keys() & {"previous", "first"}
    repeated = by_hand(lambda ids, i: {max(i - 1, 0): 1.0}, [[4, 5] * 8] * 30)
    assert repeated.shares["previous"].share == 1
    assert repeated.clear["previous"].queries == 0 if "previous" in repeated.clear else True
    assert repeated.name is None


def test_short_sentences_do_not_make_a_first_head_of_a_previous_head():
    """In sentences of three tokens half of the previous tokens are the first one."""
    found = by_hand(lambda ids, i: {max(i - 1, 0): 1.0}, [[1, 5 + k, 40 + k] for k in range(30)])
    assert found.shares["first"].share == pytest.approx(0.5)
    assert found.clear["first"].share == 0 and found.name == "previous"


def test_a_query_without_a_choice_does_not_count():
    """The first query of a causal model can only attend to itself."""
    found = by_hand(HEADS["previous"], texts(rows=5, length=10))
    assert found.shares["self"].queries == 5 * 9
    assert found.shares["self"].share == 0


def test_no_name_from_a_handful_of_queries():
    """Two of many sentences repeat a token; both attend to its successor, which proves little."""
    words = [[1, *range(10 * k + 5, 10 * k + 12)] for k in range(12)]
    words[0][-1], words[1][-1] = words[0][2], words[1][2]
    found = by_hand(induction, words)
    assert found.shares["induction"].queries == 2
    assert found.clear["induction"].share == pytest.approx(0.9) and found.clear["induction"].low < 0.5
    assert found.name != "induction"


def test_one_sentence_says_nothing_about_a_text():
    found = by_hand(HEADS["previous"], texts(rows=1))
    assert (found.shares["previous"].low, found.shares["previous"].high) == (0, 1)
    assert found.name is None
    assert by_hand(HEADS["previous"], texts(rows=1, length=STRETCH * 10, words=400)).name == "previous"


def test_chance_is_not_a_name():
    """Most of a long sentence is far away: a share of 0.75 there is what equal weights give."""
    found = by_hand(HEADS["uniform"], texts(length=60, words=50))
    assert found.shares["before 17+"].share == pytest.approx(found.shares["before 17+"].chance, abs=1e-6)
    shares = {"before 17+": PatternShare(0.75, 0.74, 0.76, 0.7, 1000)}
    assert HeadPatterns(shares, shares).name is None


def test_the_larger_of_two_shares_gives_the_name():
    def share(value):
        return PatternShare(value, value - 0.02, value + 0.02, 0.05, 1000)

    clear = {"first": share(0.7), "induction": share(0.9)}
    assert HeadPatterns(clear, clear).name == "induction"
    close = {"first": share(0.895), "induction": share(0.9)}
    assert HeadPatterns(close, close).name is None


@pytest.mark.parametrize("sentences", [6, 30, 100])
@pytest.mark.parametrize("truth", [0.05, 0.3, 0.9])
@pytest.mark.parametrize("kind", ["soft", "binary", "whole"])
def test_intervals_cover_the_truth(kind, truth, sentences):
    """Sentences of unequal length with shares of their own, or whole sentences of 0 and 1."""
    generator, trials = np.random.default_rng(3), 1000
    n = generator.integers(4, 40, (trials, sentences)).astype(float)
    own = generator.beta(truth * 4, (1 - truth) * 4, n.shape)
    if kind == "whole":
        own = (generator.random(n.shape) < truth).astype(float)
    x = generator.binomial(n.astype(int), own) if kind == "binary" else n * own
    share = x.sum(1) / n.sum(1)
    squares = ((x - share[:, None] * n) ** 2).sum(1)
    low, high = share_interval(share, n.sum(1), squares, (n**2).sum(1), np.full(trials, float(sentences)))
    assert np.mean((low <= truth) & (truth <= high)) > 0.92
    assert np.mean(high - low) < 12 / sentences**0.5 * 0.25 + 2 / sentences


def test_heads_that_see_different_positions():
    """A window in one head only: each head has its own possible queries."""
    visible = torch.ones(6, 2, 9, 9, dtype=torch.bool).tril()
    visible[:, 1] &= ~torch.ones(9, 9, dtype=torch.bool).tril(-3)
    weights = visible / visible.sum(-1, keepdim=True)
    call = AttentionCall("a", 1, 6, 2, 9, 9, lambda i, j: weights)
    tally = PatternTally(EOS, is_decoder)
    ids = torch.tensor(texts(6, 9))
    tally.prepare(Batch((ids,)))
    tally.add(call, 0, weights, visible, torch.ones(6, 1, 9), 0)
    found = head_patterns(tally, 0)
    for head in range(2):
        rows = slow(weights[:, head], visible[:, head], torch.ones(6, 9), ids.tolist(), [0] * 6)
        compare(found["a", head], rows)
    assert found["a", 1].shares["before 2-4"].chance < found["a", 0].shares["before 2-4"].chance


def test_broken_weights_are_said_and_padding_never_breaks():
    words = texts()
    weights = torch.zeros(12, 2, 24, 24)
    weights[..., 0] = 1
    visible, counted = torch.ones(12, 1, 24, 24, dtype=torch.bool), torch.ones(12, 1, 24)
    counted[:, :, -1] = 0
    weights[:, :, -1] = math.nan  # does not count
    weights[3, 1, 5] = math.nan  # counts
    call = AttentionCall("a", 1, 12, 2, 24, 24, lambda i, j: weights)
    tally = PatternTally(EOS, is_decoder)
    tally.prepare(Batch((torch.tensor(words),)))
    tally.add(call, 0, weights, visible, counted, "soft")
    found = head_patterns(tally, "soft")
    assert found["a", 0].name == "first" and found["a", 1] is None
    shown = attends(found["a", 0], found["a", 1])
    assert shown["name"] == "first" and shown["saturated"] is None and shown["saturated_name"] is None
    assert shown["soft"]["first"][0] == 1.0 and set(shown["chance"]) == set(shown["soft"]) <= set(PATTERNS)


def test_separators_of_config_and_tokenizer():
    class Config:
        eos_token_id, sep_token_id = [2, 7], None

    class Tokenizer:
        sep_token_id = 102

    assert separator_ids(None) == frozenset() and separator_ids(Config()) == {2, 7}
    assert separator_ids(Config(), Tokenizer()) == {2, 7, 102}


def test_vision_has_positions_only():
    import transformers as tf

    config = tf.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        image_size=16,
        patch_size=4,
    )
    found, _ = tally_of(tf.ViTModel(config).eval(), [{"pixel_values": torch.randn(3, 3, 16, 16)}])
    for patterns in found.values():
        assert {"previous", "first", "uniform"} <= set(patterns.shares)
        assert not {"same", "induction", "separator"} & set(patterns.shares)


def test_a_batch_measured_again_gives_the_same():
    model, batch = hugging_face("bert"), as_batch(token_batch())
    once, _ = tally_of(model, [batch])
    tally = PatternTally(EOS, is_decoder)
    with torch.no_grad():
        for network in ("soft", "again"):
            tally.prepare(batch)
            with tap(model, observe(tally, batch, network)):
                batch.run(model)
    tally.forget()
    assert head_patterns(tally, "soft") == head_patterns(tally, "again") == once
