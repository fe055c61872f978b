"""From text to batches: tokenised, sorted by length, truncated to the model's limit."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from normscope.errors import ModelError, UsageError
from normscope.network.running.batches import Batch
from normscope.network.running.token_ids import TokenRow, separator_ids

BATCH_TOKENS = 1024
"""Positions in one batch, padding included: enough to use the processor well, little memory."""

EXAMPLE_TOKENS = 24
"""The longest sentence, in tokens, whose attention is shown."""

_UNKNOWN_ALLOWED = 0.5
_UNKNOWN_NOTICED = 0.05
_LENGTHS = ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length")


@dataclass(frozen=True)
class Corpus:
    """Batches of one text for one model, and warnings about them."""

    batches: tuple[Batch, ...]
    example: Batch
    """One short sentence, to show attention on."""
    example_tokens: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def read_sentences(path: Path | None, limit: int | None = 100) -> list[str]:
    """The first sentences of a text file, one per line; without a file, of Python's reference manual."""
    lines = _lines(path) if path is not None else _prose()
    found = [line.strip() for line in lines if line.strip()][:limit]
    if not found:
        raise UsageError(f"{path or 'the text'} is empty: expected one sentence per line")
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise UsageError(f"no text at {path}: expected a file with one sentence per line") from None
    except (IsADirectoryError, PermissionError) as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start}): convert it first") from None


def _prose() -> list[str]:
    """Sentences of the reference manual that is part of every Python installation."""
    from pydoc_data.topics import topics

    paragraphs = (part for name in sorted(topics) for part in topics[name].split("\n\n"))
    sentences = (" ".join(part.split()) for part in paragraphs if part[:1].isalpha() and "::" not in part)
    return [sentence for sentence in sentences if 40 <= len(sentence) <= 300]


def corpus(
    sentences: Sequence[str],
    tokenizer: Any,
    model: nn.Module,
    tokens: int = BATCH_TOKENS,
    example: str | None = None,
) -> Corpus:
    """Tokenise sentences for a model; sentences of similar length share a batch, to avoid padding.

    `example` is the sentence to show attention on; by default a short one of the sentences.
    """
    encoded = [list(ids) for ids in tokenizer(list(sentences), verbose=False)["input_ids"]]
    warnings = list(_check_unknown(encoded, tokenizer))
    rows = [TokenRow(tuple(ids)) for ids in encoded if ids]
    if not rows:
        raise UsageError("the text has no tokens: expected one sentence per line")
    _check_vocabulary(rows, model)
    made = _arranged(rows, tokenizer, model, tokens)
    made = replace(made, warnings=(*warnings, *made.warnings))
    return made if example is None else _with_example(made, example, tokenizer, model)


def ids_corpus(
    rows: Sequence[TokenRow], model: nn.Module, tokenizer: Any = None, tokens: int = BATCH_TOKENS
) -> Corpus:
    """Batches of token ids; the tokenizer, if there is one, only names the tokens of the example."""
    size = _vocabulary(model)
    largest = max(max(row.ids) for row in rows)
    if size is not None and largest >= size:
        raise UsageError(
            f"the ids contain {largest}, but the model has a vocabulary of {size} (0 to {size - 1}): they "
            "are those of another tokenizer"
        )
    if not _takes_mask(model) and any(row.mask is not None for row in rows):
        raise UsageError(
            f"{type(model).__name__} takes no attention_mask, so it would read the padding: give the ids "
            "without padding, as lines of a .jsonl file"
        )
    made = _arranged(rows, tokenizer, model, tokens)
    return replace(made, warnings=(*made.warnings, *_unmarked_padding(rows, model)))


