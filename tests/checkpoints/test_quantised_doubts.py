"""What is named like quantisation and is not, parts in several places, and layouts that are left out."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from normscope.checkpoints import open_series
from normscope.errors import CheckpointError
from normscope.weights.scan.scan import scan

from .test_quantised import FIXTURES, opened, packed_copy, values, whole
from .test_rank_layouts import check_rows, rows

Q = "model.layers.0.self_attn.q_proj"


def saved(tmp_path, state, config=None):
    folder = tmp_path / "step_1"
    folder.mkdir(exist_ok=True)
    save_file(state, folder / "model.safetensors")
    if config is not None:
        (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
    return opened(folder)


def stored(name):
    return load_file(FIXTURES / name / "model.safetensors")


# -- names that lie -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_parameter_that_is_called_a_scale_is_counted(tmp_path, dtype):
    """Weight normalisation, a norm's gain, a learned temperature: beside weights that are whole numbers."""
    names = (
        "l.weight",
        "l.weight_scale",
        "l.weight_scale_inv",
        "l.SCB",
        "norm.scale",
        "l.input_scale",
        "l.g_idx",
    )
    state = {name: torch.ones(4, dtype=dtype) for name in names} | {"l.weight": torch.ones(4, 4, dtype=dtype)}
    checkpoint = saved(tmp_path, state)
    assert checkpoint.tensors.keys() == state.keys()
    assert not checkpoint.notes


def test_a_scan_counts_parameters_that_are_called_scales(tmp_path):
    torch.manual_seed(0)
    state = {"layers.0.mlp.weight": torch.randn(8, 8), "layers.0.mlp.weight_scale": torch.randn(8, 1)}
    saved(tmp_path, state)
    with scan(tmp_path, tmp_path / "run.db") as run:
        ((total,),) = run.query("select sum(sumsq) from weight")
    assert total == pytest.approx(sum(float(value.square().sum()) for value in state.values()))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8_without_scales_is_what_it_is(tmp_path, dtype):
    state = {"l.weight": torch.ones(4, 4).to(dtype), "norm.scale": torch.ones(4)}
    checkpoint = saved(tmp_path, state)
    assert checkpoint.tensors["l.weight"].dtype == str(dtype).removeprefix("torch.")
    assert "norm.scale" in checkpoint.tensors


def test_a_whole_model_cast_to_float8_is_not_scaled(tmp_path):
    """A float8 number is no scale of float8 weights: both are left out by name, and the answer says so."""
    state = {"l.weight": torch.ones(4, 4), "l.weight_scale": torch.ones(4, 1)}
    state = {name: value.to(torch.float8_e4m3fn) for name, value in state.items()} | {"b": torch.ones(2)}
    checkpoint = saved(tmp_path, state)
    assert checkpoint.tensors.keys() == {"b"}
    assert "l.weight_scale" in checkpoint.skipped


@pytest.mark.parametrize("shape", [(3, 2), (4, 5), (2,), (1, 2, 2), (130, 1, 1), (0, 2)])
def test_a_scale_that_does_not_fit_is_never_guessed(tmp_path, shape):
    state = stored("fp8-blocks") | {f"{Q}.weight_scale_inv": torch.ones(shape)}
    checkpoint = saved(tmp_path, state, {"quant_method": "fp8", "weight_block_size": [128, 128]})
    assert f"{Q}.weight" not in checkpoint.tensors
    assert f"{Q}.weight_scale_inv" not in checkpoint.tensors
    assert "does not fit" in checkpoint.skipped[f"{Q}.weight"]
    assert any("1 quantised weight is left out" in note for note in checkpoint.notes)


def test_nothing_but_weights_that_cannot_be_read_is_an_error(tmp_path):
    state = {"l.weight": torch.ones(4, 4).to(torch.float8_e4m3fn), "l.weight_scale": torch.ones(3, 1)}
    saved(tmp_path, state)
    with pytest.raises(CheckpointError, match="its scale does not fit its shape"):
        scan(tmp_path, tmp_path / "run.db")


