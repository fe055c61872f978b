"""Advice: every rule on a run that has its condition and on one that has not, and numbers that agree."""

import math
import shlex
import shutil

import numpy as np
import pytest

import normscope as ns
from normscope.errors import SeriesError, UsageError
from normscope.remarks import Finding, write_remarks
from normscope.rows import HeadRow, SaturationRow
from normscope.run import Run
from normscope.theory.advice.advise import RULES
from normscope.theory.advice.certainty import (
    below,
    interval,
    mean_and_error,
    probability_above,
    probability_near,
    rounded,
    short,
    times,
)
from tests.cli.calling import call, call_json
from tests.live.small_training import batches, monitored
from tests.theory.advised_runs import Recorded, record

AT_REST = Recorded(lr=0.02, decay=0.5, start=0.1, steps=3000)
CASES = {
    "at rest": AT_REST,
    "on the way": Recorded(lr=0.01, decay=0.02, start=0.1),
    "no decay": Recorded(lr=0.01, momentum=0.9),
    "collapsed": Recorded(lr=0.02, decay=2.0, start=3.0),
    "odd layer": Recorded(lr=0.01, decay=0.3, rates={2: 6.0}),
    "idle": Recorded(
        schedule=lambda x: max(1 - 1.55 * x, 0.0) + 1e-5, loss=lambda x: 1 + math.exp(-20 * x), decay=0.01
    ),
    "useful end": Recorded(
        schedule=lambda x: max(1 - 1.55 * x, 0.0) + 1e-5, loss=lambda x: 2 - 1.5 * x, decay=0.01
    ),
    "linear": Recorded(schedule=lambda x: 1 - 0.9 * x, decay=0.01),
    "slowing": Recorded(lr=0.005, decay=0.02, slower=lambda x: 1 / (1 + 9 * x), start=0.2),
    "aligned": Recorded(lr=0.01, pull=1.5, start=0.1),
    "frozen": Recorded(lr=0.02, decay=0.0, frozen=1),
    "vanishing": Recorded(lr=0.02, decay=0.5, vanishing=3),
    "weak decay": Recorded(lr=1e-3, decay=1e-3, schedule=lambda x: 1.01 - x),
    "sgd": Recorded(lr=0.01, kind="SGD", coupled=True),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("advised")
    return {name: record(folder / f"{name.replace(' ', '-')}.db", how) for name, how in CASES.items()}


@pytest.fixture(scope="module")
def advice(runs):
    return {name: ns.advise(path) for name, path in runs.items()}


def kinds(found):
    return {each.kind for each in found if each.severity != "fine"}


def only(found, kind):
    (one,) = (each for each in found if each.kind == kind)
    return one


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("on the way", "rest"),
        ("no decay", "undecayed"),
        ("collapsed", "shrinking"),
        ("odd layer", "layer"),
        ("idle", "idle"),
        ("slowing", "slowing"),
        ("aligned", "aligned"),
        ("aligned", "fast-growth"),
        ("frozen", "unmoved"),
        ("vanishing", "vanished"),
    ],
)
def test_a_rule_speaks_where_its_condition_holds_and_not_elsewhere(name, kind, advice):
    assert kind in kinds(advice[name])
    assert kind not in kinds(advice["at rest"])


def test_a_gradient_vanishes_relative_to_the_others(advice):
    """It falls as 10^(−6x): from the middle of the first tenth to that of the last, by 10^−5.4."""
    found = only(advice["vanishing"], "vanished")
    assert "h.3.mlp.c_fc.weight" in found.sentence and found.evidence["tensors"] == 1
    assert math.log10(found.evidence["left"]) == pytest.approx(-5.4, abs=0.15)


def test_a_healthy_run_gets_nothing_to_do_with_what_was_checked(advice):
    first, second = advice["at rest"]
    assert first.kind == "nothing" and first.sentence.startswith("Nothing needs doing: ")
    for words in ("no NaN in 5 tensors", "all 5 trained tensors still move", "no layer departs", "at rest"):
        assert words in first.sentence
    assert first.confidence > 0.9 and second.kind == "rest" and second.severity == "fine"
    assert advice["at rest"].unknown == ()


