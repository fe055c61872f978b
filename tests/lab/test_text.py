"""Text: tokenizers against the Hugging Face reader, and what an epoch must hold."""

import json

import numpy as np
import pytest
import tokenizers as hf
from hypothesis import given
from hypothesis import strategies as st

from normscope.errors import TrainingError, UsageError
from normscope.lab.config import DataConfig
from normscope.lab.data.text import TextData, built_in_text, open_text
from normscope.lab.data.tokenizers import (
    TOKENIZERS,
    BPETokenizer,
    ByteTokenizer,
    WordTokenizer,
    load_tokenizer,
)

TEXT = "the cat sat\non the mat .\n\n the dog – naïve – sat too\n" * 3


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_tokenizer_json_is_read_by_hugging_face(kind, tmp_path):
    ours = TOKENIZERS[kind].trained(TEXT, 300)
    theirs = hf.Tokenizer.from_str(ours.to_json())
    assert theirs.encode(TEXT).ids == ours.encode(TEXT).tolist()
    (tmp_path / "tokenizer.json").write_text(ours.to_json(), encoding="utf-8")
    assert (
        load_tokenizer(kind, tmp_path / "tokenizer.json").encode(TEXT).tolist() == ours.encode(TEXT).tolist()
    )


@given(st.text())
def test_bytes_and_bpe_lose_nothing(text):
    assert ByteTokenizer().decode(ByteTokenizer().encode(text)) == text
    assert BPE.decode(BPE.encode(text)) == text


BPE = BPETokenizer.trained(TEXT, 300)


def test_bpe_makes_fewer_tokens():
    assert 256 < BPE.vocab_size <= 300
    assert len(BPE.encode(TEXT)) < len(TEXT) / 2


def test_words_are_read_as_wikitext_is():
    words = WordTokenizer.trained("a b\nb c\n", 0)
    assert words.decode(words.encode("a b\nzebra c\n")) == "a b\n<unk> c\n"
    assert words.encode("a\n\nb").tolist() == [
        words.vocabulary[w] for w in ("a", "<eos>", "<eos>", "b", "<eos>")
    ]
    assert words.vocab_size == 5


def data_of(count, length):
    return TextData(np.arange(count), np.arange(count), length, ByteTokenizer())


@given(st.integers(2, 400), st.integers(1, 20), st.integers(0, 3))
def test_an_epoch_reads_disjoint_pieces_of_the_text(count, length, seed):
    if count <= length:
        return
    data = data_of(count, length)
    rows = [data.batch(number, 1, seed) for number in range(data.sequences)]
    targets = np.concatenate([row.targets.numpy().ravel() for row in rows])
    assert len(set(targets.tolist())) == len(targets) == data.sequences * length
    assert all((row.targets == row.inputs + 1).all() for row in rows)
    assert data.sequences * length > count - 1 - 2 * length


def test_batches_follow_from_their_number_alone():
    data = data_of(1000, 10)
    assert (data.batch(37, 4, 5).inputs == data_of(1000, 10).batch(37, 4, 5).inputs).all()
    assert (data.batch(0, 4, 5).inputs != data.batch(0, 4, 6).inputs).any()
    single = [data.batch(4 * 37 + i, 1, 5).inputs[0].tolist() for i in range(4)]
    assert data.batch(37, 4, 5).inputs.tolist() == single


def test_prepare_tokenises_once_and_maps(tmp_path):
    source = tmp_path / "text.txt"
    source.write_text(TEXT, encoding="utf-8")
    config = DataConfig(text=str(source), tokenizer="word", length=3)
    first = open_text(config, tmp_path / "data")
    stamp = first.files[0].stat().st_mtime_ns
    again = open_text(config, tmp_path / "data")
    assert isinstance(again.train, np.memmap)
    assert again.files == first.files
    assert again.files[0].stat().st_mtime_ns == stamp
    assert (
        first.tokenizer.decode(first.train).split()
        == TEXT.split()[: len(first.tokenizer.decode(first.train).split())]
    )
    source.write_text(TEXT + "more words here\n", encoding="utf-8")
    assert open_text(config, tmp_path / "data").files != first.files


def test_held_out_text_is_the_end_or_the_given_file(tmp_path):
    text = built_in_text()
    data = open_text(DataConfig(), tmp_path)
    assert data.tokenizer.decode(data.train) + data.tokenizer.decode(data.valid) == text
    assert len(data.valid) == pytest.approx(len(text.encode()) / 10, rel=0.02)
    (tmp_path / "valid.txt").write_text("x" * 100, encoding="utf-8")
    other = open_text(DataConfig(valid=str(tmp_path / "valid.txt")), tmp_path)
    assert len(other.valid) == 100
    assert other.tokenizer.decode(other.train) == text


def test_evaluation_covers_the_held_out_text_once():
    data = data_of(101, 10)
    batches = data.evaluations(100, 4)["valid"]
    inputs = np.concatenate([batch.inputs.numpy().ravel() for batch in batches])
    assert sorted(inputs.tolist()) == list(range(100))


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"too short", "needs 65: give a longer text"), (b"\xff\xfe\x00broken", "not UTF-8")],
)
def test_unusable_texts_are_refused(tmp_path, content, words):
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    with pytest.raises((TrainingError, UsageError), match=words):
        open_text(DataConfig(text=str(path)), tmp_path / "data")


def test_missing_text_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot read the text"):
        open_text(DataConfig(text=str(tmp_path / "none.txt")), tmp_path)


def test_tokenizer_json_of_words_is_json():
    assert json.loads(WordTokenizer.trained("ein Wörtchen", 0).to_json())["model"]["vocab"]["Wörtchen"] == 3