def test_two_scales_of_one_weight_are_left_out(tmp_path):
    state = stored("fp8-blocks")
    state[f"{Q}.weight_scale"] = torch.ones(130, 1)
    assert f"{Q}.weight" not in saved(tmp_path, state).tensors


def test_block_sizes_of_the_config_count(tmp_path):
    """Without them a block is the only power of two that fits; with them, what they say."""
    numbers = torch.ones(24, 24).to(torch.float8_e4m3fn)
    scale = torch.arange(1.0, 5).view(2, 2)
    for sizes, expected in (([12, 12], 12), ([20, 20], 20), (None, 16)):
        config = {"quant_method": "fp8", "weight_block_size": sizes}
        checkpoint = saved(tmp_path, {"l.weight": numbers, "l.weight_scale_inv": scale}, config)
        found = values(checkpoint, "l.weight")
        assert (found[0] == 1).sum() == expected and (found[:, 0] == 1).sum() == expected


def test_a_weight_of_the_same_name_is_not_replaced(tmp_path):
    state = stored("gptq-4bit") | {f"{Q}.weight": torch.ones(3, 3)}
    folder = packed_copy(tmp_path, "gptq-4bit")
    save_file(state, folder / "model.safetensors")
    assert opened(folder).tensors[f"{Q}.weight"].shape == (3, 3)


def test_scales_of_activations_are_not_weights(tmp_path):
    scalar = torch.tensor(0.5)
    beside = {f"{Q}.input_scale": scalar, "model.layers.0.self_attn.k_scale": torch.ones(1)}
    state = stored("compressed-fp8-tensor") | beside | {"model.other.input_scale": torch.ones(3)}
    checkpoint = saved(tmp_path, state)
    assert not beside.keys() & checkpoint.tensors.keys()
    assert all("not a weight" in checkpoint.skipped[name] for name in beside)
    assert "model.other.input_scale" in checkpoint.tensors


def test_not_a_number_stays_not_a_number(tmp_path):
    numbers = torch.ones(16, 32).to(torch.float8_e4m3fn).view(torch.uint8)
    numbers[3, 5] = 0x7F
    state = {"l.weight": numbers.view(torch.float8_e4m3fn), "l.weight_scale": torch.full((16, 1), 2.0)}
    found = values(saved(tmp_path, state), "l.weight")
    assert np.isnan(found[3, 5]) and np.isfinite(found).sum() == 16 * 32 - 1


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.int8])
def test_every_number_of_one_byte(tmp_path, dtype):
    numbers = torch.arange(256, dtype=torch.uint8).view(dtype).view(8, 32)
    scale = torch.rand(8, 1)
    found = values(saved(tmp_path, {"l.weight": numbers, "l.weight_scale": scale}), "l.weight")
    np.testing.assert_allclose(found, (numbers.float() * scale).numpy(), rtol=2e-7, atol=0)


def test_scales_of_three_axes(tmp_path):
    """Experts in one tensor: a block of 128 × 128 in each, a number per expert, a number per row."""
    torch.manual_seed(0)
    numbers = torch.randn(3, 130, 200).to(torch.float8_e4m3fn)
    for scale in (
        torch.rand(3, 2, 2),
        torch.rand(3),
        torch.rand(3, 130),
        torch.rand(3, 1, 200),
        torch.rand(3, 1, 1),
    ):
        checkpoint = saved(tmp_path, {"e.gate_up_proj": numbers, "e.gate_up_proj_scale": scale})
        wide = scale
        if scale.shape == (3, 2, 2):
            wide = scale.repeat_interleave(128, 1)[:, :130].repeat_interleave(128, 2)[:, :, :200]
        wide = wide.reshape(*wide.shape, *(1,) * (3 - wide.ndim))
        np.testing.assert_allclose(
            values(checkpoint, "e.gate_up_proj"), (numbers.float() * wide).numpy(), rtol=2e-7
        )


# -- layouts that are known and not read ----------------------------------------------------------


def test_gptq_of_an_unknown_version_is_left_out(tmp_path):
    checkpoint = saved(tmp_path, stored("gptq-4bit"))
    assert f"{Q}.weight" not in checkpoint.tensors
    assert any("put the config.json" in note for note in checkpoint.notes)


