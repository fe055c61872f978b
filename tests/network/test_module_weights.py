"""Tensors of a checkpoint find their parameters, or the error names the one that does not fit."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from normscope.checkpoints import open_series
from normscope.errors import ModelError
from normscope.network.loading.module_weights import load_weights

PREFIXES = ("", "module.", "_orig_mod.", "model.", "module._orig_mod.", "model.module.")


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(6, 4), nn.Linear(4, 6, bias=False)
        self.head.weight = self.embed.weight
        self.norm = nn.LayerNorm(4)
        self.register_buffer("mask", torch.ones(3, 3).tril())


def load(model, state, path):
    torch.save(state, path)
    (entry,) = open_series(path, default_step=0).entries
    checkpoint = entry.open()
    try:
        load_weights(model, checkpoint, entry.source)
    finally:
        checkpoint.close()
    return model


def random_state(seed=0):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(6, 4, generator=generator)
    names = {"embed.weight": weight, "head.weight": weight}
    return names | {f"norm.{name}": torch.randn(4, generator=generator) for name in ("weight", "bias")}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_prefixes_of_wrappers_are_removed(prefix, tmp_path):
    state = random_state()
    model = load(Tied(), {f"{prefix}{name}": value for name, value in state.items()}, tmp_path / "a.pt")
    for name, value in state.items():
        assert torch.equal(model.state_dict()[name], value)
    assert torch.equal(model.mask, torch.ones(3, 3).tril())  # not in the checkpoint: it keeps its value


def test_a_wrapped_module_takes_plain_names(tmp_path):
    model = nn.Sequential()
    model.add_module("_orig_mod", Tied())
    load(model, random_state(), tmp_path / "a.pt")
    assert torch.equal(model._modules["_orig_mod"].norm.bias, random_state()["norm.bias"])


@pytest.mark.parametrize("missing", ["embed.weight", "head.weight"])
def test_one_name_of_a_tied_parameter_is_enough(missing, tmp_path):
    state = random_state()
    value = state.pop(missing)
    model = load(Tied(), state, tmp_path / "a.pt")
    assert torch.equal(model.embed.weight, value) and model.head.weight is model.embed.weight


def test_values_are_converted_to_the_dtype_of_the_module(tmp_path):
    state = {name: value.double() for name, value in random_state().items()}
    model = load(Tied().bfloat16(), state, tmp_path / "a.pt")
    assert torch.equal(model.embed.weight, state["embed.weight"].bfloat16())


def test_buffers_of_the_checkpoint_are_loaded(tmp_path):
    model = load(Tied(), random_state() | {"mask": torch.zeros(3, 3)}, tmp_path / "a.pt")
    assert torch.equal(model.mask, torch.zeros(3, 3))


def test_what_does_not_fit_is_named(tmp_path):
    def refuses(match, state):
        with pytest.raises(ModelError, match=match):
            load(Tied(), state, tmp_path / "a.pt")

    state = random_state()
    refuses(
        r"a\.pt does not fit the model: the parameter 'norm.bias' is missing", without(state, "norm.bias")
    )
    refuses("'embed.weight' is missing", without(state, "embed.weight", "head.weight"))
    refuses(r"'norm.bias' has the shape \[3\].*\[4\] in the model", state | {"norm.bias": torch.zeros(3)})
    refuses("which has no layer.2.weight", state | {"layer.2.weight": torch.zeros(3)})
    refuses("are one parameter in the model", state | {"head.weight": torch.zeros(6, 4)})
    refuses("both 'norm.bias' and 'module.norm.bias'", state | {"module.norm.bias": torch.zeros(4)})


def test_buffers_that_the_model_lacks_are_ignored(tmp_path):
    load(Tied(), random_state() | {"rotary_emb.inv_freq": torch.ones(4)}, tmp_path / "a.pt")


def test_safetensors_of_a_tied_model(tmp_path):
    save_file(without(random_state(), "head.weight"), tmp_path / "a.safetensors")
    (entry,) = open_series(tmp_path / "a.safetensors", default_step=0).entries
    model = Tied()
    load_weights(model, entry.open(), entry.source)
    assert torch.equal(model.head.weight, random_state()["embed.weight"])


def without(state, *names):
    return {name: value for name, value in state.items() if name not in names}
