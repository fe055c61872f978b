"""The task in the saturated network, against the model's own loss and a slow count."""

from __future__ import annotations

import math

import pytest
import torch

import normscope as ns
from normscope.errors import ScaleOverflow, UsageError
from normscope.network.predicting.comparison import SentenceSums
from tests.network.headed_models import HEADED, headed
from tests.network.models import HandWritten, hugging_face, token_batch

pytest.importorskip("transformers")


def logits(model, batch):
    with torch.no_grad():
        return model(**batch).logits


@pytest.mark.parametrize("attention", ["scaled", "exact"])
def test_loss_accuracy_and_agreement_counted_by_hand(attention):
    model, batch = headed("gpt2").double(), token_batch()
    found = ns.saturated_task(model, batch)
    soft = logits(model, batch)
    with ns.saturated(model, attention=attention):
        hard = logits(model, batch)
    ids, mask = batch["input_ids"], batch["attention_mask"].bool()
    losses, right, same, divergence = [], [], [], []
    for row in range(3):
        for t in range(6):
            if mask[row, t] and mask[row, t + 1]:
                p, q = soft[row, t].log_softmax(-1), hard[row, t].log_softmax(-1)
                losses.append(-q[ids[row, t + 1]])
                right.append(q.argmax() == ids[row, t + 1])
                same.append(q.argmax() == p.argmax())
                divergence.append((p.exp() * (p - q)).sum())
    row = found[attention]
    assert found.positions == len(losses) == 16 and found.sentences == 3
    assert row.loss == pytest.approx(float(sum(losses)) / 16)
    assert row.accuracy == pytest.approx(sum(map(int, right)) / 16)
    assert row.agreement == pytest.approx(sum(map(int, same)) / 16)
    assert row.divergence == pytest.approx(float(sum(divergence)) / 16)


@pytest.mark.parametrize("family", HEADED)
def test_the_models_own_loss(family):
    model, batch = headed(family).double(), token_batch(family)
    labels = batch.get("decoder_input_ids", batch["input_ids"]).clone()
    if family == "classifier":
        labels = torch.tensor([0, 2, 1])
    elif family != "t5":
        labels[batch["attention_mask"] == 0] = -100
    found = ns.saturated_task(model, {**batch, "labels": labels})
    task = {"gpt2": "next-token", "llama": "next-token", "classifier": "classes"}.get(family, "tokens")
    assert found.task == task and not found.warnings
    with torch.no_grad():
        assert found["model"].loss == pytest.approx(
            float(model(**batch, labels=labels).loss), abs=1e-6
        )  # theirs is float32
    row = found["model"]
    assert (row.agreement, row.divergence) == (1.0, 0.0)
    assert row.rescaled_loss == pytest.approx(row.loss)


def bart():
    import transformers as tf

    sizes = {f"{part}_{what}": n for part in ("encoder", "decoder") for what, n in SIZES.items()}
    tokens = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    torch.manual_seed(0)
    config = tf.BartConfig(
        d_model=32, decoder_start_token_id=2, max_position_embeddings=64, **sizes, **tokens
    )
    return tf.BartForConditionalGeneration(config)


SIZES = {"layers": 1, "attention_heads": 4, "ffn_dim": 48}


@pytest.mark.parametrize("length", [5, 7], ids=["shorter than the input", "as long as the input"])
@pytest.mark.parametrize("family", ["t5", "bart"])
def test_a_decoder_that_makes_its_inputs_of_the_labels(family, length):
    """The encoder's mask says nothing about the labels, however long they are."""
    model = (bart() if family == "bart" else headed("t5")).double().eval()
    model.config.decoder_start_token_id = 2
    labels = torch.randint(3, 50, (3, length), generator=torch.Generator().manual_seed(1))
    labels[0, -2:] = -100
    batch = {**token_batch(), "labels": labels}
    found = ns.saturated_task(model, batch)
    assert (found.task, found.positions) == ("tokens", 3 * length - 2)
    with torch.no_grad():
        assert found["model"].loss == pytest.approx(float(model(**batch).loss), abs=1e-6)


def test_a_decoder_that_makes_its_inputs_of_the_input_predicts_the_input():
    model, batch = bart().double().eval(), token_batch()
    found = ns.saturated_task(model, batch)
    counted = batch["attention_mask"] == 1
    with torch.no_grad():
        loss = float(model(**batch, labels=batch["input_ids"].masked_fill(~counted, -100)).loss)
    assert (found.task, found.positions) == ("tokens", int(counted.sum()))
    assert found["model"].loss == pytest.approx(loss, abs=1e-6)


def test_a_decoder_that_is_given_its_inputs_predicts_the_next_of_them():
    model, batch = headed("t5").double(), token_batch("t5")
    found, ids = ns.saturated_task(model, batch), batch["decoder_input_ids"]
    assert (found.task, found.positions) == ("next-token", 3 * 4)
    expected = torch.nn.functional.cross_entropy(
        logits(model, batch)[:, :-1].flatten(0, 1), ids[:, 1:].flatten()
    )
    assert found["model"].loss == pytest.approx(float(expected))


def test_the_labels_of_a_classifier_are_those_of_the_input():
    import transformers as tf

    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "num_labels": 4}
    torch.manual_seed(0)
    model = tf.T5ForTokenClassification(tf.T5Config(vocab_size=50, **sizes)).double().eval()
    model.config.is_encoder_decoder = True  # as T5Gemma's is, whose labels are those of the input, too
    batch = token_batch()
    found = ns.saturated_task(model, {**batch, "labels": batch["input_ids"] % 4})
    assert (found.task, found.positions) == ("tokens", int(batch["attention_mask"].sum()))