@pytest.mark.parametrize("layout", ["marlin", "exllama", "bitblas"])
def test_a_layout_that_only_a_kernel_reads_is_left_out(tmp_path, layout):
    config = {"quant_method": "gptq", "bits": 4, "checkpoint_format": layout}
    checkpoint = saved(tmp_path, stored("gptq-4bit"), config)
    assert f"{Q}.weight" not in checkpoint.tensors
    assert any("GPTQModel" in note for note in checkpoint.notes)


def test_int8_in_tiles_is_left_out(tmp_path):
    state = stored("bitsandbytes-int8") | {f"{Q}.weight_format": torch.tensor(2, dtype=torch.uint8)}
    checkpoint = saved(tmp_path, state)
    assert "tiles" in checkpoint.skipped[f"{Q}.weight"]


def test_an_index_of_groups_that_do_not_exist_is_an_error(tmp_path):
    state = stored("gptq-3bit-act-order")
    state[f"{Q}.g_idx"] = state[f"{Q}.g_idx"] + 1
    checkpoint = saved(tmp_path, state, {"quant_method": "gptq", "bits": 3})
    with pytest.raises(CheckpointError, match="names groups that"):
        checkpoint.read(f"{Q}.weight", 0, 4)


def test_torchao_with_a_class_that_is_not_read(tmp_path):
    folder = packed_copy(tmp_path, "torchao-int8")
    state = load_file(folder / "model.safetensors")
    metadata = {f"{Q}.weight": json.dumps({"_type": "Int4TilePackedTo4dTensor", "_data": {}})}
    save_file(state, folder / "model.safetensors", metadata)
    checkpoint = opened(folder)
    assert "torchao" in checkpoint.skipped[f"{Q}._weight_qdata"]
    assert f"{Q}._weight_scale" not in checkpoint.tensors


# -- places ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fp8-blocks", "gptq-4bit", "bitsandbytes-nf4-nested", "torchao-float8-row"])
def test_a_weight_and_its_scale_in_different_shards(tmp_path, name):
    folder = packed_copy(tmp_path, name)
    expected = whole(name)
    shards = [{}, {}]
    state = stored(name)
    for i, key in enumerate(sorted(state)):
        shards[i % 2][key] = state[key]
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "pt") as file:
        metadata = file.metadata()
    (folder / "model.safetensors").unlink()
    names = [f"model-0000{i + 1}-of-00002.safetensors" for i in range(2)]
    for shard, file_name in zip(shards, names, strict=True):
        save_file(shard, folder / file_name, metadata)
    indexed = {key: file_name for shard, file_name in zip(shards, names, strict=True) for key in shard}
    for step in (None, {"weight_map": indexed}):
        if step is not None:
            (folder / "model.safetensors.index.json").write_text(json.dumps(step))
        checkpoint = opened(folder)
        assert checkpoint.tensors.keys() == expected.keys()
        np.testing.assert_allclose(values(checkpoint, f"{Q}.weight"), expected[f"{Q}.weight"], rtol=3e-7)


PLACES = ["fp8-blocks", "gptq-4bit", "gpt-oss", "torchao-float8-row-bin", "compressed-pack-int4-zeros"]


@pytest.mark.parametrize("name", PLACES)
def test_the_same_rows_from_elsewhere_in_parallel_and_resumed(tmp_path, name):
    fsspec = pytest.importorskip("fsspec")
    for step in (1, 2):
        packed_copy(tmp_path, name, step)
    packed = next((tmp_path / name / "step_2").glob("*model.*"))
    if packed.suffix == ".safetensors":
        state = load_file(packed)
        state["model.norm.weight"] *= 2
        save_file(state, packed, _metadata(packed))
    expected = rows(tmp_path / name, tmp_path / "run.db")
    memory = fsspec.filesystem("memory")
    for path in (tmp_path / name).rglob("*.*"):
        memory.pipe(f"/{name}/{path.relative_to(tmp_path / name)}", path.read_bytes())
    found = rows(f"memory://{name}", tmp_path / "memory.db", workers=2)
    memory.rm(f"/{name}", recursive=True)
    check_rows(found, expected)
    assert rows(tmp_path / name, tmp_path / "run.db", workers=2) == expected


