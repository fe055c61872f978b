"""An unsound series says so first, wherever it is shown; what a scan left out is listed."""

import numpy as np
import pytest

import normscope as ns
from normscope.run import Run
from normscope.views.page.page import render
from normscope.views.reports.report import report, run_page

from .doubtful import BREAK, GAP, HINT, remark
from .runs import write_walk

STEPS = [0, *(int(step) for step in np.geomspace(10, 2000, 12))]
SENTENCE = "The series is not sound (break and gap): the move to step 170 is 26"


@pytest.fixture
def path(tmp_path):
    return remark(write_walk(tmp_path / "run.db", STEPS, layers=2), HINT, GAP, BREAK)


def body(text):
    return text.partition('<main id="content">')[2].partition("<script")[0]


def test_results_say_it_first(path, tmp_path):
    sound = write_walk(tmp_path / "sound.db", STEPS, layers=2, seed=1)
    for result in (ns.fit_growth(path), ns.fit_groups(path), ns.forecast(path, 9000)):
        assert result.sentences[0].startswith(SENTENCE)
        assert result.messages[0] == result.sentences[0] and result.findings == (BREAK, GAP, HINT)
    compared = ns.compare(sound, path)
    assert compared.sentences[0].startswith(f"{path}: {SENTENCE}")
    assert (compared.findings_a, compared.findings_b) == ((), (BREAK, GAP, HINT))
    for result in (
        ns.series(path),
        ns.series(path)[0],
        ns.norm_budget(path),
        ns.norm_budget(path, by="layer"),
    ):
        assert result.messages[0].startswith(SENTENCE) and SENTENCE in result._repr_html_()
    assert not any("not sound" in s for s in ns.fit_growth(sound).sentences)


def test_the_doubt_travels_with_a_series(path):
    (norm,) = ns.series(path)
    assert ns.fit_growth(norm).sentences[0].startswith(SENTENCE)
    assert ns.forecast(norm, 9000, since=10).sentences[0].startswith(SENTENCE)
    assert ns.compare(norm, norm).sentences[0].startswith("total (a): The series is not sound")


def test_figures_say_it_under_the_title(path):
    for result in (
        path,
        ns.fit_growth(path),
        ns.fit_groups(path),
        ns.norm_budget(path),
        ns.compare(path, path),
    ):
        assert "The series is not sound" in ns.plot(result).layout.title.subtitle.text


def test_the_box_stands_before_every_number(path, tmp_path):
    text = body(report(path, tmp_path / "run.html").read_text("utf-8"))
    box = text.index("The series is not sound")
    assert box < text.index('class="lead"') < text.index('class="facts"')
    for finding in (BREAK, GAP):
        assert box < text.index(finding.evidence) < text.index('class="hints"')
    assert text.index('class="hints"') < text.index(HINT.evidence) < text.index('class="lead"')
    assert "Break at steps 150, 170" in text and "(confidence 0.93)" in text
    assert text.count("The series is not sound") == 1  # the sections below do not repeat it


def test_what_was_left_out_is_listed_at_the_top(path, tmp_path):
    text = body(report(path, tmp_path / "run.html").read_text("utf-8"))
    lists = text.partition('class="lists"')[2].partition("<section")[0]
    for expected in ("1 checkpoint left out", "model_best", "a copy of the best", "1 tensor skipped"):
        assert expected in lists
    assert "a mask, not a parameter" in lists and "<details" in lists
    assert "Model_best" not in text  # a name keeps its spelling at the beginning of a sentence


def test_hints_alone_do_not_make_a_series_unsound(tmp_path):
    path = remark(write_walk(tmp_path / "run.db", STEPS, layers=2), HINT, left_out=())
    text = body(report(path, tmp_path / "run.html").read_text("utf-8"))
    assert "not sound" not in text and "One hint, which is not sure" in text
    assert not any("not sound" in sentence for sentence in ns.fit_growth(path).sentences)


def test_a_run_without_findings_says_nothing_about_soundness(tmp_path):
    path = write_walk(tmp_path / "run.db", STEPS, layers=2)
    text = body(report(path, tmp_path / "run.html").read_text("utf-8"))
    assert "sound" not in text and 'class="hints"' not in text
    assert ns.fit_growth(path).findings == ()


def test_findings_belong_to_the_stage_that_is_shown(tmp_path):
    path = tmp_path / "staged.db"
    write_walk(path, [0, 100, 200, 300], layers=2, stage="first")
    write_walk(path, [0, 10, 20, 30], layers=2, stage="second", seed=1)
    remark(path, BREAK.of_stage("second"))
    with Run(path) as run:
        first, second = run_page(run).stages
    assert first.doubts is None and len(second.doubts.sure) == 1
    assert "not sound" not in ns.fit_growth(path, stage="first").sentences[0]
    assert "not sound" in ns.fit_growth(path, stage="second").sentences[0]
    assert "second: The series is not sound" in ns.plot(path).layout.title.subtitle.text
    remark(path, BREAK)  # about the whole of a run whose stages have names
    assert "not sound" in ns.fit_growth(path, stage="first").sentences[0]


def test_text_from_a_file_cannot_become_part_of_the_page(tmp_path):
    path = write_walk(tmp_path / "run.db", [0, 10], layers=1)
    nasty = ns.Finding("<b>gap", (1,), "<script>alert(1)</script>\x1b[31m", 0.9)
    remark(path, nasty, left_out=(ns.LeftOut("<i>best", "<img src=x>"),))
    with Run(path) as run:
        text = body(render(run_page(run)))
    assert "<script>alert" not in text and "<b>gap" not in text and "<img" not in text and "\x1b" not in text
