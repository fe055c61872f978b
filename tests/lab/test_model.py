"""The lab's model against a slow version written from the formulas, and against its mathematics."""

import math

import pytest
import torch

from normscope.errors import ModelError, UsageError
from normscope.lab.model import SIZES, ModelConfig, Transformer, angles, multiplicative_attention, rotate
from normscope.lab.training.checkpointing import is_lab_model, load_model, save_model

SMALL = {
    "vocab_size": 11,
    "d_model": 8,
    "n_layers": 2,
    "n_heads": 2,
    "d_ff": 12,
    "max_length": 9,
    "init_std": 0.3,
}


def model_of(**options):
    torch.manual_seed(0)
    return Transformer(ModelConfig(**(SMALL | options))).double().eval()


def tokens(length=7):
    return torch.arange(length)[None] % 11


def slow_forward(model, ids):
    """The same network in loops over positions and heads, from the parameters by name."""
    c, p = model.config, dict(model.named_parameters())
    p.setdefault("head.weight", p["embed.weight"])
    x = torch.stack([p["embed.weight"][i] + slow_position(c, p, t) for t, i in enumerate(ids.tolist())])
    for n in range(c.n_layers):
        for norm, sublayer in (("norm1", slow_attention), ("norm2", slow_mlp)):
            x = slow_residual(c, p, f"blocks.{n}.", norm, x, sublayer)
    return linear(p, "head", slow_norm(p, "norm", x) if c.final_norm else x)


def slow_residual(c, p, at, norm, x, sublayer):
    if c.norm == "pre":
        return x + sublayer(c, p, at, slow_norm(p, at + norm, x))
    if c.norm == "paper":
        return x + slow_norm(p, at + norm, sublayer(c, p, at, x))
    return slow_norm(p, at + norm, x + sublayer(c, p, at, x))


