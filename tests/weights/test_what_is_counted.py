"""Hand-written networks: exactly their parameters are counted, whatever these and the buffers are called."""

import copy

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional

import normscope as ns
from normscope.checkpoints.formats.model_entries import select_model
from normscope.errors import CheckpointError
from normscope.theory.measures.run_summary import summarise
from tests.weights.buffer_zoo import INV, PHASE, Holder, angles


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 0.1


def retention(heads=4, n=24):
    gammas = 1 - 2.0 ** (-5 - torch.arange(heads).float())
    distance = (torch.arange(n)[:, None] - torch.arange(n)).float()
    return gammas, torch.tril(gammas[:, None, None] ** distance.clamp(min=0))


def xpos(n=24, d=16):
    scale = (torch.arange(0, d, 2) + 0.4 * d) / (1.4 * d)
    return scale, scale ** ((torch.arange(n) - n // 2) / 512.0)[:, None]


def saved(folder, model, kind, steps=3, change=None):
    """A series of a network that is trained, and whose buffers `change` moves."""
    folder.mkdir()
    for i in range(steps):
        state = model.state_dict()
        if kind == "safetensors":
            save_file({n: v.clone().contiguous() for n, v in state.items()}, folder / f"step_{i}.safetensors")
        else:
            torch.save(model if kind == "module" else state, folder / f"step_{i}.pt")
        model.train_steps(2)
        if change is not None:
            change(model, i)
    return folder


def check(tmp_path, model, kind="safetensors", steps=3, change=None):
    truth = {name for name, _ in model.named_parameters()}
    with ns.scan(saved(tmp_path / "series", model, kind, steps, change), tmp_path / "run.db") as run:
        counted = {row.name for row in run.tensors()}
        assert counted == truth, run.skipped()


BODY = {"fc.weight": random(16, 16), "fc.bias": random(16), "out.weight": random(4, 16, seed=1)}
TRAINED = {
    "inv_freq": INV.clone(),
    "attn_mask": torch.zeros(12, 12),
    "blocks.attention_mask": random(12),
    "pos_weight": random(12, 16),
    "key_decay": torch.rand(4, 16),
    "criterion.weight": torch.ones(10),
    "conv.eps": torch.zeros(1),
    "step": torch.tensor(0.1),
    "steps": torch.full((12,), 0.1),
    "iterations": torch.tensor([3.0]),
    "optimizer.lstm.weight_ih_l0": random(32, 4),
    "optimizer.lstm.bias_ih_l0": random(32),
}


@pytest.mark.parametrize("kind", ["safetensors", "pickle", "module"])
def test_trained_parameters_with_the_names_of_buffers_are_counted(tmp_path, kind):
    check(
        tmp_path,
        Holder({"real.inv_freq": INV, "real.mask": torch.tril(torch.ones(9, 9))}, BODY | TRAINED),
        kind,
    )


@pytest.mark.parametrize("kind", ["safetensors", "pickle", "module"])
def test_impossible_values_overrule_a_name_in_a_single_checkpoint(tmp_path, kind):
    ambiguous = {"inv_freq", "criterion.weight", "conv.eps", "iterations"}  # their values are possible
    check(
        tmp_path,
        Holder({}, BODY | {n: v for n, v in TRAINED.items() if n not in ambiguous}).train_steps(),
        kind,
        1,
    )


def test_evenly_spaced_parameters_are_no_noise_schedule(tmp_path):
    spaced = {
        "alpha": torch.linspace(0, 1, 12),
        "gamma": torch.linspace(1, 0, 16),
        "beta": torch.arange(10.0) / 10,
    }
    check(tmp_path, Holder({}, BODY | spaced).train_steps(), steps=1)


def test_branches_called_average_and_slow_are_no_copies(tmp_path):
    inner = {"fc1.weight": (16, 16), "fc1.bias": (16,), "fc2.weight": (16, 16)}
    branches = {
        f"{b}{n}": random(*s, seed=i)
        for i, b in enumerate(("avg.", "max.", "slow.", ""))
        for n, s in inner.items()
    }
    check(tmp_path, Holder({}, branches))


def test_a_module_may_call_a_part_of_itself_model(tmp_path):
    parts = {f"{at}{n}": v for at in ("model.", "net.") for n, v in BODY.items()}
    check(
        tmp_path,
        Holder({"atoms": torch.linspace(-1, 1, 51)}, {**parts, "omega": torch.tensor(30.0)}),
        "module",
    )


SCALE, POWERS = xpos()
GAMMAS, DECAYS = retention()
LATE = angles(25)[0][1:]


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_tables_of_decays_scales_and_interpolated_angles_are_constants(tmp_path, steps, dtype):
    tables = {
        "r.gammas": GAMMAS,
        "r.D": DECAYS,
        "one.D": DECAYS[0],
        "x.scale": SCALE,
        "rot.freqs": (PHASE / 4).repeat_interleave(2, 1),
        **({"x.xscale": POWERS} if dtype is torch.float32 else {}),
        **({"late.c": LATE.cos(), "late.s": LATE.sin()} if steps > 1 and dtype is torch.float32 else {}),
    }
    check(tmp_path, Holder(tables, BODY).train_steps().to(dtype), steps=steps)


def test_what_is_computed_from_a_noise_schedule_is_beside_it(tmp_path):
    beta = torch.linspace(1e-4, 0.02, 300)
    bar = torch.cumprod(1 - beta, 0)
    tables = {
        "beta": beta,
        "sqrtab": bar.sqrt(),
        "oneover": 1 / (1 - beta).sqrt(),
        "mab": beta / (1 - bar).sqrt(),
    }
    check(tmp_path, Holder(tables, BODY), steps=1)


def test_buffers_that_change_are_not_trained(tmp_path):
    buffers = {
        "noisy.weight_epsilon": random(8, 8),
        "obs.mean": random(6),
        "obs.var": torch.rand(6),
        "obs.count": torch.tensor(1e4),
        "usage": torch.tensor([3.0, 0.0, 7.0]),
        "seen": torch.tensor(12.0),
        "queue": functional.normalize(random(8, 64), dim=0),
        "queue_ptr": torch.zeros(1, dtype=torch.long),
        "center": random(1, 16),
        "sn.u0": functional.normalize(random(1, 16)),
        "sn.sv0": torch.ones(1),
    }
    trained = {
        "noisy.weight_sigma": random(8, 8),
        "noisy.weight_mu": random(8, 8),
        "teacher.fc.weight": random(4, 4),
    }

    def change(model, i):
        for name, buffer in model.named_buffers():
            buffer.add_(
                1
                if name in ("obs.count", "usage", "seen", "queue_ptr")
                else random(*buffer.shape, seed=i).to(buffer)
            )

    check(tmp_path, Holder(buffers, BODY | trained), change=change)


def test_the_ranges_of_fake_quantisers_are_no_parameters(tmp_path):
    ranges = {
        "scale": torch.rand(8),
        "zero_point": torch.zeros(8, dtype=torch.int32),
        "fake_quant_enabled": torch.ones(1, dtype=torch.uint8),
    }
    learned = {**ranges, "zero_point": random(8), "learning_enabled": torch.ones(1, dtype=torch.uint8)}
    state = {**BODY, **{f"fc.weight_fake_quant.{n}": v for n, v in ranges.items()}}
    state |= {f"out.weight_fake_quant.{n}": v for n, v in learned.items()}
    save_file({n: v.clone() for n, v in state.items()}, tmp_path / "step_1.safetensors")
    with ns.scan(tmp_path, tmp_path / "run.db") as run:
        of_out = {f"out.weight_fake_quant.{name}" for name in ("scale", "zero_point")}
        assert {row.name for row in run.tensors()} == BODY.keys() | of_out


def test_a_cast_does_not_make_a_constant_a_parameter(tmp_path):
    state = {**BODY, "rotary.inv_freq": INV}
    for i, dtype in enumerate((torch.float32, torch.bfloat16)):
        save_file(
            {n: (v + 0.01 * i * (n in BODY)).to(dtype) for n, v in state.items()},
            tmp_path / f"step_{i}.safetensors",
        )
    with ns.scan(tmp_path, tmp_path / "run.db") as run:
        assert {row.name for row in run.tensors()} == BODY.keys()


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (("params/model/norm/scale", "params/lm_head/kernel"), {"model.norm.scale", "lm_head.kernel"}),
        (("params/net/d/kernel", "params/log_std"), {"net.d.kernel", "log_std"}),
        (("model/a/kernel", "head/kernel", "norm/scale"), {"model.a.kernel", "head.kernel", "norm.scale"}),
        (("model/step", "model/fc.weight", "step", "optimizer/m"), {"step", "fc.weight"}),
    ],
)  # fmt: skip
def test_parts_beside_one_that_is_called_model(paths, names):
    found = select_model([tuple(path.split("/")) for path in paths])
    assert (set(found.names.values()), found.networks) == (names, ())


