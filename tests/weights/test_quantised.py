"""Quantised weights are refused: the norm of their stored numbers is not that of the network."""

import pytest
import torch
from safetensors.torch import save_file

import normscope as ns
from normscope.errors import CheckpointError

WEIGHT = torch.randn(64, 64)
FORMS = {
    "fp8 in blocks": {
        "layers.0.up.weight": WEIGHT.to(torch.float8_e4m3fn),
        "layers.0.up.weight_scale_inv": torch.rand(1, 1),
    },
    "fp8 per tensor": {
        "layers.0.up.weight": WEIGHT.to(torch.float8_e4m3fn),
        "layers.0.up.weight_scale": torch.rand(1),
    },
    "gptq": {
        "layers.0.up.qweight": torch.ones(8, 64, dtype=torch.int32),
        "layers.0.up.qzeros": torch.ones(1, 8, dtype=torch.int32),
        "layers.0.up.scales": torch.rand(1, 64),
    },
    "bitsandbytes": {
        "layers.0.up.weight": torch.ones(2048, 1, dtype=torch.uint8),
        "layers.0.up.weight.absmax": torch.rand(64),
        "layers.0.up.weight.quant_map": torch.rand(16),
    },
    "int8": {"layers.0.up.weight": torch.ones(64, 64, dtype=torch.int8), "layers.0.up.SCB": torch.rand(64)},
    "mxfp4": {
        "layers.0.up_blocks": torch.ones(64, 2, 16, dtype=torch.uint8),
        "layers.0.up_scales": torch.ones(64, 2, dtype=torch.uint8),
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_quantised_weights_are_refused(tmp_path, form):
    save_file(FORMS[form] | {"norm.weight": torch.ones(64)}, tmp_path / "step_1.safetensors")
    with pytest.raises(CheckpointError, match="quantised"):
        ns.scan(tmp_path, tmp_path / "run.db")


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
