"""Files that are known and hold no weights that can be read: which layout it is, and what to scan instead.

Told by the first bytes, where the layout has a signature; else by the name.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from normscope.checkpoints.base import File

_HEAD = 64


@dataclass(frozen=True)
class OtherLayout:
    """What a file is, as a sentence continues after its name, and what to do."""

    what: str
    instead: str

    def __str__(self) -> str:
        return f"{self.what}; {self.instead}"


_CONVERTED = "scan the model that it was converted from"
_GGML = OtherLayout(
    "an old GGML file, from before GGUF",
    "convert LLaMA with llama.cpp's convert_llama_ggml_to_gguf.py, for whisper.cpp scan the PyTorch model",
)
_SIGNATURES: tuple[tuple[int, bytes, OtherLayout], ...] = (
    *((0, magic, _GGML) for magic in (b"lmgg", b"fmgg", b"tjgg", b"algg")),
    (0, b"ftrt", OtherLayout("a TensorRT engine", "scan the model that it was built from")),
    (4, b"TFL3", OtherLayout("a TensorFlow Lite model", _CONVERTED)),
    (4, b"ORTM", OtherLayout("an ONNX Runtime model (.ort)", "scan the .onnx file that it was made from")),
)
_NAMES: tuple[tuple[re.Pattern[str], OtherLayout], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), layout)
    for pattern, layout in (
        (
            r".+\.(?:engine|plan|trt)",
            OtherLayout("a TensorRT engine", "scan the model that it was built from"),
        ),
        (r".+\.(?:mlmodel|mlpackage/|mlmodelc/)", OtherLayout("a Core ML model", _CONVERTED)),
        (r".+\.tflite", OtherLayout("a TensorFlow Lite model", _CONVERTED)),
        (
            r".+\.ort",
            OtherLayout("an ONNX Runtime model (.ort)", "scan the .onnx file that it was made from"),
        ),
        (
            r".+\.nemo",
            OtherLayout(
                "a NeMo archive", "unpack it with 'tar -xf', and scan the model_weights folder or file"
            ),
        ),
        (
            r".+\.pd(?:params|iparams)",
            OtherLayout(
                "a PaddlePaddle model",
                "load it with paddle.load, and save the arrays with safetensors.numpy.save_file",
            ),
        ),
        (r".+\.rknn|.+\.mnn|.+\.dlc|.+\.tmfile", OtherLayout("a model for one runtime", _CONVERTED)),
    )
)
_MINDSPORE = OtherLayout(
    "a MindSpore checkpoint",
    "load it with mindspore.load_checkpoint, and save it with format='safetensors'",
)
_CTRANSLATE = OtherLayout("a CTranslate2 model", _CONVERTED)
_TOKENIZER = OtherLayout("a tokenizer of llama2.c", "it has no weights")
_NO_TENSORS = OtherLayout("a GGUF file with a vocabulary only", "it has no weights")
_PROJECTOR = OtherLayout(
    "a GGUF projector for images or sound, beside its language model", "give it as the source to scan it"
)
_NOT_WEIGHTS = (_TOKENIZER, _NO_TENSORS, _PROJECTOR)


def layout_by_name(name: str) -> OtherLayout | None:
    """The layout that a name says; names of folders end with a slash."""
    return next((layout for pattern, layout in _NAMES if pattern.fullmatch(name)), None)


def layout_of(file: File) -> OtherLayout | None:
    """The layout of a file, by its first bytes or else by its name."""
    head = file.peek(0, min(_HEAD, file.size))
    for offset, magic, layout in _SIGNATURES:
        if head[offset : offset + len(magic)] == magic:
            return layout
    last = file.name.rsplit("/", 1)[-1]
    if _is_ctranslate(head):
        return _CTRANSLATE
    if last.lower().endswith(".ckpt") and _is_mindspore(head):
        return _MINDSPORE
    return beside_weights(file) or layout_by_name(last)


def beside_weights(file: File) -> OtherLayout | None:
    """What a file is that belongs to a model and is not its weights, although its ending says so."""
    head = file.peek(0, min(1 << 16, file.size))
    if head[:4] == b"GGUF":
        return _by_metadata(head)
    return _TOKENIZER if _is_tokenizer(head, file.size) else None


def is_beside_weights(file: File) -> bool:
    """Whether a file is certainly not the model of its folder."""
    return beside_weights(file) in _NOT_WEIGHTS


def _by_metadata(head: bytes) -> OtherLayout | None:
    """By what the header of a GGUF file says first: the number of tensors, and its architecture or type."""
    if head[4:8] not in (b"\2\0\0\0", b"\3\0\0\0"):
        return None
    if head[8:16] == bytes(8) and head[16:24] != bytes(8):
        return _NO_TENSORS
    for key, values in ((b"general.architecture", (b"clip",)), (b"general.type", (b"mmproj",))):
        at = head.find(struct.pack("<Q", len(key)) + key + struct.pack("<I", 8))
        if at >= 0:
            start = at + 8 + len(key) + 4
            length = int.from_bytes(head[start : start + 8], "little")
            if head[start + 8 : start + 8 + length] in values:
                return _PROJECTOR
    return None


def _is_tokenizer(head: bytes, size: int) -> bool:
    """Whether a file is the length of the longest token, then scores, lengths and texts of tokens."""
    longest, at, count = int.from_bytes(head[:4], "little"), 4, 0
    if not 0 < longest <= 1024 or size < 40:
        return False
    while at + 8 <= len(head):
        score, length = struct.unpack_from("<fI", head, at)
        if not 0 <= length <= longest or not -1e7 < score < 1e7 or (length == 0 and count > 2):
            return False
        at, count = at + 8 + length, count + 1
    whole = size <= len(head)
    return count >= 3 and (at == size if whole else True)


def _is_ctranslate(head: bytes) -> bool:
    """Whether a file begins with a small version and the name of a specification, such as TransformerSpec."""
    if len(head) < 12 or not 0 < int.from_bytes(head[:4], "little") < 100:
        return False
    length = int.from_bytes(head[4:6], "little")
    return 5 <= length <= 50 and head[6 : 6 + length].endswith(b"Spec\0")


def _is_mindspore(head: bytes) -> bool:
    """Whether a file is a message of named tensors: Checkpoint.value[].tag, in protocol buffers."""
    if head[:1] != b"\x0a":
        return False
    at = 1
    while at < min(len(head), 11) and head[at] & 0x80:
        at += 1
    name = head[at + 3 : at + 3 + head[at + 2]] if len(head) > at + 3 and head[at + 1] == 0x0A else b""
    return bool(name) and name.isascii() and name.decode().isprintable()
