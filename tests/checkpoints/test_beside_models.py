"""What people save beside a model: optimizers, averages, schedulers, other networks, under any key."""

import pytest
import torch
from torch import nn

from normscope.checkpoints import open_file
from normscope.checkpoints.formats.model_entries import select_model
from normscope.checkpoints.slot_names import is_slot, slot_groups
from normscope.checkpoints.storage.local import LocalFile
from normscope.errors import CheckpointError, UnknownFormat


def network(inside=4, out=3):
    return nn.Sequential(nn.Linear(inside, 8), nn.ReLU(), nn.Linear(8, out))


def stepped(module, kind=torch.optim.Adam, **options):
    optimizer = kind(module.parameters(), **options)
    module(torch.ones(2, module[0].in_features)).sum().backward()
    optimizer.step()
    return optimizer.state_dict()


MODEL, OTHER = network(), network(out=1)
ADAM = stepped(network(), lr=1e-3)
SGD = stepped(network(), torch.optim.SGD, lr=0.1, momentum=0.9)
NAMES = set(MODEL.state_dict())


@pytest.fixture
def opened(tmp_path):
    def save(value):
        path = tmp_path / "m.pt"
        torch.save(value, path)
        return open_file(LocalFile(path))

    return save


OPTIMIZERS = {
    "g_optim": ADAM,
    "optimizer_D": SGD,
    "optimizers": [ADAM, SGD],
    "optimizers_by_name": {"a": ADAM, "b": SGD},
    "opt": ADAM,
    "optim_g": ADAM,
    "optimizerG": ADAM,
    "trainer": {"deep": {"er": [ADAM, {"x": SGD}]}},
    "whatever": ADAM,
    "d_opt": SGD,
    "optimizer_states": [ADAM],
    "opt_state": {"mu": {"w": torch.ones(2, 2)}, "nu": {"w": torch.ones(2, 2)}},
    "adam": (ADAM, SGD),
    "lr_scheduler": {"last": torch.ones(3)},
    "fp16_scaler": {"scale": torch.ones(1)},
    "cuda_rng_state": [torch.ones(8, dtype=torch.uint8)],
    "rng_state": torch.ones(8, dtype=torch.uint8),
}


@pytest.mark.parametrize("key", OPTIMIZERS)
@pytest.mark.parametrize("wrapped", [True, False], ids=["model", "flat"])
def test_optimizers_under_any_key(opened, key, wrapped):
    model = {"model": MODEL.state_dict()} if wrapped else dict(MODEL.state_dict())
    checkpoint = opened({**model, key: OPTIMIZERS[key]})
    assert set(checkpoint.tensors) == NAMES
    assert any(name.split(".")[0] == key for name in checkpoint.skipped), checkpoint.skipped


def test_a_tuple_of_model_and_optimizer(opened):
    checkpoint = opened((MODEL.state_dict(), ADAM))
    assert set(checkpoint.tensors) == {f"0.{name}" for name in NAMES}
    assert checkpoint.skipped == {"1": "optimizer state"}


@pytest.mark.parametrize("key", ["optim_net", "opt_proj", "scheduler_embed", "optimizer", "amp"])
def test_a_network_whose_name_begins_like_an_optimizer(opened, key):
    checkpoint = opened({key: OTHER.state_dict(), "net2": MODEL.state_dict()})
    assert {name for name in checkpoint.tensors if name.startswith(f"{key}.")} == {
        f"{key}.{name}" for name in OTHER.state_dict()
    }


@pytest.mark.parametrize(
    ("keys", "networks"),
    [
        (("generator", "discriminator"), ("generator", "discriminator")),
        (("foo", "bar"), ("foo", "bar")),
        (("model", "critic"), ("model", "critic")),
        (("net", "head2"), ("net", "head2")),
    ],
)
def test_several_networks_side_by_side(opened, keys, networks):
    one, two = (dict(zip(keys, (MODEL.state_dict(), OTHER.state_dict()), strict=True)) for _ in range(2))
    checkpoint = opened({**one, "g_optim": ADAM, "epoch": 3})
    assert checkpoint.networks == networks
    assert set(checkpoint.tensors) == {f"{key}.{name}" for key in keys for name in two[key]}


def test_networks_side_by_side_lose_a_wrapper_of_their_own(opened):
    one, two = MODEL.state_dict(), OTHER.state_dict()
    for wrapped in ({"state_dict": two}, {"model": two}, {"module": two}):
        for checkpoint in (
            opened({"model": {"model": one}, "critic": wrapped}),
            opened({"net": one, "critic": wrapped}),
        ):
            main = checkpoint.networks[0]
            assert set(checkpoint.tensors) == {*(f"{main}.{n}" for n in one), *(f"critic.{n}" for n in two)}
    beside = opened({"model": one, "critic": {"module": two, "target": two}})
    parts = {f"critic.{part}.{name}" for part in ("module", "target") for name in two}
    assert set(beside.tensors) == {*(f"model.{name}" for name in one), *parts}


@pytest.mark.parametrize("key", ["state", "param_groups"])
def test_a_network_under_one_of_the_two_keys_of_an_optimizer(opened, key):
    checkpoint = opened({key: MODEL.state_dict()})
    assert set(checkpoint.tensors) == {f"{key}.{name}" for name in NAMES} and not checkpoint.skipped