def slow_position(c, p, t):
    if c.positions == "learned":
        return p["positions.weight"][t]
    if c.positions == "sinusoidal":
        row = [
            f(t / 10000 ** (2 * i / c.d_model)) for i in range(c.d_model // 2) for f in (math.sin, math.cos)
        ]
        return torch.tensor(row, dtype=torch.float64)
    return torch.zeros(c.d_model, dtype=torch.float64)


def linear(p, name, x):
    return x @ p[name + ".weight"].T + p.get(name + ".bias", 0)


def slow_norm(p, name, x):
    centred = x - x.mean(-1, keepdim=True)
    scale = (centred**2).mean(-1, keepdim=True) + 1e-5
    return centred / scale.sqrt() * p[name + ".weight"] + p.get(name + ".bias", 0)


def slow_mlp(c, p, at, x):
    h = linear(p, at + "mlp.up", x)
    h = h.clamp(min=0) if c.activation == "relu" else h * (1 + torch.erf(h / math.sqrt(2))) / 2
    return linear(p, at + "mlp.down", h)


def slow_attention(c, p, at, x):
    q, k, v = (linear(p, f"{at}attention.{part}", x) for part in "qkv")
    size, rows = c.d_model // c.n_heads, []
    for i in range(len(x)):
        row = []
        for h in range(c.n_heads):
            s = slice(h * size, (h + 1) * size)
            scores = [slow_score(c, q[i, s], k[j, s], i, j) / math.sqrt(size) for j in range(len(x))]
            row.append(torch.softmax(torch.stack(scores), 0) @ v[:, s])
        rows.append(torch.cat(row))
    return linear(p, at + "attention.out", torch.stack(rows))


def slow_score(c, q, k, i, j):
    if c.positions == "rotary":  # complex numbers turned by their angle
        half = len(q) // 2
        rate = torch.tensor([10000 ** (-2 * m / len(q)) for m in range(half)], dtype=torch.float64)
        q, k = torch.complex(q[:half], q[half:]), torch.complex(k[:half], k[half:])
        score = (q * torch.polar(torch.ones(half, dtype=torch.float64), rate * (i - j)) * k.conj()).real.sum()
    else:
        score = q @ k
    if j > i and c.mask == "causal":
        return torch.full_like(score, -math.inf)
    return score * 0 if j > i and c.mask == "multiplicative" else score


OPTIONS = [
    {},
    {"norm": "paper", "bias": False},
    {"norm": "post", "activation": "relu", "final_norm": False},
    {"positions": "sinusoidal", "tied_head": True},
    {"positions": "rotary", "bias": False},
    {"positions": "none", "mask": "full", "norm": "post"},
    {"mask": "multiplicative", "norm": "paper", "activation": "relu"},
]


@pytest.mark.filterwarnings("ignore:the multiplicative mask")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_model_equals_the_formulas(options):
    model = model_of(**options)
    ids = torch.tensor([3, 1, 4, 1, 5, 9, 2])
    torch.testing.assert_close(model(ids[None])[0], slow_forward(model, ids), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary", "none"])
def test_causal_model_does_not_see_the_future(positions):
    model = model_of(positions=positions)
    left, right = tokens(), tokens().clone()
    right[0, 4:] = 10
    torch.testing.assert_close(model(left)[:, :4], model(right)[:, :4], rtol=0, atol=1e-12)
    assert not torch.allclose(model(left)[:, 4:], model(right)[:, 4:])


def test_multiplicative_mask_leaks_and_warns():
    with pytest.warns(UserWarning, match="see the future"):
        model = model_of(mask="multiplicative")
    right = tokens().clone()
    right[0, 6] = 10
    assert not torch.allclose(model(tokens())[:, 0], model(right)[:, 0])


def test_multiplicative_mean_head_spreads_over_the_future():
    """All visible scores far below 0: the weight falls on the future ones, tied at 0."""
    q, k, v = torch.full((1, 1, 4, 2), 100.0), torch.full((1, 1, 4, 2), -100.0), torch.eye(4)[None, None]
    weights = multiplicative_attention(q, k, v)[0, 0]
    torch.testing.assert_close(weights[0], torch.tensor([0, 1 / 3, 1 / 3, 1 / 3]))


def test_rotation_keeps_norms_and_depends_on_distance_only():
    table = angles(20, 6)
    q, k = torch.randn(2, 1, 1, 1, 6, dtype=torch.float64)

    def turned(x, t):
        return rotate(x, table[t : t + 1].cos(), table[t : t + 1].sin())

    assert turned(q, 7).norm() == pytest.approx(float(q.norm()))
    assert float((turned(q, 9) * turned(k, 4)).sum()) == pytest.approx(
        float((turned(q, 15) * turned(k, 10)).sum())
    )


def test_bias_free_pre_norm_model_is_linear_in_its_head():
    model = model_of(bias=False)
    before = model(tokens())
    model.head.weight.data *= 2
    torch.testing.assert_close(model(tokens()), 2 * before)
    assert not any(name.endswith("bias") for name, _ in model.named_parameters())


def test_every_bias_exists_when_wanted():
    names = {name for name, _ in model_of().named_parameters()}
    weights = {
        name for name in names if name.endswith("weight") and not name.startswith(("embed", "positions"))
    }
    assert {name.replace("weight", "bias") for name in weights} == {n for n in names if n.endswith("bias")}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"d_model": 10, "n_heads": 4}, "divisible by n_heads"),
        ({"norm": "rms"}, "pre, paper, post"),
        ({"n_layers": 0}, "at least 1"),
        ({"dropout": 1.0}, "dropout"),
        ({"d_model": 6, "n_heads": 2, "positions": "rotary"}, "even head size"),
    ],
)
def test_impossible_configs_are_refused(options, words):
    with pytest.raises(UsageError, match=words):
        ModelConfig(**options)


def test_too_long_a_sequence_is_refused():
    with pytest.raises(ModelError, match="up to 9 tokens"):
        model_of()(tokens(10))
    assert model_of(positions="none")(tokens(10)).shape == (1, 10, 11)


def test_dropout_acts_in_training_only():
    model = model_of(dropout=0.5)
    torch.testing.assert_close(model(tokens()), model(tokens()))
    model.train()
    assert not torch.allclose(model(tokens()), model(tokens()))


def test_paper_size_is_the_papers():
    paper = SIZES["paper"]
    assert (paper.n_layers, paper.d_model, paper.d_ff, paper.n_heads) == (12, 768, 512, 12)


def test_initialisation_is_as_configured():
    model = Transformer(ModelConfig(d_model=128, init_std=0.05))
    assert model.blocks[0].mlp.up.weight.std().item() == pytest.approx(0.05, rel=0.02)
    assert model.head.bias.abs().max().item() == 0
    assert Transformer(ModelConfig(init_std=None)).head.bias.abs().max().item() > 0


@pytest.mark.parametrize(
    "options", [{}, {"tied_head": True}, {"positions": "rotary", "bias": False}], ids=str
)
def test_folder_round_trip(tmp_path, options):
    model = model_of(**options)
    save_model(model, tmp_path / "step-000001")
    back = load_model(tmp_path / "step-000001")
    assert is_lab_model(tmp_path / "step-000001")
    assert back.config == model.config
    assert torch.equal(back(tokens()), model(tokens()))
    if options.get("tied_head"):
        assert back.head.weight is back.embed.weight
