"""Text to token ids: bytes, words between white space, or byte-pair encoding.

Each is stored as a `tokenizer.json` that the Hugging Face `tokenizers` package can read.
"""

from __future__ import annotations

import abc
import json
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from normscope.errors import TrainingError
from normscope.plugins import require
from normscope.run_files.json_files import read_document

TokenIds = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
UNKNOWN, END_OF_LINE = "<unk>", "<eos>"


class Tokenizer(abc.ABC):
    """A tokenizer: text ↔ integers in [0, vocab_size)."""

    vocab_size: int

    @classmethod
    @abc.abstractmethod
    def trained(cls, text: str, vocab_size: int) -> Self:
        """Return a tokenizer for this text; only byte-pair encoding uses `vocab_size`."""

    @abc.abstractmethod
    def encode(self, text: str) -> TokenIds:
        """Return the token ids of a text."""

    @abc.abstractmethod
    def decode(self, tokens: npt.ArrayLike) -> str:
        """Return the text of token ids."""

    @abc.abstractmethod
    def to_json(self) -> str:
        """Return the content of its tokenizer.json."""


class ByteTokenizer(Tokenizer):
    """Each UTF-8 byte is a token: no training, no unknown symbol."""

    vocab_size = 256

    @classmethod
    def trained(cls, text: str, vocab_size: int) -> Self:
        """There is nothing to learn."""
        return cls()

    def encode(self, text: str) -> TokenIds:
        """Return the UTF-8 bytes."""
        return np.frombuffer(text.encode(), np.uint8).astype(np.uint16)

    def decode(self, tokens: npt.ArrayLike) -> str:
        """Return the text; bytes that are not UTF-8 become the replacement character."""
        return np.asarray(tokens).astype(np.uint8).tobytes().decode(errors="replace")

    def to_json(self) -> str:
        """Return a byte-level BPE without merges, whose ids are the byte values."""
        vocab = {letter: value for value, letter in enumerate(_byte_letters())}
        return _document({"type": "BPE", "vocab": vocab, "merges": []}, _BYTE_LEVEL, decoder=_BYTE_LEVEL)


class WordTokenizer(Tokenizer):
    """Words between white space, and `<eos>` at the end of each line: how WikiText-2 and PTB are read."""

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self.vocabulary = vocabulary
        self.vocab_size = len(vocabulary)
        self._words = list(vocabulary)

    @classmethod
    def trained(cls, text: str, vocab_size: int) -> Self:
        """Learn every word of the text, in order of first appearance; all others are `<unk>`."""
        vocabulary: dict[str, int] = {}
        for word in (UNKNOWN, END_OF_LINE, *text.split()):
            vocabulary.setdefault(word, len(vocabulary))
        return cls(vocabulary)

    def encode(self, text: str) -> TokenIds:
        """Return the ids; a word that is not in the vocabulary becomes `<unk>`."""
        known, unknown, end = self.vocabulary.get, self.vocabulary[UNKNOWN], self.vocabulary[END_OF_LINE]
        numbers: list[int] = []
        for line in text.splitlines():
            numbers.extend(known(word, unknown) for word in line.split())
            numbers.append(end)
        return np.array(numbers, np.uint32)

    def decode(self, tokens: npt.ArrayLike) -> str:
        """Return the words with one space between them, and a new line for each `<eos>`."""
        words = [self._words[number] for number in np.asarray(tokens).tolist()]
        return " ".join(words).replace(f" {END_OF_LINE}", "\n").replace("\n ", "\n")

    def to_json(self) -> str:
        """Return a WordLevel model that splits at white space."""
        model = {"type": "WordLevel", "vocab": self.vocabulary, "unk_token": UNKNOWN}
        newline = {"type": "Replace", "pattern": {"String": "\n"}, "content": f" {END_OF_LINE} "}
        return _document(model, {"type": "WhitespaceSplit"}, normalizer=newline)


class BPETokenizer(Tokenizer):
    """Byte-level byte-pair encoding, learnt from the text by the `tokenizers` package."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.vocab_size = int(inner.get_vocab_size())

    @classmethod
    def trained(cls, text: str, vocab_size: int) -> Self:
        """Merge the most frequent pairs until the vocabulary has `vocab_size` entries."""
        package = _tokenizers()
        inner = package.Tokenizer(package.models.BPE())
        inner.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = package.decoders.ByteLevel()
        trainer = package.trainers.BpeTrainer(
            vocab_size=vocab_size,
            show_progress=False,
            initial_alphabet=package.pre_tokenizers.ByteLevel.alphabet(),
        )
        inner.train_from_iterator(text.splitlines(keepends=True), trainer)
        return cls(inner)

    def encode(self, text: str) -> TokenIds:
        """Encode line by line, in parallel."""
        lines = self._inner.encode_batch_fast(text.splitlines(keepends=True))
        return np.concatenate([np.array(line.ids, np.uint32) for line in lines] or [np.zeros(0, np.uint32)])

    def decode(self, tokens: npt.ArrayLike) -> str:
        """Return exactly the text that was encoded."""
        return str(self._inner.decode(np.asarray(tokens).tolist()))

    def to_json(self) -> str:
        """Return what the `tokenizers` package writes."""
        return str(self._inner.to_str())


TOKENIZERS: dict[str, type[Tokenizer]] = {"byte": ByteTokenizer, "word": WordTokenizer, "bpe": BPETokenizer}


def load_tokenizer(kind: str, path: Path) -> Tokenizer:
    """Read a tokenizer.json."""
    if kind == "byte":
        return ByteTokenizer()
    text = path.read_text(encoding="utf-8")
    if kind == "word":
        return WordTokenizer(read_document(path, TrainingError, {"model": {"vocab": dict}})["model"]["vocab"])
    return BPETokenizer(_tokenizers().Tokenizer.from_str(text))


def _tokenizers() -> Any:
    return require("tokenizers", "hf", "byte-pair encoding")


_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def _document(model: dict[str, Any], splitter: dict[str, Any], **parts: Any) -> str:
    document: dict[str, Any] = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": []}
    rest = {
        "normalizer": None,
        "pre_tokenizer": splitter,
        "post_processor": None,
        "decoder": None,
        "model": model,
    }
    return json.dumps(document | rest | parts, ensure_ascii=False)


def _byte_letters() -> list[str]:
    """Return the printable letter for each byte in byte-level vocabularies (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
