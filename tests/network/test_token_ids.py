"""Token ids as inputs: what is read, what is refused, and what the model then sees."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch

from normscope.errors import UsageError
from normscope.network.loading.models import StudyText
from normscope.network.running.inputs import ids_corpus
from normscope.network.running.token_ids import TokenRow, ids_digest, read_token_ids
from normscope.network.study import StudyConfig

IDS = [[5, 7, 2, 9], [1, 2, 3, 4], [8, 8, 0, 6]]


def written(path, value):
    if path.suffix == ".npy":
        np.save(path, value)
    elif path.suffix == ".npz":
        np.savez(path, **value)
    else:
        path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in value))
    return path


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint16", "uint8", ">i4"])
def test_an_array_is_its_rows(dtype, tmp_path):
    path = written(tmp_path / "ids.npy", np.array(IDS, dtype))
    assert [row.ids for row in read_token_ids(path)] == [tuple(row) for row in IDS]
    assert len(read_token_ids(path, 2)) == 2


def test_lines_may_have_any_length_and_a_mask(tmp_path):
    lines = [
        [5, 7],
        "",
        {"input_ids": [0, 4, 4], "attention_mask": [0, 1, 1], "labels": [1]},
        {"input_ids": [3]},
    ]
    rows = read_token_ids(written(tmp_path / "ids.jsonl", lines))
    assert rows == (TokenRow((5, 7)), TokenRow((0, 4, 4), (0, 1, 1)), TokenRow((3,)))
    assert rows[1].without_padding() == TokenRow((4, 4))
    arrays = {"input_ids": np.array(IDS), "attention_mask": np.array([[1] * 4, [1] * 4, [1, 1, 0, 0]])}
    found = read_token_ids(written(tmp_path / "ids.npz", arrays))
    assert [row.mask for row in found] == [None, None, (1, 1, 0, 0)]


class Runs:
    """Unpickled, it would say so."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('it ran')",))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("a.npy", np.array(IDS, float), "dtype float64; token ids are integers"),
        ("a.npy", np.array([[True, False]]), "dtype bool"),
        ("a.npy", np.arange(6), r"shape \[6\]; expected \[n, length\]"),
        ("a.npy", np.zeros((2, 3, 4), int), r"shape \[2, 3, 4\]"),
        ("a.npy", np.zeros((0, 4), int), "has no token ids"),
        ("a.npy", np.zeros((4, 0), int), "has no token ids"),
        ("a.npy", np.array([[3, -100]]), "row 0 has -100; token ids are 0 or larger"),
        ("a.npy", np.array([Runs()], object), "Python objects, which would run code"),
        ("a.npz", {"ids": np.array(IDS)}, "no array 'input_ids'"),
        ("a.npz", {"input_ids": np.array([Runs()], object)}, "Python objects"),
        ("a.npz", {"input_ids": np.array(IDS), "attention_mask": np.ones((3, 3), int)}, "attention_mask has"),
        ("a.npz", {"input_ids": np.array(IDS), "token_type_ids": np.ones((3, 4), int)}, "token_type_ids"),
        ("a.jsonl", [[3, 4], [3.0]], "line 2 has 3.0; token ids are integers"),
        ("a.jsonl", [[True]], "has true; token ids"),
        ("a.jsonl", [["12"]], 'has "12"; token ids'),
        ("a.jsonl", [[[3, 4], [5, 6]]], r"has \[3, 4\]; token ids"),
        ("a.jsonl", [[3, -1]], "has -1"),
        ("a.jsonl", [[3], "[4,"], "line 2 is not JSON"),
        ("a.jsonl", ["[NaN]"], "has NaN; token ids"),
        ("a.jsonl", [{"ids": [3]}], "line 1: expected a list of ids, or an object with the list 'input_ids'"),
        ("a.jsonl", [[]], "line 1 is empty"),
        ("a.jsonl", [""], "has no token ids"),
        ("a.jsonl", [{"input_ids": [3, 4], "attention_mask": [1]}], "one number for each of the 2 ids"),
        ("a.jsonl", [{"input_ids": [3, 4], "attention_mask": [1, 2]}], "1 at tokens and 0 at padding"),
        ("a.jsonl", [{"input_ids": [3, 4], "attention_mask": [0, 0]}], "all padding"),
        ("a.jsonl", [{"input_ids": [3, 4], "token_type_ids": [0, 1]}], "token_type_ids other than 0"),
        ("a.txt", ["3 4"], "is not a file of token ids: expected an .npy"),
    ],
)  # fmt: skip
def test_anything_else_is_refused(name, value, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        read_token_ids(written(tmp_path / name, value))


def test_damaged_files_are_refused(tmp_path):
    for name in ("a.npy", "a.npz"):
        for content in (b"", b"\x93NUMPY\x01", pickle.dumps(Runs()), b"PK\x03\x04"):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(UsageError, match=r"cannot read|objects|no single array"):
                read_token_ids(tmp_path / name)
    with pytest.raises(UsageError, match="no file of token ids at"):
        read_token_ids(tmp_path / "none.npy")


def test_other_ids_are_another_study():
    rows = (TokenRow((1, 2)), TokenRow((3, 4)))
    others = [
        (TokenRow((1, 2, 3)), TokenRow((4,))),
        (TokenRow((1, 2), (1, 0)), TokenRow((3, 4))),
        rows[::-1],
    ]
    assert len({ids_digest(each) for each in (rows, *others)}) == 4
    config = StudyConfig()
    assert config.fingerprint(StudyText((), None, rows)) != config.fingerprint(StudyText((), None, others[0]))
    assert config.fingerprint(StudyText(["a"])) != config.fingerprint(StudyText((), None, rows))
    assert config.fingerprint(StudyText(["a"])) != StudyConfig(blocks="h.*").fingerprint(StudyText(["a"]))


# -- what the model sees ------------------------------------------------------------------


def small_bert(**changes):
    tf = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    return tf.BertModel(tf.BertConfig(vocab_size=20, **{**sizes, **changes}))


def test_every_token_is_seen_once_and_padding_never():
    rows = [TokenRow(tuple(range(1, length))) for length in (3, 9, 4, 9)]
    rows.append(TokenRow((0, 0, 11, 12), (0, 0, 1, 1)))
    made = ids_corpus(rows, small_bert(), tokens=20)
    seen = [
        token for batch in made.batches for token in batch.kwargs["input_ids"][batch.mask].tolist()
    ]  # fmt: skip
    given = [token for row in rows for token in row.without_padding().ids]
    assert sorted(seen) == sorted(given)
    for batch in made.batches:
        assert torch.equal(batch.mask, batch.kwargs["attention_mask"].bool())


def test_examples_are_named_by_their_ids():
    made = ids_corpus([TokenRow((0, 7, 9), (0, 1, 1))], small_bert())
    assert made.example_tokens == ("7", "9")
    assert made.example.kwargs["input_ids"].tolist() == [[7, 9]]


def test_ids_beyond_the_vocabulary_are_refused():
    with pytest.raises(UsageError, match=r"contain 20, but the model has a vocabulary of 20 \(0 to 19\)"):
        ids_corpus([TokenRow((3, 20))], small_bert())
    assert ids_corpus([TokenRow((3, 19))], small_bert()).batches


def test_long_rows_are_cut_with_a_warning():
    made = ids_corpus([TokenRow((3,) * 12), TokenRow((4,) * 5)], small_bert(max_position_embeddings=8))
    assert made.warnings == ("1 of 2 sequences are longer than the model allows and were cut to 8 tokens",)
    with pytest.raises(UsageError, match="only padding in its first 8 positions"):
        ids_corpus([TokenRow((3,) * 12, (0,) * 9 + (1,) * 3)], small_bert(max_position_embeddings=8))


def test_padding_without_a_mask_is_noticed():
    rows = [TokenRow((3, 4, 0, 0)), TokenRow((3, 4, 5, 0))]
    assert "2 of 2 sequences end in 0, the model's padding" in ids_corpus(rows, small_bert()).warnings[0]
    assert ids_corpus([TokenRow((3, 4, 5, 0))], small_bert(pad_token_id=None)).warnings == ()


def test_a_model_without_a_mask_takes_no_padding():
    from normscope.lab.model import ModelConfig, Transformer

    model = Transformer(ModelConfig(d_model=8, n_heads=2, d_ff=8))
    assert ids_corpus([TokenRow((3, 4)), TokenRow((5,))], model).batches
    with pytest.raises(UsageError, match="takes no attention_mask"):
        ids_corpus([TokenRow((3, 4), (1, 0))], model)
    with pytest.raises(UsageError, match="vocabulary of 256"):
        ids_corpus([TokenRow((3, 256))], model)


@pytest.mark.parametrize(("start", "padding", "first"), [(7, 3, 7), (0, 3, 0), (None, 3, 3), (None, None, 0)])
def test_a_decoder_gets_the_text_behind_what_generation_begins_with(start, padding, first):
    tf = pytest.importorskip("transformers")
    sizes = {"vocab_size": 20, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}
    config = tf.T5Config(**sizes, decoder_start_token_id=start, pad_token_id=padding)
    (batch,) = ids_corpus([TokenRow((5, 6, 9))], tf.T5Model(config)).batches
    assert batch.kwargs["input_ids"].tolist() == [[5, 6, 9]]
    assert batch.kwargs["decoder_input_ids"].tolist() == [[first, 5, 6]]