def test_matrices_that_are_equal_in_a_single_checkpoint_are_named(tmp_path):
    layer = {"attn.weight": random(8, 8), "norm.weight": 1 + random(8)}
    state = {f"layers.{i}.{n}": v.clone() for i in range(3) for n, v in layer.items()}
    save_file(state, tmp_path / "step_1.safetensors")
    with ns.scan(tmp_path, tmp_path / "run.db") as run:
        found = summarise(run)
    assert found.parameters == 3 * 72
    assert any(text.startswith("2 matrices have the same values as another one") for text in found.warnings)


def test_a_few_parameters_beside_networks_are_no_network(tmp_path):
    nets = {f"{net}.{n}": v for net in ("actor", "critic") for n, v in BODY.items()}
    check(tmp_path, Holder({}, {**nets, "log_alpha": torch.zeros(1)}))
    with ns.Run(tmp_path / "run.db") as run:
        found = summarise(run)
    assert found.headlines[0].startswith(
        "2 networks are in one file (actor, critic), and parameters outside them"
    )


@pytest.mark.parametrize("part", ["critic", "policy", "target"])
def test_a_part_with_the_name_of_a_network_is_no_second_one(tmp_path, part):
    check(
        tmp_path, Holder({}, {**{f"{part}.{n}": v for n, v in BODY.items()}, "embed.weight": random(9, 16)})
    )
    with ns.Run(tmp_path / "run.db") as run:
        assert summarise(run).components == ()