def _arranged(rows: Sequence[TokenRow], tokenizer: Any, model: nn.Module, tokens: int) -> Corpus:
    """Batches of rows of similar length, cut to what the model allows, and one short row as an example."""
    limit, warnings = longest_allowed(model, tokenizer), []
    if cut := sum(len(row) > limit for row in rows) if limit else 0:
        warnings.append(
            f"{cut} of {len(rows)} sequences are longer than the model allows and were cut to {limit} tokens"
        )
    kept = sorted((row.cut(limit) for row in rows), key=len, reverse=True)
    if any(not any(row.real) for row in kept):
        raise UsageError(f"a sequence has only padding in its first {limit} positions, all the model takes")
    padding = _padding_id(tokenizer, model)
    groups = _by_length(kept, tokens, padded=_takes_mask(model))
    separators = separator_ids(tokenizer)
    batches = tuple(replace(_batch(group, padding, model), separators=separators) for group in groups)
    plain = [row.without_padding() for row in kept]
    short = next((row for row in plain if len(row) <= EXAMPLE_TOKENS), plain[-1]).cut(EXAMPLE_TOKENS)
    return Corpus(batches, _batch([short], padding, model), _names(short, tokenizer), tuple(warnings))


def _names(row: TokenRow, tokenizer: Any) -> tuple[str, ...]:
    words = row.ids if tokenizer is None else tokenizer.convert_ids_to_tokens(list(row.ids))
    return tuple(str(token if word is None else word) for token, word in zip(row.ids, words, strict=True))


def _padding_id(tokenizer: Any, model: nn.Module) -> int:
    own = getattr(getattr(model, "config", None), "pad_token_id", None)
    padding = getattr(tokenizer, "pad_token_id", None) if tokenizer is not None else own
    return padding if isinstance(padding, int) and padding >= 0 else 0


def _vocabulary(model: nn.Module) -> int | None:
    """The number of tokens that the model knows: the rows of its embedding, or what its config says."""
    try:
        table = model.get_input_embeddings()  # type: ignore[operator]
    except (AttributeError, NotImplementedError, TypeError):
        table = None
    size = getattr(table, "num_embeddings", None)
    size = getattr(getattr(model, "config", None), "vocab_size", None) if size is None else size
    return size if isinstance(size, int) else None


def _unmarked_padding(rows: Sequence[TokenRow], model: nn.Module) -> Iterator[str]:
    """A warning if sequences end in the padding token and no mask says that it is padding."""
    padding = getattr(getattr(model, "config", None), "pad_token_id", None)
    padded = [row for row in rows if row.mask is None and len(row) > 1 and row.ids[-1] == padding]
    if len(padded) > 1 or (padded and padded[0].ids[-2:] == (padding, padding)):
        yield (
            f"{len(padded)} of {len(rows)} sequences end in {padding}, the model's padding, and it is "
            "measured as a token: give an attention_mask (.npz or .jsonl) or shorter lines (.jsonl)"
        )


def _with_example(made: Corpus, sentence: str, tokenizer: Any, model: nn.Module) -> Corpus:
    """The corpus with another sentence to show attention on, and what to say about it."""
    ids = list(tokenizer([sentence], verbose=False)["input_ids"][0])
    if not ids or not sentence.strip():
        raise UsageError("the sentence to show attention on is empty")
    limit = min(EXAMPLE_TOKENS, longest_allowed(model, tokenizer) or EXAMPLE_TOKENS)
    row, unknown = TokenRow(tuple(ids[:limit])), getattr(tokenizer, "unk_token_id", None)
    _check_vocabulary([row], model)
    remarks = []
    if len(ids) > limit:
        remarks.append(f"attention is shown on the first {limit} of the sentence's {len(ids)} tokens")
    if unknown is not None and unknown in row.ids:
        remarks.append(
            f"{row.ids.count(unknown)} of the {len(row)} tokens of the sentence that attention is shown on "
            "are unknown to the tokenizer"
        )
    shown = _batch([row], _padding_id(tokenizer, model), model)
    names = _names(row, tokenizer)
    return replace(made, example=shown, example_tokens=names, warnings=(*made.warnings, *remarks))


def longest_allowed(model: nn.Module, tokenizer: Any) -> int | None:
    """The longest sequence that a model takes; None if it has no limit."""
    config = getattr(model, "config", None)
    sizes = [getattr(config, name, None) for name in _LENGTHS]
    sizes += [_learned_positions(model)]
    sizes += [getattr(tokenizer, "model_max_length", None)]
    known = [size for size in sizes if isinstance(size, int) and 0 < size < 1_000_000]
    return min(known, default=None)