def test_rest_is_where_the_recursion_says(advice):
    """ρ*² = η²·n/(1 − (1 − ηλ)²) for independent unit gradients of n parameters."""
    for name, how in (("at rest", AT_REST), ("on the way", CASES["on the way"])):
        rest = only(advice[name], "rest").evidence
        expected = math.sqrt(how.lr**2 * 5 * 300 / (1 - (1 - how.lr * how.decay) ** 2))
        assert rest["low"] < expected < rest["high"] and rest["rest"] == pytest.approx(expected, rel=0.15)


def test_the_confidence_of_rest_is_the_share_of_its_interval(advice):
    found = only(advice["on the way"], "rest")
    numbers = found.evidence
    above = probability_above(numbers["norm"], numbers["rest"], numbers["low"], numbers["high"])
    assert found.confidence == pytest.approx(max(above, 1 - above)) and found.confidence >= 0.9


def shown(found):
    """The JSON of the command that an advice names."""
    words = shlex.split(found.command)[1:]
    return call_json(*(word for word in words if word != "--json"))


def test_other_decays_agree_with_the_command_that_is_named(advice):
    found = only(advice["on the way"], "rest")
    decay = float(shlex.split(found.command)[shlex.split(found.command).index("--weight-decay") + 1])
    (group,) = shown(found)["groups"]
    assert group["equilibrium"]["norm"] == pytest.approx(found.evidence[f"rest at decay {decay:g}"])
    assert group["equilibrium"]["steps"] == found.evidence[f"steps at decay {decay:g}"]
    assert f"{group['equilibrium']['norm']:.4g}" in found.sentence


def test_rest_agrees_with_the_command_that_is_named(advice):
    found = only(advice["at rest"], "rest")
    (group,) = shown(found)["groups"]
    for field, name in (("norm", "rest"), ("low", "low"), ("high", "high"), ("steps", "steps")):
        assert group["equilibrium"][field] == pytest.approx(found.evidence[name])


def test_a_layer_agrees_with_the_command_that_is_named(advice):
    found = only(advice["odd layer"], "layer")
    groups = {each["group"]: each["growth"] for each in shown(found)["groups"]}
    assert found.evidence["layer"] == "decoder/02"
    assert groups["decoder/02"] == pytest.approx(found.evidence["growth"])
    others = [growth for name, growth in groups.items() if name != "decoder/02"]
    assert found.evidence["others"] == pytest.approx(np.exp(np.median(np.log(others))))
    assert "Its learning rate is 6 × theirs." in found.sentence


def test_a_layer_departs_also_where_no_rates_are_known(runs, tmp_path):
    path = shutil.copy(runs["odd layer"], tmp_path / "unrated.db")
    with Run(path, write=True) as run, run.transaction():
        run.update_rows("weight", "lr = NULL, weight_decay = NULL", "1 = 1")
    found = only(ns.advise(path), "layer")
    assert found.evidence["layer"] == "decoder/02" and "learning rate" not in found.sentence


def test_the_effective_rate_agrees_with_the_command_that_is_named(advice):
    found = only(advice["slowing"], "slowing")
    updates = np.array([row["value"] for row in shown(found)])
    norms = np.array([row["value"] for row in call_json("show", advice["slowing"].source)])[1:]
    last = np.exp(np.log(updates / norms)[-20:].mean())
    assert found.evidence["last"] == pytest.approx(last, rel=0.01)
    assert found.evidence["by_norm"] * found.evidence["by_updates"] == pytest.approx(
        found.evidence["factor"] / found.evidence["by_rate"]
    )


def test_a_forecast_agrees_with_the_command_that_is_named(advice):
    found = only(advice["aligned"], "fast-growth")
    ahead = shown(found)
    assert [ahead[name] for name in ("value", "low", "high")] == pytest.approx(
        [found.evidence[name] for name in ("expected", "low", "high")]
    )