def test_a_checkpoint_without_parameters_is_an_error(tmp_path):
    save_file({"bn.running_mean": torch.ones(4)}, tmp_path / "step_1.safetensors")
    with pytest.raises(CheckpointError, match=r"contains no parameters: the only tensor was left out \(bn"):
        ns.scan(tmp_path, tmp_path / "run.db")


def test_an_average_is_found_by_its_values(tmp_path):
    model = Holder({}, {f"model.{n}": v for n, v in BODY.items()})
    truth = {name for name, _ in model.named_parameters()}
    average = copy.deepcopy(model)
    for i in range(3):
        both = {**model.state_dict(), **{f"ema_{n}": v.clone() for n, v in average.state_dict().items()}}
        torch.save(both, tmp_path / f"step_{i}.pt")
        model.train_steps(2)
        for one, other in zip(average.parameters(), model.parameters(), strict=True):
            one.data.lerp_(other.data, 0.1)
    with ns.scan(tmp_path, tmp_path / "run.db") as run:
        assert {row.name for row in run.tensors()} == truth


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["norm.weight", "rope_gain", "center"])
def test_gains_near_one_are_no_geometric_series(tmp_path, dtype, name):
    gains = {f"{i}.{name}": 1 + 1e-3 * torch.arange(8.0).roll(i) / 4 for i in range(4)}
    check(tmp_path, Holder({}, BODY | gains).to(dtype), steps=1)
