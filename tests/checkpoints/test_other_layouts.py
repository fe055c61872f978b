"""Files that are known and hold no weights that can be read: what is said, and what they do not spoil."""

import struct

import pytest

import normscope as ns
from normscope.checkpoints import open_series
from normscope.checkpoints.formats.registry import open_file
from normscope.checkpoints.storage.local import LocalFile
from normscope.errors import CheckpointError, UnknownFormat
from tests.checkpoints.hostile.gguf_files import gguf, info, string
from tests.checkpoints.test_fuzz import gguf_bytes, llama_bytes


def text(key, value):
    return string(key) + struct.pack("<I", 8) + string(value)


def tokenizer(count):
    """As llama2.c's tokenizer.py writes it: the longest token, then score, length and text of each."""
    return struct.pack("<I", 7) + b"".join(struct.pack("<fI", -i, 3) + b"abc" for i in range(count))


PROJECTOR = gguf([info(b"v.blk.0.w", [3])], [text(b"general.architecture", b"clip")])
VOCABULARY = gguf([], [text(b"tokenizer.ggml.model", b"gpt2")])
BESIDE = {
    "mmproj-model-f16.gguf": (PROJECTOR, "projector"),
    "language.gguf": (VOCABULARY, "vocabulary only"),
    "tok512.bin": (tokenizer(512), "tokenizer of llama2.c"),
    "words.bin": (tokenizer(100_000), "tokenizer of llama2.c"),
}


@pytest.mark.parametrize("name", BESIDE)
@pytest.mark.parametrize(("model", "content"), [("gguf", gguf_bytes), ("bin", llama_bytes)])
def test_what_stands_beside_a_model_is_named_and_not_measured(tmp_path, name, model, content):
    data, words = BESIDE[name]
    for folder in (
        tmp_path / "one",
        tmp_path / "many",
        tmp_path / "each" / "step_1",
        tmp_path / "each" / "step_2",
    ):
        folder.mkdir(parents=True)
        (folder / name).write_bytes(data)
    (tmp_path / "one" / f"model.{model}").write_bytes(content())
    for step in (1, 2):
        (tmp_path / "many" / f"step_{step}.{model}").write_bytes(content())
        (tmp_path / "each" / f"step_{step}" / f"model.{model}").write_bytes(content())
    for folder, steps in (("one", [0]), ("many", [1, 2]), ("each", [1, 2])):
        series = open_series(tmp_path / folder, default_step=0)
        assert [entry.step for entry in series.entries] == steps
        left_out = [each for each in series.left_out if each.label.endswith(name)]
        assert left_out, folder
        assert all(words in each.reason for each in left_out)


def test_a_model_is_no_tokenizer(tmp_path):
    """Whatever its numbers are, a file with the size of a llama2.c model is read."""
    (tmp_path / "step_1.bin").write_bytes(llama_bytes())
    with ns.scan(tmp_path, tmp_path / "run.db") as run:
        assert run.query("SELECT COUNT(*) FROM tensor") == [(11,)]


LAYOUTS = {
    "model.engine": (b"ftrt" + bytes(60), "TensorRT engine"),
    "unnamed.bin": (b"ftrt" + bytes(60), "TensorRT engine"),
    "model.tflite": (b"\x20\0\0\0TFL3" + bytes(60), "TensorFlow Lite"),
    "model.ort": (b"\x20\0\0\0ORTM" + bytes(60), "ONNX Runtime"),
    "model.mlmodel": (b"\x08\5" + bytes(60), "Core ML"),
    "ggml-model-q4_0.bin": (b"tjgg\3\0\0\0" + bytes(60), "from before GGUF"),
    "ggml-base.en.bin": (b"lmgg" + bytes(60), "from before GGUF"),
    "model.bin": (struct.pack("<IH", 6, 16) + b"TransformerSpec\0" + bytes(60), "CTranslate2"),
    "megatron.nemo": (bytes(512), "tar -xf"),
    "model.pdparams": (b"\x80\2}q\0." + bytes(60), "paddle.load"),
    "net-1_100.ckpt": (b"\x0a\x20\x0a\x08conv1.w1\x12\x14" + bytes(60), "mindspore.load_checkpoint"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_known_layout_is_named_with_what_to_scan_instead(tmp_path, name):
    data, words = LAYOUTS[name]
    (tmp_path / name).write_bytes(data)
    if not name.endswith(".pdparams"):  # a pickle, which is opened as one if it is given by itself
        with pytest.raises(UnknownFormat, match=words) as refused:
            open_file(LocalFile(tmp_path / name))
        assert len(str(refused.value)) < 500
    with pytest.raises(CheckpointError, match=words) as refused:
        for entry in open_series(tmp_path, default_step=0).entries:
            entry.open()
    assert len(str(refused.value)) < 500


def test_a_core_ml_package_is_a_folder(tmp_path):
    (tmp_path / "Model.mlpackage" / "Data").mkdir(parents=True)
    with pytest.raises(CheckpointError, match="Core ML model"):
        open_series(tmp_path)
