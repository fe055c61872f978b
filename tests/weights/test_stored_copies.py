"""Copies are counted once, other networks apart, and --keep and --skip decide otherwise."""

import copy

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import normscope as ns
from normscope.checkpoints import open_file
from normscope.checkpoints.storage.local import LocalFile
from normscope.errors import CheckpointError, UsageError
from normscope.theory.measures.run_summary import summarise
from normscope.weights.inventory.stored_copies import copies, only_averages
from normscope.weights.networks import networks
from tests.weights.buffer_zoo import interleaved


def weights(seed=0, prefix=""):
    draw = torch.Generator().manual_seed(seed)
    shapes = {
        "blocks.0.attn.weight": (8, 8),
        "blocks.0.mlp.weight": (16, 8),
        "blocks.0.mlp.bias": (16,),
        "head.weight": (5, 8),
    }
    return {f"{prefix}{name}": torch.randn(shape, generator=draw) for name, shape in shapes.items()}


def under(prefix, state):
    return {f"{prefix}{name}": value.clone() for name, value in state.items()}


@pytest.fixture
def copied(tmp_path):
    def judge(state):
        path = tmp_path / "m.safetensors"
        save_file(state, path)
        checkpoint = open_file(LocalFile(path))
        return copies(checkpoint, list(checkpoint.tensors.values()))

    return judge


AVERAGES = [
    "model_ema.",
    "ema.",
    "ema_model.",
    "module_ema.",
    "averaged_model.module.",
    "swa_model.module.",
    "model.ema.",
    "shadow_params.",
    "netG_ema.",
    "g_ema.",
    "params_ema.",
    "avg_model.",
    "emaModel.",
]


@pytest.mark.parametrize("prefix", AVERAGES)
@pytest.mark.parametrize("plain", ["", "model.", "module.model.", "generator."])
def test_averages_beside_the_weights(copied, prefix, plain):
    moved = {name: value + 0.1 for name, value in weights().items()}
    found = copied({**under(plain, moved), **under(prefix, weights())})
    assert found.keys() == under(prefix, weights()).keys()
    assert all("averaged copy" in reason for reason in found.values())


def test_averages_of_latent_diffusion_have_no_dots(copied):
    model = under("model.diffusion_model.", weights())
    average = {
        f"model_ema.{name.removeprefix('model.').replace('.', '')}": v + 0.01 for name, v in model.items()
    }
    found = copied({**model, **average, "model_ema.decay": torch.tensor(0.9999)})
    assert found.keys() == average.keys() | {"model_ema.decay"}
    assert (
        found["model_ema.diffusion_modelheadweight"]
        == "an averaged copy of model.diffusion_model.head.weight"
    )


def test_only_averages_are_the_model(copied):
    assert copied(under("ema.", weights())) == {}
    assert "under ema" in only_averages(under("ema.", weights()))
    assert only_averages(weights()) is None


def test_a_layer_that_is_called_ema(copied):
    assert copied({"ema.weight": torch.randn(8, 8), "fc.weight": torch.randn(8, 8)}) == {}
    layers = {f"layers.{i}.ema_gate.damping_factor": torch.randn(8) for i in range(3)}
    assert copied({**weights(), **layers}) == {}


SLOTS = [
    "m.{}",
    "v.{}",
    "Adam/m/{}",
    "velocity.{}",
    "mu.params.{}",
    "nu.params.{}",
    "{}.m",
    "{}.grad",
    "{}/momentum",
    "accumulated.{}",
    "master.{}",
    "fp32.{}",
    "second_moment.{}",
]


@pytest.mark.parametrize("pattern", SLOTS)
def test_slots_with_ordinary_names(copied, pattern):
    slots = {pattern.format(name): torch.rand_like(value) for name, value in weights().items()}
    assert copied({**weights(), **slots}) == dict.fromkeys(slots, "optimizer state")


def test_factored_slots(copied):
    rows = {
        f"v_row.{name}": torch.rand(value.shape[0]) for name, value in weights().items() if value.dim() > 1
    }
    assert copied({**weights(), **rows}).keys() == rows.keys()


def test_modules_with_the_names_of_slots(copied):
    heads = {
        "mu.weight": torch.randn(4, 8),
        "v.0.weight": torch.randn(8, 8),
        "m.0.weight": torch.randn(8, 8),
        "q.0.weight": torch.randn(8, 8),
        "k.0.weight": torch.randn(8, 8),
    }
    assert copied({**weights(), **heads}) == {}