def test_every_command_that_is_named_works(advice, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    commands = {tuple(shlex.split(each.command)[1:]) for found in advice.values() for each in found}
    for command in sorted(commands):
        assert call(*command).code == 0


def test_the_last_third_is_idle_only_if_the_loss_says_so_too(advice):
    found = only(advice["idle"], "idle")
    assert found.severity == "act" and found.evidence["share"] < 0.01
    assert "idle" not in kinds(advice["useful end"])
    assert "idle" not in kinds(advice["linear"])


def test_a_constant_schedule_has_no_idle_end(advice):
    for name in ("at rest", "slowing", "no decay"):
        assert "idle" not in {each.kind for each in advice[name]}


def test_weak_decay_is_the_product_of_what_each_step_keeps(advice):
    how = CASES["weak decay"]
    kept = np.prod([1 - how.lr * how.schedule(t / how.steps) * how.decay for t in range(1, how.steps + 1)])
    found = only(advice["weak decay"], "weak-decay")
    assert found.evidence["taken"] == pytest.approx(1 - kept, rel=0.02)
    assert "weak-decay" not in {each.kind for each in advice["at rest"]}


def test_decay_that_is_added_to_a_rescaled_gradient_is_not_judged(tmp_path):
    path = record(tmp_path / "l2.db", Recorded(lr=0.01, decay=0.05, kind="Adam", coupled=True))
    assert not {"rest", "weak-decay", "shrinking"} & {each.kind for each in ns.advise(path)}


def test_an_unknown_optimizer_is_said_and_not_judged(tmp_path):
    path = record(tmp_path / "old.db", CASES["on the way"])
    with Run(path, write=True) as run, run.transaction():
        run.delete_rows("optimizer", "1 = 1")
    found = ns.advise(path)
    assert "rest" not in {each.kind for each in found}
    (unknown,) = found.unknown
    assert "optimizer" in unknown and "ns.Monitor" in unknown


def test_an_unsound_series_comes_first(tmp_path):
    path = record(tmp_path / "unsound.db", CASES["frozen"])
    with Run(path, write=True) as run, run.transaction():
        write_remarks(run, [], [Finding("break", (500,), "the parameters jump at step 500", 0.93)])
    found = ns.advise(path)
    assert found[0].kind == "unsound" and found[0].confidence == 0.93
    assert "the parameters jump at step 500" in found[0].sentence and found.findings
    assert [each.severity for each in found[:2]] == ["act", "act"]


def test_a_hint_is_not_enough_to_call_a_series_unsound(tmp_path):
    path = record(tmp_path / "hint.db", AT_REST)
    with Run(path, write=True) as run, run.transaction():
        write_remarks(run, [], [Finding("gap", (500,), "step 500 may be missing", 0.3)])
    assert ns.advise(path)[0].kind == "nothing"


def test_real_monitors_show_nan_and_where_to_go_back_to(tmp_path):
    path = tmp_path / "nan.db"
    model, optimizer, monitor = monitored(path)
    with monitor:
        for step, tokens in enumerate(batches(20)):
            optimizer.zero_grad()
            (model(tokens) * (float("nan") if step == 12 else 1.0)).backward()
            optimizer.step()
    found = ns.advise(path)[0]
    assert found.kind == "nonfinite" and found.severity == "act" and found.evidence["first_step"] == 13
    assert "Go back to step 12" in found.sentence
    assert "unmoved" not in kinds(ns.advise(path))


def test_real_monitors_show_a_tensor_that_no_gradient_reaches(tmp_path):
    path = tmp_path / "dead.db"
    model, optimizer, monitor = monitored(path)
    model.inner.weight.register_hook(lambda gradient: gradient * 0)
    with monitor:
        for tokens in batches(40):
            optimizer.zero_grad()
            model(tokens).backward()
            optimizer.step()
    found = only(ns.advise(path), "unmoved")
    assert "never, inner.weight do not change at any recorded step" in found.sentence
    assert "frozen" not in found.sentence  # no optimizer has it


def head(step, number, kind):
    return HeadRow(step, "h.0.attn", 1, number, kind, 0.1, 1.0, 0.0, 0.0, 0.2, 3.0, 0.6, 2.0, 0.1)


def test_heads_that_hardened_and_layers_that_saturated(tmp_path):
    path = record(tmp_path / "network.db", AT_REST)
    with Run(path, write=True) as run, run.transaction():
        run.write([head(0, i, "mean") for i in range(4)])
        run.write([head(3000, i, "argmax" if i < 3 else "mean") for i in range(4)])
        run.write([SaturationRow(3000, f"h.{i}", i, 0.99, 0.01, 500, 1024.0, converged=True) for i in (1, 2)])
    found = ns.advise(path)
    assert only(found, "heads").evidence["argmax"] == 3 and only(found, "saturated").confidence == 1.0
    assert {"heads", "saturated"} <= kinds(found)
    assert not {"heads", "saturated"} & kinds(ns.advise(path, until=2000))


def test_what_the_network_showed_belongs_to_its_stage(tmp_path):
    path = record(tmp_path / "stages.db", AT_REST)
    with Run(path, write=True) as run, run.transaction():
        for table in ("weight", "optimizer"):
            run.update_rows(table, "stage = 'tuning'", "1 = 1")
        for stage, cosine in (("tuning", 0.98), ("other", 0.999)):
            run.write([SaturationRow(3000, "h.0", 1, cosine, 0.01, 500, 1024.0, stage=stage, converged=True)])
    found = only(ns.advise(path, stage="tuning"), "saturated")
    assert found.evidence == {"cosine": 0.98, "layers": 1}


@pytest.mark.parametrize("cosines", [(0.97, 0.99), (0.9, 0.98, 0.999), (0.5, 0.97, 0.999, 0.9999)])
def test_the_median_of_the_layers_is_the_one_that_is_said(tmp_path, cosines):
    path = record(tmp_path / "network.db", AT_REST)
    with Run(path, write=True) as run, run.transaction():
        rows = [(3000, f"h.{i}", i, cosine, 0.01, 500, 1024.0) for i, cosine in enumerate(cosines)]
        run.write([SaturationRow(*row, converged=i > 0) for i, row in enumerate(rows)])
    found = only(ns.advise(path), "saturated")
    assert found.evidence == {"cosine": pytest.approx(np.median(cosines)), "layers": len(cosines)}
    assert f"median cosine of {np.median(cosines):.3f}" in found.sentence
    assert found.confidence == pytest.approx(1 - 1 / len(cosines))


def test_norms_alone_say_what_is_missing_once(tmp_path):
    steps = np.arange(0, 3000, 100)
    found = ns.advise((steps, 10 + np.sqrt(steps)))
    assert found[0].kind == "nothing" and "as far as norms alone can tell" in found[0].sentence
    assert len(found.unknown) == 1 and "ns.Monitor" in found.unknown[0]
    assert found[0].confidence < 0.5  # most rules had no data
    path = tmp_path / "norms.csv"
    path.write_text("step,norm\n" + "".join(f"{s},{10 + s**0.5}\n" for s in steps), "utf-8")
    assert ns.advise(path)[0].kind == "nothing"


def test_norms_that_are_not_finite_are_said():
    values = np.where(np.arange(30) > 20, np.nan, 5 + np.arange(30.0))
    found = ns.advise((np.arange(30), values))
    assert found[0].kind == "nonfinite" and found[0].evidence["points"] == 9


def test_a_norm_that_grows_exponentially_grows_fast():
    steps = np.arange(0, 2000, 20)
    noise = 1 + 0.001 * np.random.default_rng(0).standard_normal(len(steps))
    assert "fast-growth" in kinds(ns.advise((steps, (5 + 0.05 * steps) * noise)))
    assert "fast-growth" not in kinds(ns.advise((steps, (5 + np.sqrt(steps)) * noise)))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.zeros(40), "no-norm"),
        (np.where(np.arange(40) > 20, 50.0, 5.0), "jump"),
        (10 * np.exp(-np.arange(40) / 10), "fallen"),
        (np.exp(np.arange(40) / 4), "fast-growth"),
    ],
)
def test_norms_alone_show_what_is_wrong_with_them(values, kind):
    noise = 1 + 0.001 * np.random.default_rng(0).standard_normal(40)
    found = ns.advise((10 * np.arange(40), values * noise))
    assert kind in kinds(found)
    quiet = ns.advise((10 * np.arange(40), (10 + np.sqrt(np.arange(40))) * noise))
    assert kinds(quiet) == set()


