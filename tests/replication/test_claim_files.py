"""Claims and experiments are data: ours are whole, and a wrong file is named with what is wrong in it."""

from __future__ import annotations

import copy
import csv
import inspect
import operator
import re
import tomllib
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from scipy import stats

from normscope.errors import PluginError, UsageError
from normscope.plugins import Plugin
from normscope.replication import claim_files
from normscope.replication.claim import parse_claim
from normscope.replication.claim_files import chosen_claims, known_claims, known_experiments
from normscope.replication.drawing_data import KINDS, _published
from normscope.replication.experiment import PRESETS, parse_experiment
from normscope.replication.judging.quantities import QUANTITIES
from normscope.replication.replicate import ReplicationConfig, judge, plan_jobs
from normscope.replication.trials.trained_networks import training_plan
from normscope.replication.trials.trial_kinds import run_trials
from tests.lab.at_once import AtOnce

FOLDER = files("normscope.replication")


def claim_document(name="growth"):
    return tomllib.loads(FOLDER.joinpath(f"claims/{name}.toml").read_text("utf-8"))


def test_the_claims_are_in_the_order_of_the_paper():
    claims = list(known_claims().values())
    assert [claim.order for claim in claims] == sorted(claim.order for claim in claims)
    assert {claim.kind for claim in claims} == {"claim", "question"}
    assert len(claims) == 14


@pytest.mark.parametrize("claim", known_claims().values(), ids=lambda claim: claim.id)
def test_a_claim_refers_to_what_exists(claim):
    assert set(claim.experiments) <= set(known_experiments())
    assert claim.figure["kind"] in KINDS
    for number in claim.numbers:
        parameters = list(inspect.signature(QUANTITIES[number.quantity].compute).parameters.values())[1:]
        assert set(number.options) <= {parameter.name for parameter in parameters}
        needed = {p.name for p in parameters if p.default is p.empty}
        assert needed <= set(number.options)
    for column in claim.columns.values():
        experiment = known_experiments()[column.experiment]
        where = {*column.where, *(name for number in claim.numbers for name in number.where)}
        settable = {*experiment.vary, *(["model", "network"] if experiment.kind == "pretrained" else [])}
        assert where <= settable


