"""What several tests share: small series of checkpoints, written by the libraries people use."""

import os
import signal
from types import SimpleNamespace

os.environ.setdefault("OMP_NUM_THREADS", "1")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
import torch
from safetensors.torch import save_file

from normscope import plugins

torch.set_num_threads(1)

SHAPES = {
    "wte.weight": (50, 8),
    **{
        f"h.{layer}.{name}": shape
        for layer in range(3)
        for name, shape in {
            "ln_1.weight": (8,),
            "attn.c_attn.weight": (8, 24),
            "attn.c_attn.bias": (24,),
            "attn.c_proj.weight": (8, 8),
            "mlp.c_fc.weight": (8, 32),
            "mlp.c_proj.weight": (32, 8),
        }.items()
    },
    "ln_f.weight": (8,),
}


def random_walk(steps, seed=0, dtype=torch.float32, shapes=SHAPES):
    """Parameters that diffuse: {step: state dict}, the walk's variance proportional to the step."""
    generator = torch.Generator().manual_seed(seed)
    state = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    found, last = {}, 0
    for step in steps:
        for value in state.values():
            value += torch.randn(value.shape, generator=generator) * ((step - last) / 100) ** 0.5
        found[step] = {name: value.clone().to(dtype) for name, value in state.items()}
        last = step
    return found


def save_series(folder, states):
    """Write the states as step_N.safetensors, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for step, state in states.items():
        save_file(state, folder / f"step_{step}.safetensors")
    return folder


@pytest.fixture
def states():
    return random_walk([0, 10, 100, 1000])


@pytest.fixture
def series_folder(tmp_path, states):
    return save_series(tmp_path / "series", states)


@pytest.fixture
def install_plugins(monkeypatch):
    """Pretend that the package `norm-extras` is installed: install_plugins("laws", name=value, …).

    A call replaces what was installed before. (tests/test_plugins.py installs a real package.)
    """

    def install(kind, **values):
        package = SimpleNamespace(name="norm-extras")
        entries = [SimpleNamespace(name=name, dist=package, load=lambda v=v: v) for name, v in values.items()]
        found = {f"normscope.{kind}": entries}
        monkeypatch.setattr(plugins, "entry_points", lambda group: found.get(group, []))
        plugins.plugins.cache_clear()

    yield install
    monkeypatch.undo()
    plugins.plugins.cache_clear()
