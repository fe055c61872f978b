from dataclasses import replace

import numpy as np
import pytest

from normscope.errors import NormscopeError, UsageError
from normscope.theory.dynamics.learning_rates import Rates
from normscope.theory.dynamics.rate_groups import group_of_series
from normscope.theory.forecasts.forecast import forecast
from normscope.theory.forecasts.rate_sources import known_rates
from normscope.theory.forecasts.training_plan import Plan, out_of_range, planned
from normscope.theory.measures.time_series import Series

STEPS = np.arange(0, 1001, 100)


def group(lr, decay, size=1.0):
    series = Series("norm", STEPS, size * np.sqrt(1.0 + STEPS))
    return group_of_series(series, Rates.constant(lr, decay))


def test_a_spelled_schedule_is_what_it_says():
    rates = Plan(lr="cosine:3e-4:1e-5:100000", weight_decay=0.1).rates(None, 500.0, 1000.0)
    at = rates.at(np.array([0.0, 50_000, 100_000, 200_000]))
    assert at[0] == pytest.approx([3e-4, (3e-4 + 1e-5) / 2, 1e-5, 1e-5], rel=1e-4)
    assert (at[1] == 0.1).all()


def test_a_number_as_text_is_a_number():
    assert Plan(lr="3e-4") == Plan(lr=3e-4)


@pytest.mark.parametrize(
    "text", ["cosine", "cosine:3e-4", "sine:1:0:10", "cosine:a:b:c", "cosine:0:0:100", "cosine:1e-3:0:0", "x"]
)
def test_a_schedule_that_cannot_be_read_is_refused(text):
    with pytest.raises(UsageError, match=r"lr|schedule"):
        Plan(lr=text)


@pytest.mark.parametrize(
    "options",
    [
        {"lr": 1e-3, "table": "plan.csv"},
        {"schedule": "cosine", "table": "plan.csv"},
        {"lr": "cosine:1e-3:0:100", "schedule": "linear"},
        {"lr": -1.0},
        {"momentum": 1.0},
        {"schedule": 3},
    ],
)
def test_options_that_contradict_each_other_are_refused(options):
    with pytest.raises(UsageError):
        Plan(**options)


def test_the_other_groups_keep_their_ratio():
    main, small, undecayed = group(0.01, 0.3, 10.0), group(0.002, 0.03), group(0.01, 0.0)
    futures = planned(Plan(lr=0.02, weight_decay=0.6), [main, small, undecayed], 1000.0, 2000.0)
    then = np.array([1500.0])
    rates = np.array([future.at(then) for future in futures])[..., 0]
    assert rates == pytest.approx(np.array([(0.02, 0.6), (0.004, 0.06), (0.02, 0.0)]))
    before = [float(future.at(np.array([500.0]))[0][0]) for future in futures]
    assert before == pytest.approx([0.01, 0.002, 0.01])


def test_no_plan_keeps_what_was_recorded():
    one = group(0.01, 0.3)
    assert planned(Plan(), [one], 1000.0, 2000.0) == (one.rates,)


def test_a_table_gives_past_and_future(tmp_path):
    path = tmp_path / "plan.csv"
    path.write_text("step,lr,weight_decay\n0,0.001,0.1\n1000,0.001,0.1\n2000,0.0,0.2\n")
    rates = Plan(table=path).rates(None, 500.0, 2000.0)
    lr, decay = rates.at(np.array([0.0, 1500.0, 2000.0]))
    assert lr == pytest.approx([0.001, 0.0005, 0.0]) and decay == pytest.approx([0.1, 0.15, 0.2])
    found = forecast((STEPS, np.sqrt(1.0 + STEPS)), 2000, Plan(table=path))
    assert found.groups[0].weight_decay == 0.2
    with pytest.raises(UsageError, match="gives the weight decay"):
        forecast((STEPS, np.sqrt(1.0 + STEPS)), 2000, Plan(table=path, weight_decay=0.3))


@pytest.mark.parametrize("text", ["step,norm\n0,1\n1,2\n", "lr\n1\n", "step,lr\n0,5\n1,nan\n", ""])
def test_a_table_without_rates_is_refused(tmp_path, text):
    path = tmp_path / "plan.csv"
    path.write_text(text)
    with pytest.raises(NormscopeError):
        forecast((STEPS, np.sqrt(1.0 + STEPS)), 2000, Plan(table=path, weight_decay=1.0))


