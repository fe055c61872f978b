"""Quantised weights are restored, left out by name, or refused: their stored numbers are no weights."""

import pytest
import torch
from safetensors.torch import save_file

import normscope as ns
from normscope.errors import CheckpointError
from normscope.theory.measures.run_summary import summarise

WEIGHT = torch.randn(64, 64)
PACKED = torch.ones(8, 64, dtype=torch.int32)
UNKNOWN = {
    "int4 without zero points": {"layers.0.up.qweight": PACKED, "layers.0.up.scales": torch.rand(1, 64)},
    "int8 with another word for scale": {
        "layers.0.up.weight": torch.ones(64, 64, dtype=torch.int8),
        "layers.0.up.weight_scales": torch.rand(64),
    },
}
LEFT_OUT = {
    "gptq without its version": {
        "layers.0.up.qweight": PACKED,
        "layers.0.up.qzeros": torch.ones(1, 8, dtype=torch.int32),
        "layers.0.up.scales": torch.rand(1, 64),
    },
    "bitsandbytes without its state": {
        "layers.0.up.weight": torch.ones(2048, 1, dtype=torch.uint8),
        "layers.0.up.weight.absmax": torch.rand(64),
        "layers.0.up.weight.quant_map": torch.rand(16),
    },
    "float8 with a strange scale": {
        "layers.0.up.weight": WEIGHT.to(torch.float8_e4m3fn),
        "layers.0.up.weight_scale": torch.rand(3, 5),
    },
}


@pytest.mark.parametrize("form", UNKNOWN)
def test_unknown_layouts_are_refused(tmp_path, form):
    save_file(UNKNOWN[form] | {"norm.weight": torch.ones(64)}, tmp_path / "step_1.safetensors")
    with pytest.raises(CheckpointError, match="quantised"):
        ns.scan(tmp_path, tmp_path / "run.db")


@pytest.mark.parametrize("form", LEFT_OUT)
def test_known_layouts_that_cannot_be_read_are_left_out_and_named(tmp_path, form):
    save_file(LEFT_OUT[form] | {"norm.weight": torch.ones(64)}, tmp_path / "step_1.safetensors")
    with ns.scan(tmp_path, tmp_path / "run.db") as run:
        assert [tensor.name for tensor in run.tensors()] == ["norm.weight"]
        assert any("1 quantised weight is left out" in note for note in run.meta["notes"])
        assert any("1 quantised weight is left out" in line for line in summarise(run).headlines)
        assert any("layers.0.up" in name for (name,) in run.query("SELECT name FROM skipped"))


def test_float8_without_scales_is_measured(tmp_path):
    weight = WEIGHT.to(torch.float8_e4m3fn)
    save_file({"layers.0.up.weight": weight}, tmp_path / "step_1.safetensors")
    with ns.scan(tmp_path, tmp_path / "run.db") as run:
        ((sumsq,),) = run.query("SELECT sumsq FROM weight")
    assert sumsq == pytest.approx(weight.double().square().sum().item())


def test_a_model_with_parameters_called_scale_is_measured(tmp_path):
    save_file(
        {"block.0.weight": WEIGHT, "block.0.scale": torch.rand(64), "logit_scale": torch.ones(1)},
        tmp_path / "step_1.safetensors",
    )
    with ns.scan(tmp_path, tmp_path / "run.db") as run:
        assert len(run.tensors()) == 3