@pytest.mark.parametrize(
    ("names", "components"),
    [
        (["actor.w.x", "critic.w.x", "log_std"], {"actor", "critic", "model"}),
        (["netG.w.x", "netD.w.x"], {"netG", "netD"}),
        (["G_A.x.w", "G_B.x.w", "D_A.x.w", "D_B.x.w"], {"G_A", "G_B", "D_A", "D_B"}),
        (["student.backbone.w", "teacher.backbone.w"], {"student", "teacher"}),
        (["online_net.w.x", "target_net.w.x"], {"online_net", "target_net"}),
        (["module.encoder_q.w", "module.encoder_k.w"], {"encoder_q", "encoder_k"}),
        (["unet.w.x", "vae.w.x", "text_encoder.w.x"], {"unet", "vae", "text_encoder"}),
        (
            ["model.diffusion_model.w", "first_stage_model.w.x", "cond_stage_model.w.x"],
            {"model", "first_stage_model", "cond_stage_model"},
        ),
        (["encoder.w.x", "decoder.w.x", "loss.discriminator.w.x"], {"model", "discriminator"}),
        (["qf1.w.x", "qf2.w.x", "policy.w.x"], {"qf1", "qf2", "policy"}),
        (["encoder.w.x", "decoder.w.x", "shared.weight"], set()),
        (["transformer.h.0.w", "lm_head.weight", "v_head.summary.weight"], set()),
        (["electra.w.x", "discriminator_predictions.dense.weight"], set()),
        (["q.weight", "k.weight", "v.weight", "o.weight"], set()),
        (["encoder.w.x", "decoder.w.x", "generator.proj.weight"], set()),
        (["d.weight", "g.weight"], set()),
        (["text_model.w.x", "vision_model.w.x", "logit_scale"], set()),
    ],
)
def test_networks_by_name(names, components):
    assert set(networks(names).values()) == components


def scanned(folder, states, **options):
    folder.mkdir(exist_ok=True)
    for step, state in enumerate(states):
        save = save_file if not any(isinstance(v, dict) for v in state.values()) else torch.save
        save(state, folder / (f"step_{step}.safetensors" if save is save_file else f"step_{step}.pt"))
    return ns.scan(folder, folder / "run.db", **options)


def norm(tensors):
    return sum(float(t.detach().double().square().sum()) for t in tensors) ** 0.5


def test_a_gan_in_one_pickle(tmp_path):
    one, two = nn.Linear(4, 8), nn.Linear(8, 1)
    average = copy.deepcopy(one)
    states = []
    for lr in (0.0, 0.1):
        optimizer = torch.optim.Adam([*one.parameters(), *two.parameters()], lr=lr)
        two(one(torch.ones(2, 4))).sum().backward()
        optimizer.step()
        states.append(
            copy.deepcopy(
                {
                    "generator": one.state_dict(),
                    "discriminator": two.state_dict(),
                    "g_ema": average.state_dict(),
                    "g_optim": optimizer.state_dict(),
                }
            )
        )
    with scanned(tmp_path / "gan", states) as run:
        rows = {row.name: row.component for row in run.tensors()}
        skipped, summary = run.skipped(), summarise(run)
    assert rows == {
        f"{part}.{name}": part for part in ("generator", "discriminator") for name in ("weight", "bias")
    }
    assert skipped["g_optim"] == "optimizer state"
    assert "averaged copy" in skipped["g_ema.weight"]
    assert {part.component: part.parameters for part in summary.components} == {
        "generator": 40,
        "discriminator": 9,
    }
    last = {part.component: part.norm_last for part in summary.components}
    assert last["generator"] == pytest.approx(norm(one.parameters()), rel=1e-6)


class Tied(nn.Module):
    """A language model whose head is tied; layers are deep copies of one, as in nn.TransformerEncoder."""

    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(20, 8)
        layer = nn.Linear(8, 8)
        self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(2))
        self.lm_head = nn.Linear(8, 20, bias=False)
        self.lm_head.weight = self.embed_tokens.weight

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        for layer, gain in zip(self.layers, self.norms, strict=True):
            x = gain(layer(x).relu())
        return self.lm_head(x)


def trained_states(steps, seed=0):
    torch.manual_seed(seed)
    model = Tied()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    tokens = torch.randint(0, 20, (4, 6))
    states = []
    for _ in range(steps):
        states.append({name: value.detach().clone() for name, value in model.state_dict().items()})
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(1, 1).flatten()).backward()
        optimizer.step()
    return states


@pytest.mark.parametrize("steps", [1, 3])
def test_a_tied_head_that_is_stored_twice(tmp_path, steps):
    states = trained_states(steps)
    with scanned(tmp_path / "tied", states) as run:
        summary = summarise(run)
        tied = {row.name for row in run.tensors() if row.tied_to is not None}
        total = ns.series(run, scope="all")[0].values[-1]
    assert tied == {"lm_head.weight"}
    assert summary.tied == 1
    assert any("lm_head.weight is embed_tokens.weight" in note for note in summary.warnings)
    assert total == pytest.approx(norm(v for n, v in states[-1].items() if n != "lm_head.weight"), rel=1e-6)