def test_a_list_of_networks(opened):
    checkpoint = opened({"members": [MODEL.state_dict(), OTHER.state_dict()]})
    assert checkpoint.networks == ("members.0", "members.1")


@pytest.mark.parametrize(
    "key", ["model_ema", "ema", "best_model", "ema_state_dict", "swa_model", "shadow_params"]
)
def test_another_state_of_the_model_is_not_a_network(opened, key):
    checkpoint = opened({"model": MODEL.state_dict(), key: OTHER.state_dict()})
    assert set(checkpoint.tensors) == NAMES
    assert "beside the model" in checkpoint.skipped[key]


def test_things_that_are_no_network(opened):
    beside = {
        "stats": {"mean": torch.ones(3), "std": torch.ones(3)},
        "losses": [torch.ones(4)],
        "loss": {"center": torch.ones(1, 4)},
    }
    checkpoint = opened({"state_dict": MODEL.state_dict(), **beside})
    assert set(checkpoint.tensors) == NAMES
    assert checkpoint.skipped.keys() == beside.keys()


def test_buffers_that_the_checkpoint_declares(opened):
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    module.register_buffer("anything", torch.randn(5))
    assert opened(module).buffers == {"anything", "1.running_mean", "1.running_var", "1.num_batches_tracked"}
    state = {
        "module": {"w": torch.ones(2, 2), "odd": torch.ones(2)},
        "buffer_names": ["odd"],
        "optimizer": None,
    }
    assert opened(state).buffers == {"odd"}


def test_the_placeholders_of_zero_stage_3_are_refused(opened):
    state = {name: torch.empty(0) for name in NAMES}
    with pytest.raises(CheckpointError, match=r"4 of its 4 tensors are empty.*zero_to_fp32"):
        opened({"module": state, "param_shapes": {}})
    with pytest.raises(CheckpointError, match="2 of its 2 tensors are empty"):
        opened({"module": dict(list(state.items())[:2]), "param_shapes": {}})


@pytest.mark.parametrize(
    "content", [{"g_optim": ADAM}, {"a": {"b": [SGD]}}, ADAM, [ADAM, SGD], {"optimizer": ADAM, "epoch": 3}]
)
def test_only_an_optimizer(opened, content):
    with pytest.raises(UnknownFormat, match="optimizer or scheduler state, but no model"):
        opened(content)


def test_paths_of_nested_formats():
    paths = [
        ("params", "dense", "kernel"),
        ("params", "dense", "bias"),
        ("batch_stats", "bn", "mean"),
        ("step",),
        ("opt_state", "0", "mu", "dense", "kernel"),
        ("ema_params", "dense", "kernel"),
    ]
    found = select_model(paths)
    assert set(found.names.values()) == {"dense.kernel", "dense.bias"}
    assert found.skipped.keys() == {"batch_stats", "step", "opt_state", "ema_params"}
    two = select_model([*paths, ("critic", "dense", "kernel")])
    assert two.networks == ("params", "critic")
    assert set(two.names.values()) == {"params.dense.kernel", "params.dense.bias", "critic.dense.kernel"}
    assert set(select_model([("optim_net", "weight"), ("fc", "weight")]).names.values()) == {
        "optim_net.weight",
        "fc.weight",
    }


SLOTS = [
    "g_optim.state.0.exp_avg",
    "optimizer.state.3.exp_avg_sq",
    "state.0.momentum_buffer",
    "optimizer/0/mu/layer/w",
    "opt_state.0.nu.params.kernel",
    "layer/kernel/Adam_1",
    "bert/encoder/kernel/adam_m",
    "w/Momentum",
    "exp_avg.layer.weight",
    "encoder/q_slot_vc",
    "optimizer_states.0.state.1.max_exp_avg_sq",
    "x.fp32_from_fp16_params.0",
    "master_weights.layer.w",
    "layer.kernel/.OPTIMIZER_SLOT/opt/m",
    "optim.foo.exp_avg_sq_row",
    "a.preconditioner.3",
]


@pytest.mark.parametrize("name", SLOTS)
def test_slots_by_name(name):
    assert is_slot(name)


@pytest.mark.parametrize(
    "name",
    [
        "optim_net.weight",
        "scheduler_embed",
        "state.0.weight",
        "m.weight",
        "momentum_encoder.w",
        "adam.w",
        "optimizer.net.0.weight",
        "model.step_embed.weight",
        "sum.weight",
    ],
)
def test_names_that_are_no_slots(name):
    assert not is_slot(name)


def test_slots_by_their_company():
    names = [
        "g_optim.state.0.exp_avg",
        "g_optim.state.0.z",
        "g_optim.state.1.sum",
        "net.0.weight",
        "state.0.weight",
    ]
    assert slot_groups(names) == ["g_optim.state.0.z", "g_optim.state.1.sum"]


@pytest.mark.parametrize(
    ("beside", "networks"),
    [
        (["head.weight", "head.bias"], ()),
        (["critic.0.weight", "critic.0.bias", "critic.1.weight"], ("model", "critic")),
    ],
    ids=["its head", "another network"],
)
def test_a_head_has_one_matrix_and_a_network_of_its_own_more(beside, networks):
    names = ["model.0.weight", "model.1.weight", "model.2.weight", *beside]
    found = select_model(tuple(name.split(".")) for name in names)
    assert sorted(found.names.values()) == sorted(names)
    assert (found.networks, found.skipped) == (networks, {})