def _metadata(path):
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        return file.metadata()


def test_a_dry_run_shows_the_weights_of_the_model(tmp_path):
    packed_copy(tmp_path, "fp8-blocks")
    (row,) = open_series(tmp_path / "fp8-blocks").describe().rows
    assert row.parameters == sum(array.size for array in whole("fp8-blocks").values())
    assert any("dequantised from" in note for note in row.notes)


def test_the_digest_sees_packed_bytes_and_how_they_are_read(tmp_path):
    folder = packed_copy(tmp_path, "gptq-4bit")
    before = opened(folder).digest
    assert opened(folder).digest == before
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["checkpoint_format"] = "gptq_v2"
    (folder / "config.json").write_text(json.dumps(config))
    assert opened(folder).digest != before


def test_an_older_settings_file(tmp_path):
    """AutoGPTQ wrote quantize_config.json."""
    folder = packed_copy(tmp_path, "gptq-4bit")
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    (folder / "config.json").unlink()
    (folder / "quantize_config.json").write_text(json.dumps(config))
    np.testing.assert_allclose(
        values(opened(folder), f"{Q}.weight"), whole("gptq-4bit")[f"{Q}.weight"], rtol=3e-7
    )


def test_a_large_weight_is_read_in_bounded_pieces(tmp_path):
    """Pieces, slabs and strips end anywhere: the values are those of one computation."""
    random = np.random.default_rng(0)
    width, out, group = 2080, 4128, 32
    shapes = {"l.qweight": (width // 8, out), "l.qzeros": (width // group, out // 8)}
    words = {name: random.integers(-(2**31), 2**31, shape).astype(np.int32) for name, shape in shapes.items()}
    state = {name: torch.from_numpy(array) for name, array in words.items()}
    state["l.scales"] = torch.rand(width // group, out).half()
    checkpoint = saved(tmp_path, state, {"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"})
    packed, zeros = (array.view(np.uint32) for array in words.values())
    codes = np.stack([packed >> np.uint32(4 * i) & np.uint32(15) for i in range(8)], 1).reshape(width, out)
    points = np.stack([zeros >> np.uint32(4 * i) & np.uint32(15) for i in range(8)], 2).reshape(-1, out)
    index = np.arange(width) // group
    numbers = codes.astype(np.float32) - points[index].astype(np.float32)
    expected = np.ascontiguousarray((numbers * state["l.scales"].float().numpy()[index]).T)
    np.testing.assert_array_equal(values(checkpoint, "l.weight"), expected)
    step = checkpoint.read_granularity("l.weight")
    assert step < 1 << 26
    pieces = [
        bytes(checkpoint.read("l.weight", at, min(expected.nbytes, at + step)))
        for at in range(0, expected.nbytes, step)
    ]
    assert b"".join(pieces) == expected.tobytes()


@pytest.mark.parametrize("shape", [(16, 128), (5, 300), (3, 7), (2, 4, 130)])
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8])
def test_the_compiled_loop_and_torch_give_the_same_bytes(tmp_path, monkeypatch, dtype, shape):
    """All numbers, not-a-numbers too, with scales from the smallest to infinite."""
    from normscope.checkpoints.formats.quantised.unpacking import scaled_rows

    if scaled_rows._widen is None:
        pytest.skip("the compiled loop is not in this installation")
    torch.manual_seed(0)
    numbers = torch.randint(0, 256, shape, dtype=torch.uint8).view(dtype)
    extremes = torch.tensor([1e-45, 1e-20, 0.0, -3.0, 1e38, float("inf")])
    for scale in (torch.rand(*shape[:-1], 1), extremes[torch.randint(6, (*shape[:-1], 1))], torch.rand(1)):
        checkpoint = saved(tmp_path, {"l.weight": numbers, "l.weight_scale": scale})
        compiled = values(checkpoint, "l.weight")
        with monkeypatch.context() as patch:
            patch.setattr(scaled_rows, "_widen", None)
            by_torch = values(checkpoint, "l.weight")
        np.testing.assert_array_equal(compiled, by_torch)