def test_a_tie_that_a_later_checkpoint_refutes(tmp_path):
    states = trained_states(3)
    scanned(tmp_path / "tied", states[:1]).close()
    states[2]["lm_head.weight"] = states[2]["lm_head.weight"] + 0.1
    with scanned(tmp_path / "tied", states) as run:
        assert {row.name for row in run.tensors() if row.tied_to is not None} == set()
        total = ns.series(run, scope="all")[0].values[-1]
    assert total == pytest.approx(norm(states[2].values()), rel=1e-6)


def test_equal_values_that_are_no_tie(tmp_path):
    decayed = [
        {"a.weight": torch.full((4, 4), 0.9**i), "b.weight": torch.full((4, 4), 0.9**i)} for i in range(3)
    ]
    draw = torch.randn(4, 4)
    unused = [{"a.weight": draw * 0.9**i, "b.weight": draw * 0.9**i} for i in range(3)]
    frozen = [{"a.weight": draw.clone(), "b.weight": draw.clone()} for _ in range(3)]
    for i, states in enumerate((decayed, unused, frozen)):
        with scanned(tmp_path / str(i), states) as run:
            assert all(row.tied_to is None for row in run.tensors()), i


def test_tied_layers_that_are_stored_twice(tmp_path):
    states = [
        {"layers.0.weight": w, "layers.1.weight": w.clone()} for w in (torch.randn(6, 6) for _ in range(3))
    ]
    with scanned(tmp_path / "t", states) as run:
        assert [row.tied_to is not None for row in run.tensors()] == [False, True]


TABLE = {
    "pe": interleaved(),
    "w": torch.randn(4, 4),
    "ids": torch.arange(4),
    "bn.running_mean": torch.randn(4),
}