@pytest.mark.parametrize("preset", PRESETS)
def test_every_training_of_a_preset_is_a_config_that_the_lab_takes(preset, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("some words to read\n" * 500, encoding="utf-8")
    config = ReplicationConfig(preset=preset, text=str(text), yes=True)
    for job in plan_jobs(chosen_claims(()), config, tmp_path):
        if job.experiment.kind in ("training", "automaton"):
            settings = {name: value for name, value in job.settings.items() if name != "prefixes"}
            assert training_plan(settings, job.context).configs


def test_full_is_the_size_of_the_paper(tmp_path):
    config = ReplicationConfig(preset="full", text="text.txt", yes=True)
    (job,) = plan_jobs(chosen_claims(["growth"]), config, tmp_path)
    model = training_plan(job.settings, job.context).base.model
    assert (model.n_layers, model.d_model, model.d_ff, model.n_heads) == (12, 768, 512, 12)
    (job,) = plan_jobs(chosen_claims(["saturation-and-norm"]), config, tmp_path)
    assert len(training_plan(job.settings, job.context).cells) == 20 * 20 * job.context.seeds


def test_an_unknown_claim_suggests_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'heads'"):
        chosen_claims(["head"])


CHANGES = {
    "no headline": lambda d: d["numbers"][0].pop("headline"),
    "unknown entry": lambda d: d.update(figures={}),
    "unknown quantity": lambda d: d["numbers"][0].update(quantity="growht"),
    "unknown option": lambda d: d["numbers"][0].update(options={"scop": "body"}),
    "missing option": lambda d: d["numbers"][0].update(quantity="field", options={}),
    "unknown verdict": lambda d: d["verdicts"][0].update(verdict="true"),
    "unknown number": lambda d: d["verdicts"][0].update(when=["corrected.nothing > 1"]),
    "unknown column": lambda d: d["numbers"][0].update(columns=["correct"]),
    "no last verdict": lambda d: d["verdicts"].pop(),
    "no title": lambda d: d.pop("title"),
    "a name twice": lambda d: d["numbers"].append({**d["numbers"][1]}),
    "a bad name": lambda d: d["numbers"][1].update(name="Grown All"),
    "a bad id": lambda d: d.update(id="Growth!"),
    "a bad kind": lambda d: d.update(kind="guess"),
    "no experiment": lambda d: (d.pop("released"), d.pop("corrected")),
    "unknown field of a number": lambda d: d["numbers"][0].update(lable="x"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_wrong_claim_is_named(change):
    document = copy.deepcopy(claim_document())
    change(document)
    with pytest.raises(UsageError, match=r"mine\.toml"):
        parse_claim(document, "mine.toml")


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(kind="traning"),
        lambda d: d["presets"].pop("full"),
        lambda d: d.pop("title"),
        lambda d: d.update(extra=1),
    ],
)
def test_a_wrong_experiment_is_named(change):
    document = tomllib.loads(FOLDER.joinpath("experiments/counting.toml").read_text("utf-8"))
    change(document)
    with pytest.raises(UsageError, match=r"mine\.toml"):
        parse_experiment(document, "mine.toml")


def test_published_numbers_of_the_claims_are_those_of_the_figures():
    """The ratios and ends that claims quote, computed again from the points read off the paper's figures."""
    rows = FOLDER.joinpath("published/lm-training.csv").read_text("utf-8").splitlines()[1:]
    cells = [line.split(",") for line in rows]

    def ends(variant, metric):
        points = [(int(e), float(v), d) for d, var, m, e, v in cells if var == variant and m == metric]
        first = {d: v for e, v, d in points if e == 0}
        last = {d: v for e, v, d in points if e == 5}
        return first, last

    growth = {number.name: number.paper for number in known_claims()["growth"].numbers}
    first, last = ends("pre_norm", "norm")
    assert growth["paper_norm"] == pytest.approx(stats.gmean([last[d] / first[d] for d in first]), abs=2e-3)
    first, last = ends("control", "norm")
    assert growth["post_norm"] == pytest.approx(stats.gmean([last[d] / first[d] for d in first]), abs=2e-3)
    grown = [last[d] > first[d] for d in first] + [True, True]
    assert growth["grown"] == sum(grown) / 4
    saturation = {number.name: number.paper for number in known_claims()["saturation"].numbers}
    start = [value for variant in ("control", "pre_norm") for value in ends(variant, "sat")[0].values()]
    end = [value for variant in ("control", "pre_norm") for value in ends(variant, "sat")[1].values()]
    assert saturation["start"] == pytest.approx(sum(start) / 4, abs=6e-3)
    assert saturation["last"] == pytest.approx(sum(end) / 4, abs=2e-4)


def documented_claim():
    """The claim of another paper that docs/extending.md shows."""
    page = (Path(__file__).parents[2] / "docs" / "extending.md").read_text("utf-8")
    return next(block for block in re.findall(r"```toml\n(.*?)```", page, re.S) if "[[verdicts]]" in block)


@pytest.fixture
def plugin_claims(tmp_path, monkeypatch):
    """Make a package's claims known, as if it were installed."""

    def install(**texts):
        added = []
        for name, text in texts.items():
            path = tmp_path / f"{name}.toml"
            path.write_text(text, encoding="utf-8")
            added.append(Plugin("claims", name, "some-package", path))
        monkeypatch.setattr(claim_files, "plugins", lambda group: tuple(added))
        known_claims.cache_clear()
        known_experiments.cache_clear()

    yield install
    known_claims.cache_clear()
    known_experiments.cache_clear()


def test_a_package_adds_a_claim_with_its_experiment(plugin_claims, tmp_path):
    plugin_claims(parity=documented_claim())
    assert list(known_claims())[-1] == "parity-is-hard"
    (job,) = plan_jobs(chosen_claims(["parity-is-hard"]), ReplicationConfig(), tmp_path)
    settings = {**job.settings, "steps": 2, "words": 20, "d_model": 16, "n_heads": 2}
    documents = run_trials("training", settings, replace(job.context, engine=AtOnce(), seeds=2))
    result = judge(known_claims()["parity-is-hard"], {"parity": documents}, "quick", {})
    assert result.verdict == "confirmed"  # nobody learns parity in two steps
    assert result.corrected["accuracy"].seeds == 2


@pytest.mark.parametrize("text", ["no toml [", "id = 'x'"])
def test_a_package_s_damaged_claim_names_the_file(plugin_claims, text):
    plugin_claims(broken=text)
    with pytest.raises(UsageError, match=r"broken\.toml"):
        known_claims()


def test_a_package_s_claim_must_not_have_a_name_of_ours(plugin_claims):
    plugin_claims(mine=documented_claim().replace('id = "parity-is-hard"', 'id = "growth"'))
    with pytest.raises(UsageError, match="two files define 'growth'"):
        known_claims()


def test_a_missing_file_of_a_package(plugin_claims, monkeypatch):
    plugin_claims()
    monkeypatch.setattr(
        claim_files, "plugins", lambda group: (Plugin("claims", "x", "some-package", "gone.toml"),)
    )
    with pytest.raises(PluginError, match="some-package"):
        known_claims()


def test_a_question_says_which_answer_is_judged():
    """“Does growth cause saturation? – confirmed” would be read as the opposite of what was confirmed."""
    for claim in known_claims().values():
        assert not claim.title.endswith("?"), claim.title
        assert ("?" in claim.statement) == (claim.kind == "question"), claim.statement


def test_the_published_histogram_of_heads_is_that_of_its_file():
    """Its mean share of positions is that of the bins' centres, up to half a bin of ours."""
    (published,) = _published(known_claims()["heads"].figure)
    text = FOLDER.joinpath("published/head-histograms.csv").read_text("utf-8")
    rows = [row for row in csv.DictReader(text.splitlines()) if row["metric"] == "# positions attended"]
    rows = [row for row in rows if row["dataset"] == "penn"]
    counts = [float(row["count"]) for row in rows]
    centres = [(float(row["bin_left"]) + float(row["bin_right"])) / 2 / 83 for row in rows]
    mean = sum(map(operator.mul, counts, centres)) / sum(counts)
    assert sum(published["y"]) == pytest.approx(1)
    assert sum(map(operator.mul, published["x"], published["y"])) == pytest.approx(mean, abs=0.02)