def test_how_far_rates_lie_outside_the_measured_ones():
    one = group(0.01, 0.1)
    ahead = np.array([1500.0])
    for lr, far in ((0.01, 0.0), (0.1, np.log(10)), (0.001, np.log(10)), (0.0, 0.0)):
        assert out_of_range([one], [Rates.constant(lr, 0.1)], ahead) == pytest.approx(far)


def test_the_ratio_of_the_groups_survives_a_rate_that_ends_at_zero():
    falling = np.linspace(1.0, 0.0, len(STEPS))
    main, small = (
        replace(group(lr, 0.1, size), rates=Rates(STEPS, lr * falling, np.full(len(STEPS), 0.1)))
        for lr, size in ((0.01, 10.0), (0.003, 1.0))
    )
    futures = planned(Plan(lr=0.02), [main, small], 1000.0, 2000.0)
    assert [float(each.at(np.array([1500.0]))[0][0]) for each in futures] == pytest.approx([0.02, 0.006])


@pytest.mark.parametrize("plan", [Plan(schedule="cosine"), Plan(weight_decay=0.2)])
def test_a_plan_that_keeps_a_rate_of_zero_has_no_effect_and_is_refused(plan):
    rates = Rates(STEPS, np.linspace(0.01, 0.0, len(STEPS)), np.full(len(STEPS), 0.1))
    stopped = replace(group(0.01, 0.1), rates=rates)
    with pytest.raises(UsageError, match=r"learning rate is 0 at step 1000.*--lr"):
        planned(plan, [stopped], 1000.0, 2000.0)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_weight_decay_that_acts_with_unknown_strength_is_refused(decay):
    adam = replace(group(0.01, 0.01), kind="Adam", momentum=0.9, coupled=True)
    with pytest.raises(UsageError, match=r"weight decay of Adam .* unknown; leave out"):
        planned(Plan(weight_decay=decay), [adam], 1000.0, 2000.0)
    beside = planned(Plan(weight_decay=decay), [group(0.01, 0.01, 10.0), adam], 1000.0, 2000.0)
    assert len(beside) == 2


def test_decay_through_momentum_that_erases_the_parameters_is_refused():
    sgd = replace(group(0.3, 1e-3), kind="SGD", momentum=0.9, coupled=True)
    assert planned(Plan(weight_decay=0.1), [sgd], 1000.0, 2000.0)
    with pytest.raises(UsageError, match="would take 3 of the parameters"):
        planned(Plan(weight_decay=1.0), [sgd], 1000.0, 2000.0)
    halved = replace(group(0.25, 1e-3), kind="SGD", momentum=0.5, coupled=True)
    assert planned(Plan(weight_decay=1.9), [halved], 1000.0, 2000.0)
    with pytest.raises(UsageError, match="would take 1 of the parameters"):
        planned(Plan(weight_decay=2.0), [halved], 1000.0, 2000.0)


def test_decay_that_acts_on_only_some_groups_is_pointed_out():
    series = Series("norm", STEPS, 10 * np.sqrt(1.0 + STEPS))
    adam = replace(group(0.01, 0.01), name="embeddings", kind="Adam", momentum=0.9, coupled=True)
    both = [group(0.01, 0.01, 10.0), adam]
    assert any(
        "no effect on embeddings" in note
        for note in known_rates(series, both, Plan(weight_decay=0.1), 2e3).notes
    )
    assert not any("no effect" in note for note in known_rates(series, both, Plan(lr=0.1), 2e3).notes)


@pytest.mark.parametrize("option", ["table", "schedule"])
def test_a_file_of_rates_that_begins_after_the_forecast_is_refused(tmp_path, option):
    path = tmp_path / "plan.csv"
    path.write_text("step,lr\n5000,1e-3\n9000,1e-4\n")
    with pytest.raises(UsageError, match="begins at step 5000, after step 2000"):
        planned(Plan(**{option: path}), [group(0.01, 0.1)], 1000.0, 2000.0)
    assert planned(Plan(**{option: path}), [group(0.01, 0.1)], 1000.0, 6000.0)