def test_a_learning_rate_of_zero_trains_nothing(tmp_path):
    found = ns.advise(record(tmp_path / "still.db", Recorded(lr=0.0, decay=0.1)))
    assert only(found, "unmoved").sentence == (
        "The learning rate is 0 at all 201 recorded steps: nothing is trained."
    )
    assert "weak-decay" not in {each.kind for each in found}


def test_the_window_is_part_of_every_command(runs):
    found = ns.advise(runs["on the way"], until=1500, scope="all")
    assert found.last_step == 1500
    assert all("--until 1500" in each.command and "--scope all" in each.command for each in found)
    assert only(found, "rest").evidence["norm"] < only(ns.advise(runs["on the way"]), "rest").evidence["norm"]


def test_advice_is_ordered_by_severity(advice):
    for found in advice.values():
        order = [("act", "watch", "fine").index(each.severity) for each in found]
        assert order == sorted(order) and len(found)


def test_nothing_is_said_without_evidence(advice):
    for found in advice.values():
        for each in found:
            assert each.evidence and 0 <= each.confidence <= 1 and any(c.isdigit() for c in each.sentence)
            assert each.command.startswith("normscope ")
    with pytest.raises(UsageError, match="evidence"):
        ns.Advice("x", "Something is odd.", {}, 0.5, "normscope show run.db")
    with pytest.raises(UsageError, match="confidence"):
        ns.Advice("x", "Something is odd.", {"a": 1.0}, 1.5, "normscope show run.db")
    with pytest.raises(UsageError, match="severity"):
        ns.Advice("x", "Something is odd.", {"a": 1.0}, 0.5, "normscope show run.db", "bad")