def _learned_positions(model: nn.Module) -> int | None:
    """The size of a learned position table, less what RoBERTa reserves: it counts from padding_idx + 1."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and "position" in name.rpartition(".")[2]:
            reserved = 0 if module.padding_idx is None else module.padding_idx + 1
            return module.num_embeddings - reserved
    return None


def _check_unknown(encoded: Sequence[Sequence[int]], tokenizer: Any) -> Iterator[str]:
    """A warning if some tokens are unknown to the tokenizer; UsageError if most are."""
    unknown = getattr(tokenizer, "unk_token_id", None)
    total = sum(map(len, encoded))
    share = (
        sum(ids.count(unknown) for ids in map(list, encoded)) / total
        if total and unknown is not None
        else 0.0
    )
    if share > _UNKNOWN_ALLOWED:
        raise UsageError(
            f"{100 * share:.0f} % of the text's tokens are unknown to the model's tokenizer: use text in the "
            "language and alphabet that the model was trained on"
        )
    if share > _UNKNOWN_NOTICED:
        yield (
            f"{100 * share:.0f} % of the tokens are unknown to the tokenizer; is the text in the model's "
            "language?"
        )


def _check_vocabulary(rows: Sequence[TokenRow], model: nn.Module) -> None:
    size = getattr(getattr(model, "config", None), "vocab_size", None)
    largest = max(max(row.ids) for row in rows)
    if isinstance(size, int) and largest >= size:
        raise ModelError(
            f"the tokenizer produced token {largest}, but the model has a vocabulary of {size}: this is the "
            "tokenizer of another model; choose the right one (--tokenizer FOLDER_OR_ID)"
        )


def _by_length(rows: Sequence[TokenRow], tokens: int, padded: bool) -> Iterator[list[TokenRow]]:
    """Group rows, sorted from long to short, so that a padded group has at most `tokens` positions.

    No group is square: a batch with as many rows as positions would not show which axis is
    the sequence. A model that takes no mask would see padding, so its groups have one length.
    """
    group: list[TokenRow] = []
    for row in rows:
        full = group and (len(group) + 1) * len(group[0]) > tokens
        if full or (group and not padded and len(row) != len(group[0])):
            yield from _not_square(group)
            group = []
        group.append(row)
    yield from _not_square(group)


def _not_square(group: list[TokenRow]) -> Iterator[list[TokenRow]]:
    if len(group) != len(group[0]) or len(group) == 1:
        yield group
    else:
        yield group[:-1]
        yield group[-1:]


def _batch(rows: Sequence[TokenRow], padding: int, model: nn.Module) -> Batch:
    width = max(map(len, rows))
    ids = torch.tensor([[*row.ids, *[padding] * (width - len(row))] for row in rows])
    mask = torch.tensor([[*row.real, *[0] * (width - len(row))] for row in rows])
    device = next(model.parameters()).device
    return _arguments(ids.to(device), mask.to(device), model)


def _arguments(ids: Tensor, mask: Tensor, model: nn.Module) -> Batch:
    """The model's arguments; the decoder of an encoder–decoder model gets the same text, shifted."""
    kwargs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask}
    config: Any = getattr(model, "config", None)
    real = mask.bool()
    if not getattr(config, "is_encoder_decoder", False):
        return Batch((), _accepted(kwargs, model), real)
    start = getattr(config, "decoder_start_token_id", None)
    begin = torch.full_like(
        ids[:, :1], start if start is not None else getattr(config, "pad_token_id", None) or 0
    )
    kwargs |= {"decoder_input_ids": torch.cat([begin, ids[:, :-1]], 1), "decoder_attention_mask": mask}
    return Batch((), _accepted(kwargs, model), real, real)


def _takes_mask(model: nn.Module) -> bool:
    known = inspect.signature(model.forward).parameters
    return "attention_mask" in known or any(p.kind is p.VAR_KEYWORD for p in known.values())


def _accepted(kwargs: dict[str, Any], model: nn.Module) -> dict[str, Any]:
    """The arguments without a mask if the model takes none, and with generation caches switched off."""
    known = inspect.signature(model.forward).parameters
    if not _takes_mask(model):
        kwargs = {name: value for name, value in kwargs.items() if name != "attention_mask"}
    return kwargs | {name: False for name in ("use_cache", "use_mems") if name in known}