def test_a_model_that_takes_no_labels_is_not_given_any():
    torch.manual_seed(0)
    model, ids = HandWritten().double(), token_batch()["input_ids"]
    found = ns.saturated_task(model, {"ids": ids, "labels": ids % 32})
    assert (found.task, found.positions) == ("next-token", 18)
    expected = torch.nn.functional.cross_entropy(
        model(ids)[:, :-1].flatten(0, 1), (ids % 32)[:, 1:].flatten()
    )
    assert found["model"].loss == pytest.approx(float(expected.detach()))


def test_without_labels_a_classifier_still_agrees_or_not():
    found = ns.saturated_task(headed("classifier"), token_batch())
    assert found.task == "classes" and found.positions == 3
    assert found["scaled"].loss is None and 0 <= found["scaled"].agreement <= 1


@pytest.mark.parametrize("labelled", [True, False])
def test_sets_are_compared_symbol_by_symbol(labelled):
    """As many positions as symbols: what is right is never read off the token ids."""
    torch.manual_seed(0)
    model, ids = HandWritten().double(), torch.randint(0, 50, (4, 8))
    legal = torch.randint(0, 2, (4, 8, 32)).double()
    batch = {"ids": ids, "labels": legal} if labelled else {"ids": ids}
    found = ns.saturated_task(model, batch, task="sets", scale=2.0)
    with torch.no_grad():
        soft = model(ids)
        with ns.saturated(model, scale=2.0):
            hard = model(ids)
    both = [torch.stack((values.sigmoid(), (-values).sigmoid())) for values in (soft, hard)]
    row = found["scaled"]
    assert (found.task, found.positions) == ("sets", 32)
    assert row.agreement == pytest.approx(float(((soft > 0) == (hard > 0)).all(-1).double().mean()))
    divergence = (both[0] * (both[0].log() - both[1].log())).sum((0, -1)).mean()
    assert row.divergence == pytest.approx(float(divergence))
    if labelled:
        loss = torch.nn.functional.binary_cross_entropy_with_logits
        assert found["model"].loss == pytest.approx(float(loss(soft, legal)))
        assert row.loss == pytest.approx(float(loss(hard, legal)))
    else:
        assert row.loss is row.accuracy is found["model"].loss is None


@pytest.mark.parametrize(
    ("task", "shape"), [("sets", (4, 8)), ("tokens", (4, 8, 32)), ("tokens", (4, 7)), ("sets", (4, 8, 31))]
)
def test_labels_that_do_not_fit_the_task_are_refused(task, shape):
    batch = {"ids": torch.randint(0, 50, (4, 8)), "labels": torch.zeros(shape, dtype=torch.long)}
    with pytest.raises(UsageError, match="do not fit logits"):
        ns.saturated_task(HandWritten(), batch, task=task)


def test_states_of_a_model_without_a_head():
    found = ns.saturated_task(hugging_face("bert"), token_batch())
    assert found.task == "states" and found["model"].cosine == pytest.approx(1)
    assert found["scaled"].cosine == pytest.approx(found["exact"].cosine, abs=0.01)


def test_a_network_that_is_saturated_already_agrees():
    model, batch = headed("gpt2").double(), token_batch()
    with ns.scaled(model, 2.0**12):
        found = ns.saturated_task(model, batch, scale=2)
    assert found["scaled"].agreement == found["exact"].agreement == 1


def test_accuracy_and_agreement_do_not_depend_on_the_scale():
    model, batch = headed("gpt2").double(), token_batch()
    first, second = (ns.saturated_task(model, batch, scale=2.0**power) for power in (12, 20))
    for network in ("scaled", "exact"):
        assert first[network].agreement == second[network].agreement
        assert first[network].rescaled_loss == pytest.approx(second[network].rescaled_loss, rel=1e-3)
        assert second[network].loss > 100 * first[network].loss


def test_overflow_is_missing_and_said():
    model, batch = headed("gpt2").half().float(), token_batch()
    found = ns.saturated_task(model, batch, scale=2.0**60)
    assert math.isnan(found["scaled"].agreement) and math.isnan(found["scaled"].accuracy)
    assert "NaN or infinite" in found.warnings[0] and found["model"].agreement == 1
    with pytest.raises(ScaleOverflow):
        ns.saturated_task(model, batch, scale=2.0**130)
    with pytest.raises(UsageError, match="power of two"):
        ns.saturated_task(model, batch, scale=0.5)


def test_the_error_is_that_of_sentences():
    """Equal positions within a sentence carry no information: the error is the one of sentence means."""
    means = torch.tensor([1.0, 4.0, 2.0, 7.0, 3.0])
    sums = SentenceSums()
    sums.add(means.repeat_interleave(10), torch.arange(5).repeat_interleave(10), 5)
    found = sums.mean()
    assert found.value == pytest.approx(float(means.mean()))
    assert found.error == pytest.approx(float(means.std()) / math.sqrt(5))


@pytest.mark.parametrize("family", HEADED)
def test_the_model_is_as_it_was(family):
    model, batch = headed(family), token_batch(family)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    ns.saturated_task(model, batch)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