def test_the_kinds_are_those_of_the_rules(advice):
    named = {each.kind for found in advice.values() for each in found} - {"nothing", "shrinking"}
    assert named <= set(RULES)


def test_options_that_cannot_be_used_are_refused(runs):
    with pytest.raises(UsageError, match="measure"):
        ns.advise(runs["sgd"], measure="rms")
    with pytest.raises(UsageError, match="no stages"):
        ns.advise(runs["sgd"], stage="one")
    with pytest.raises(UsageError, match="scope"):
        ns.advise("t5-base", scope="all")
    with pytest.raises(SeriesError, match="advice needs"):
        ns.advise(([0, 1, 2], [1.0, 2.0, 3.0]))


def test_the_table_has_one_row_per_advice(advice):
    found = advice["odd layer"]
    assert found.table["sentence"] == list(found.sentences)
    assert found.messages == (*found.sentences, *found.unknown)


# -- certainty ------------------------------------------------------------------------


def test_probabilities_against_random_numbers():
    rng = np.random.default_rng(0)
    spread = math.log(2.0) / 1.959964
    drawn = 3.0 * np.exp(spread * rng.standard_normal(400_000))
    assert probability_above(2.5, 3.0, 1.5, 6.0) == pytest.approx((drawn > 2.5).mean(), abs=0.005)
    near = ((drawn > 2.5 / 1.2) & (drawn < 2.5 * 1.2)).mean()
    assert probability_near(2.5, 1.2, 3.0, 1.5, 6.0) == pytest.approx(near, abs=0.005)
    assert below(0.0) == 0.5


def test_the_error_of_a_mean_covers_it_though_neighbours_are_alike():
    rng, inside = np.random.default_rng(1), 0
    for _ in range(400):
        noise = rng.standard_normal(60)
        for i in range(1, 60):
            noise[i] = 0.6 * noise[i - 1] + 0.8 * noise[i]
        mean, error = mean_and_error(noise)
        inside += abs(mean) < 2 * error
    assert inside / 400 > 0.85  # naive errors, which take records as independent, cover 0.68
    assert mean_and_error(np.ones(9)) == (1.0, 0.0)
    assert math.isinf(mean_and_error(np.ones(2))[1])


def test_steps_are_rounded_to_what_an_estimate_knows():
    assert rounded(113_125) == "110,000" and rounded(84) == "84" and rounded(None) == "0"


def test_norms_have_four_digits_and_powers_of_ten_only_from_a_million_on():
    said = {0.0012345: "0.001234", 999.94: "999.9", 1000.4: "1,000", 12345.0: "12,340", -12345.0: "-12,340"}
    said |= {999_940.0: "999,900", 999_960.0: "1e+06", 1_234_567.0: "1.235e+06"}
    assert {value: short(value) for value in said} == said
    assert interval(12.3456, 1234.56) == "95 % interval 12.35 to 1,235"
    assert [times(factor) for factor in (1.234, 9.96, 10.4, 1234.5)] == ["1.2 ×", "10 ×", "10 ×", "1234 ×"]
