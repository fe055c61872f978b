"""What a scan says first: constants that hold much of the norm, an unsound series, several networks."""

import pytest
import torch

from normscope.remarks import Finding, LeftOut, write_remarks
from normscope.run import Run
from normscope.theory.measures.constant_tensors import constant_groups, constant_tensors
from normscope.theory.measures.run_summary import summarise
from normscope.weights.scan.scan import scan
from tests.conftest import random_walk, save_series

STEPS = [0, 10, 20]


def noise(*shape, seed=0):
    """Values that no rule takes for a table or a mask."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def scanned(tmp_path, states, **options):
    with scan(save_series(tmp_path / "series", states), tmp_path / "run.db", **options) as run:
        return summarise(run)


def with_constants(constants, steps=STEPS):
    return {step: state | constants for step, state in random_walk(steps).items()}


@pytest.mark.parametrize("steps", [[0, 10], STEPS], ids=["two checkpoints", "three"])
def test_a_large_constant_that_no_rule_knows_is_said_first(tmp_path, steps):
    states = with_constants({"table.freqs": noise(40, 40)}, steps)
    found = scanned(tmp_path, states)
    last = states[steps[-1]]
    total = sum(float(v.double().square().sum()) for v in last.values())
    share = 100 * float(last["table.freqs"].double().square().sum()) / total
    assert found.headlines[0] == (
        f"table.freqs never changes and holds {share:.0f} % of ‖θ‖²: if it is a constant and not a frozen "
        "parameter, leave it out with --skip 'table.freqs'"
    )
    assert found.warnings[0] == found.headlines[0]
    again = scanned(tmp_path, states, skip=["table.freqs"])
    assert again.headlines == ()
    plain = {s: {n: v for n, v in state.items() if n != "table.freqs"} for s, state in states.items()}
    norm = sum(float(v.double().square().sum()) for v in plain[steps[-1]].values()) ** 0.5
    assert again.stages[0].norm_all_last == pytest.approx(norm, rel=1e-7)


def test_constants_of_all_layers_count_together(tmp_path):
    """Each of them is small: less than 5 % of ‖θ‖²."""
    tables = {f"h.{layer}.attn.table": noise(9, 9, seed=layer) for layer in range(3)}
    found = scanned(tmp_path, with_constants(tables))
    (headline,) = found.headlines
    assert headline.startswith("h.*.attn.table (3 tensors, ")
    assert headline.endswith("leave them out with --skip 'h.*.attn.table'")
    with Run(tmp_path / "run.db") as run:
        total = sum(value for (value,) in run.query("SELECT sumsq FROM weight WHERE step = 20"))
        shares = {
            name: value / total
            for name, value in run.query(
                "SELECT name, sumsq FROM weight JOIN tensor ON id = tensor WHERE step = 20"
            )
        }
        (group,) = constant_groups(constant_tensors(run), shares)
    assert all(shares[name] < 0.05 for name in tables)
    assert group.share == pytest.approx(sum(shares[name] for name in tables))


def test_a_pattern_never_takes_a_tensor_that_is_trained():
    """One of three layers is frozen: the pattern of all layers would leave out the others too."""
    shares = {f"h.{layer}.mlp.weight": 0.3 for layer in range(3)}
    assert [g.pattern for g in constant_groups(["h.1.mlp.weight"], shares)] == ["h.1.mlp.weight"]
    assert [g.pattern for g in constant_groups(list(shares), shares)] == ["h.*.mlp.weight"]


def test_small_constants_are_a_note(tmp_path):
    found = scanned(tmp_path, with_constants({"extra.scale": noise(2)}))
    assert found.headlines == ()
    assert any("1 tensor never changes (extra.scale)" in warning for warning in found.warnings)


def test_of_a_single_checkpoint_nothing_is_said(tmp_path):
    found = scanned(tmp_path, with_constants({"table.freqs": noise(40, 40)}, [5]))
    assert found.headlines == ()


def test_copies_of_one_checkpoint(tmp_path):
    state = random_walk([0])[0]
    found = scanned(tmp_path, dict.fromkeys(STEPS, state))
    assert "no tensor ever changes: all checkpoints have the same weights" in found.headlines


def test_an_unsound_series_is_said_before_what_is_left_out(tmp_path):
    scan(save_series(tmp_path / "series", random_walk(STEPS)), tmp_path / "run.db").close()
    finding = Finding("gap", (15,), "step 15 is missing", 0.9, {"missing": 1})
    left_out = [LeftOut("best", "a copy"), LeftOut("ema", "a copy"), LeftOut("x", "is damaged")]
    with Run(tmp_path / "run.db", write=True) as run:
        with run.transaction():
            write_remarks(run, left_out, [finding])
        found = summarise(run)
    assert found.headlines == (
        "The series is not sound (gap): step 15 is missing.",
        "best, ema are left out: a copy",
        "x is left out: is damaged",
    )
    assert (found.findings, found.left_out) == ((finding,), tuple(left_out))


def test_networks_in_one_file_have_totals_of_their_own(tmp_path):
    shapes = {f"{net}_model.layers.{i}.mlp.fc1.weight": (8, 8) for net in ("text", "vision") for i in (0, 1)}
    states = random_walk(STEPS, shapes=shapes)
    found = scanned(tmp_path, states)
    assert [part.component for part in found.components] == ["text", "vision"]
    for part in found.components:
        mine = [v for n, v in states[20].items() if n.startswith(part.component)]
        assert part.norm_last == pytest.approx(sum(float(v.double().square().sum()) for v in mine) ** 0.5)
        assert part.parameters == 2 * 64
    assert found.headlines == ("2 networks are in one file (text, vision): the totals add them up",)


def test_an_encoder_and_its_decoder_are_one_network(tmp_path):
    shapes = {f"{net}.layers.{i}.fc1.weight": (8, 8) for net in ("encoder", "decoder") for i in (0, 1)}
    found = scanned(tmp_path, random_walk(STEPS, shapes=shapes))
    assert (found.components, found.headlines) == ((), ())


def test_the_share_of_unknown_names(tmp_path):
    states = random_walk(STEPS, shapes={"h.0.mlp.c_fc.weight": (8, 8), "wte.weight": (9, 8), "zz.qq": (3, 7)})
    found = scanned(tmp_path, states)
    sumsq = {name: float(value.double().square().sum()) for name, value in states[20].items()}
    share = sumsq["zz.qq"] / (sumsq["zz.qq"] + sumsq["h.0.mlp.c_fc.weight"])
    assert (found.unknown_names, found.unknown_share) == (1, pytest.approx(share, rel=1e-6))
    assert any(f"zz.qq; it holds {100 * share:.0f} % of the body's ‖θ‖²" in text for text in found.warnings)


def test_the_share_of_unknown_names_is_that_of_a_step_without_nan(tmp_path):
    states = random_walk(STEPS, shapes={"h.0.mlp.c_fc.weight": (8, 8), "zz.qq": (3, 7)})
    sumsq = [float(value.double().square().sum()) for value in states[10].values()]
    states[20]["zz.qq"].fill_(float("nan"))  # a sum without it would say that it holds nothing
    found = scanned(tmp_path, states)
    assert found.unknown_share == pytest.approx(sumsq[1] / sum(sumsq), rel=1e-6) and found.nonfinite == 21