def test_keep_wins_over_every_rule(tmp_path):
    with scanned(tmp_path / "a", [TABLE]) as run:
        assert {row.name for row in run.tensors()} == {"w"}
        assert run.skipped()["pe"] == "sinusoidal table"
    with scanned(tmp_path / "b", [TABLE], keep=["pe", "*.running_*"]) as run:
        assert {row.name for row in run.tensors()} == {"pe", "w", "bn.running_mean"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": ["nothing*"]}, "keep='nothing\\*' matches no tensor"),
        ({"keep": ["pe"], "skip": ["p*"]}, "both match pe"),
        ({"keep": ["ids"]}, "ids cannot be measured: integers"),
        ({"keep": "pe"}, "must be a list of patterns"),
    ],
)
def test_patterns_that_are_refused(tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        scanned(tmp_path / "a", [TABLE], **options)


@pytest.mark.parametrize(
    "state", [{"ids": torch.arange(4)}, {"pe": interleaved()}, {}, {"e": torch.zeros(0, 3)}]
)
def test_no_parameters_is_an_error(tmp_path, state):
    with pytest.raises(CheckpointError):
        scanned(tmp_path / "a", [state])


FLAT_SLOTS = ["sum", "variance", "prev", "step_size"]


@pytest.mark.parametrize("slot", FLAT_SLOTS)
@pytest.mark.parametrize("pattern", ["{slot}.{name}", "{name}.{slot}", "opt_of_mine/{slot}/{name}"])
def test_slots_that_are_called_like_layers(copied, slot, pattern):
    slots = {
        pattern.format(slot=slot, name=name): torch.rand_like(value) for name, value in weights().items()
    }
    assert copied({**weights(), **slots}) == dict.fromkeys(slots, "optimizer state")


@pytest.mark.parametrize("slot", ["step", "eta", "mu_product"])
def test_slots_of_one_number(copied, slot):
    slots = {f"{slot}.{name}": torch.tensor(11.0) for name in weights()}
    assert copied({**weights(), **slots}) == dict.fromkeys(slots, "optimizer state")
    assert copied({**weights(), "sum.0.weight": torch.rand(8), "0.weight": torch.randn(8)}) == {}


def optimizer_state(optimizer, module):
    return {f"{k}.{n}": v for n, p in module.named_parameters() for k, v in optimizer.state[p].items()}


@pytest.mark.parametrize(
    "kind", ["Adam", "NAdam", "Adamax", "Adagrad", "RMSprop", "Rprop", "ASGD", "Adafactor"]
)
def test_every_optimizer_of_torch_laid_out_flat(tmp_path, kind):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
    optimizer = getattr(torch.optim, kind)(module.parameters(), lr=1e-2)
    states, norms = [], []
    for _ in range(3):
        optimizer.zero_grad()
        module(torch.randn(5, 8)).square().sum().backward()
        optimizer.step()
        states.append(copy.deepcopy({**module.state_dict(), **optimizer_state(optimizer, module)}))
        states[-1] = {name: value for name, value in states[-1].items() if isinstance(value, torch.Tensor)}
        norms.append(norm(module.parameters()))
    with scanned(tmp_path / "flat", states) as run:
        assert ns.series(run, scope="all")[0].values == pytest.approx(norms, rel=1e-6)
    with scanned(tmp_path / "last", states[2:]) as run:
        assert ns.series(run, scope="all")[0].values == pytest.approx(norms[2:], rel=1e-6)


@pytest.mark.parametrize(
    "prefix",
    [
        "exponential_moving_average.",
        "ema_0.9999.",
        "ema_model.online_model.",
        "averager.",
        "moving_avg.",
        "sma.",
    ],
)
def test_averages_under_rarer_words(copied, prefix):
    for plain in ("", "model."):
        moved = {name: value + 0.1 for name, value in weights().items()}
        found = copied({**under(plain, moved), **under(prefix, weights())})
        assert found.keys() == under(prefix, weights()).keys()


def test_equal_gains_are_no_evidence_of_an_average(copied):
    gains = {"encoder.ema_norm.weight": torch.ones(8), "encoder.ema_norm.bias": torch.zeros(8)}
    assert copied({**weights(), **gains, "encoder.ln.weight": torch.ones(8), "ln.bias": torch.zeros(8)}) == {}


@pytest.mark.parametrize("word", ["best", "backup", "theta0", "SWALR"])
@pytest.mark.parametrize("plain", ["", "net."])
@pytest.mark.parametrize("count", [1, 2])
def test_a_copy_under_an_unknown_word_is_a_network_of_its_own(tmp_path, word, plain, count):
    states = [
        {**under(plain, {n: v * (1 + 0.1 * i) for n, v in weights().items()}), **under(f"{word}.", weights())}
        for i in range(count)
    ]
    with scanned(tmp_path / "a", states) as run:
        summary = summarise(run)
    norms = {part.component: part.norm_last for part in summary.components}
    assert norms.keys() == {word, plain.rstrip(".") or "model"}
    assert norms[word] == pytest.approx(norm(weights().values()), rel=1e-6)
    assert any("2 networks are in one file" in line for line in summary.headlines)
    assert any("if it is a copy, leave it out with --skip" in line for line in summary.warnings)


def test_networks_that_only_have_equal_names_stay_one(tmp_path):
    layers = {f"encoder.{n}": v for n, v in weights(1).items()} | {
        f"decoder.{n}": v for n, v in weights(1).items()
    }
    towers = {f"left.{n}": v for n, v in weights(1).items()} | {
        f"right.{n}": v for n, v in weights(2).items()
    }
    heads = {"body.w": torch.randn(64, 64)} | {
        f"{head}.{n}": v.clone() for head in ("head1", "head2") for n, v in weights(3).items()
    }
    for i, state in enumerate((layers, towers, heads)):
        with scanned(tmp_path / str(i), [state]) as run:
            assert summarise(run).components == ()


def test_steps_of_one_size_leave_equal_sums_but_no_tie(tmp_path):
    """Lion moves every element by ±lr: vectors that begin at zero often have equal squares."""
    draw = torch.Generator().manual_seed(0)
    moves = [torch.sign(torch.randn(32, generator=draw)) / 512 for _ in range(3)]
    places = [sum(moves[:i], torch.zeros(32)) for i in range(4)]
    states = [{"w": torch.randn(4, 4), "a.bias": p, "b.bias": p.flip(0)} for p in places]
    with scanned(tmp_path / "a", states) as run:
        assert all(row.tied_to is None for row in run.tensors())
        total = ns.series(run, scope="all")[0].values[-1]
    assert total == pytest.approx(norm(states[-1].values()), rel=1e-6)


@pytest.mark.parametrize(
    ("names", "shape"),
    [
        (["shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"], (20, 8)),
        (["model.shared.weight", "model.encoder.embed_tokens.weight"], (20, 8)),
        (["cls.predictions.bias", "cls.predictions.decoder.bias"], (20,)),
        (["lm_head.bias", "lm_head.decoder.bias"], (20,)),
    ],
)
def test_names_that_transformers_ties_are_one_in_a_single_checkpoint(tmp_path, names, shape):
    values, body = torch.randn(shape), {"layers.0.mlp.weight": torch.randn(8, 8)}
    with scanned(tmp_path / "a", [{**body, **{name: values.clone() for name in names}}]) as run:
        assert sum(row.tied_to is None for row in run.tensors()) == 2
        total = ns.series(run, scope="all")[0].values[-1]
    assert total == pytest.approx(norm([values, *body.values()]), rel=1e-6)
    apart = {name: values + i for i, name in enumerate(names)}
    with scanned(tmp_path / "b", [{**body, **apart}]) as run:
        assert all(row.tied_to is None for row in run.tensors())
