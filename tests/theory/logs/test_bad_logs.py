"""Logs that are dirty, damaged, cut off or not logs: the right numbers with a note, or one clear error."""

import json

import numpy as np
import pytest

import normscope as ns
from normscope.errors import NormscopeError, SeriesError, UsageError
from normscope.theory.logs import delimited_text, event_files, log_table, tfrecords
from normscope.theory.logs.log_registry import read_log
from normscope.theory.measures.log_series import log_series

from .test_formats import NORMS, STEPS, frame, write_events

BAD = [
    ("", "is empty"),
    ("# nothing\n\n", "is empty"),
    ("just words\nand more\n", "not a run file, nor a CSV file"),
    ("norm\n1\n2\n", "not a run file, nor a CSV file"),
    ("a,b\n1,2\n", "no step column: it has a, b; expected one of step"),
    ("1,2\n3,4\n", "begins with numbers"),
    ("step,norm\n", "no values"),
    ("step,norm\n1,x\n", "'norm' is not made of numbers alone; row 2: 'x'"),
    ("step,norm\n1,2\n2,1,5\n", "row 3: 3 cells, expected 2"),
    ("step,norm\n1\n", "row 2: 1 cells"),
    ("step;norm\n1;2,5\n", "row 2: '2,5'"),
    ("step,norm\nnan,1\n", "no row has both a step and a value"),
    ("step,norm\ninf,1\n", "not a finite number"),
    ("step,norm\n1e300,1\n", "2\\^53"),
    ("step,norm\n0.5,1\n1.0,2\n", "whole numbers; the step column has 0.5"),
    ("step,norm\n1,\n2,NaN\n", "'norm' has no values"),
    ("step,norm,norm\n1,2,3\n", "several columns can be the norm: norm \\(column 2\\), norm \\(column 3\\)"),
    ('{"step": [1, 2], "norm": [1]}', "different lengths"),
    ('{"step": 1}', "no column of values"),
    ("[1, 2]", "entry 1: expected an object"),
    ("[]", "no step column"),
    ("{}", "no step column"),
    ("{", "cannot read"),
    ('{"log_history": []}', "log_history is empty"),
    ('[{"step": 1, "norm": true}, {"step": 2, "norm": false}]', "not made of numbers alone"),
    ("[" * 100_000, "cannot read"),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=[text[:30] for text, _ in BAD])
def test_a_bad_log_is_one_sentence_that_names_the_file(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises((SeriesError, UsageError), match=message) as error:
        log_series(path)
    assert "bad.csv" in str(error.value) and "\n" not in str(error.value)


def test_a_binary_file_and_a_missing_one(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xff\xfe\x00\x80" * 10)
    with pytest.raises(SeriesError, match="nor a log in a known format"):
        log_series(path)
    with pytest.raises(UsageError, match="no file .*none.csv"):
        log_series(tmp_path / "none.csv")


def test_duplicates_disorder_gaps_and_words_are_cleaned_and_said(tmp_path):
    path = tmp_path / "log.csv"
    rows = [f"{step},{norm!r}" for step, norm in zip(STEPS.tolist(), NORMS.tolist(), strict=True)]
    dirty = [*rows[10:], "500,99", *rows[:11], "1000,NaN", "1050,", "1100,Infinity", "1150,null", ",5"]
    path.write_text("\n".join(["step,norm", *dirty]))
    fit = ns.fit_growth(path)
    assert fit.best == "sqrt" and fit.points == len(STEPS)
    said = " ".join(fit.notes)
    for words in (
        "step column: 'step'; values: 'norm'",
        "have no value",
        "no step",
        "not finite",
        "not in order",
        "repeat",
    ):
        assert words in said


def test_a_last_line_that_is_still_being_written_is_left_out(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("step,loss,norm\n0,1,2\n1,1,3\n2,1")
    assert log_series(path).steps.tolist() == [0, 1]
    assert "last line is incomplete" in " ".join(log_series(path).notes)


@pytest.mark.parametrize("column", ["run", "layer", "weird"])
def test_several_series_under_one_another_are_not_mixed(tmp_path, column):
    path = tmp_path / "long.csv"
    rows = [f"{step},{name},{step + i}" for i, name in enumerate("ab") for step in range(10)]
    path.write_text("\n".join([f"step,{column},norm", *rows]))
    with pytest.raises(UsageError, match=f"the column '{column}' differs between rows of one step"):
        log_series(path)
    path.write_text("\n".join([f"step,{column},norm", *rows[:10]]))
    assert len(log_series(path)) == 10


def test_what_normscope_exports_and_shows_of_a_run_is_not_taken_for_one_series(tmp_path):
    rows = [
        {"step": s, "group": g, "measure": "norm", "value": s + i, "scope": "body"}
        for i, g in enumerate("ab")
        for s in range(9)
    ]
    (tmp_path / "shown.json").write_text(json.dumps(rows))
    with pytest.raises(UsageError, match="several series under one another: the column 'group'"):
        log_series(tmp_path / "shown.json", "value")
    ns.export("t5-base", tmp_path / "t5.csv")
    assert log_series(tmp_path / "t5.csv") == ns.Series(
        str(tmp_path / "t5.csv"), *ns_points("t5-base"), unit="norm"
    )


def ns_points(name):
    (series,) = ns.series(name)
    return series.steps, series.values


def test_a_text_of_times_does_not_make_a_restart_a_long_table(tmp_path):
    path = tmp_path / "log.csv"
    rows = [f"{step},2024-01-{day:02} 10:00:{step:02},{step}" for day in (1, 2) for step in range(10)]
    path.write_text("\n".join(["step,date,norm", *rows]))
    found = log_series(path)
    assert len(found) == 10 and "10 points repeat a step" in found.notes[-1][:25]


def test_rows_out_of_order_are_sorted_for_every_command(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("step,norm\n20,5\n10,4\n0,3\n10,4.5\n")
    found = log_series(path)
    assert (found.steps.tolist(), found.values.tolist()) == ([0, 10, 20], [3, 4.5, 5])
    page = ns.report(path, tmp_path / "r.html").read_text("utf-8")
    assert "grew from 3.000 at step 0 to 5.000 at step 20" in page and "repeats a step" in page
    said = ns.compare(path, path).sentences
    assert sum("repeats a step" in sentence for sentence in said) == 2


# -- damaged files --------------------------------------------------------------------------------


def damaged(data, rng):
    """The data cut at a random place, or with one to four random bytes."""
    if rng.random() < 0.4:
        return data[: rng.integers(0, len(data))]
    changed = bytearray(data)
    for place in rng.integers(0, len(data), rng.integers(1, 5)):
        changed[place] = rng.integers(0, 256)
    return bytes(changed)


def write_json(folder):
    frame().to_json(folder / "log.jsonl", orient="records", lines=True)
    return folder / "log.jsonl"


def write_parquet(folder):
    frame().to_parquet(folder / "log.parquet")
    return folder / "log.parquet"


@pytest.mark.parametrize(
    ("write", "column"), [(write_events, "param_norm"), (write_json, "norm"), (write_parquet, "norm")]
)
def test_damaged_files_give_a_typed_error_or_points(tmp_path, write, column):
    rng = np.random.default_rng(1)
    path = write(tmp_path)
    whole = path.read_bytes()
    for _ in range(80):
        path.write_bytes(damaged(whole, rng))
        try:
            found = log_series(path, column)
        except NormscopeError as error:
            assert path.name in str(error)
        else:
            assert len(found)


def test_damaged_event_files_never_give_a_wrong_number(tmp_path):
    """Checksums: every point that is read from a damaged file is one that was written."""
    rng = np.random.default_rng(2)
    path = write_events(tmp_path)
    written = set(zip(STEPS.tolist(), NORMS.astype("f4").tolist(), strict=True))
    whole, read = path.read_bytes(), 0
    for _ in range(150):
        path.write_bytes(damaged(whole, rng))
        try:
            found = log_series(path, "param_norm")
        except NormscopeError:
            continue
        read += 1
        assert set(zip(found.steps.tolist(), found.values.tolist(), strict=True)) <= written
    assert read > 10


def test_sizes_are_bounded(tmp_path, monkeypatch):
    path = tmp_path / "log.csv"
    frame().to_csv(path)
    monkeypatch.setattr(log_table, "MOST_CELLS", 20)
    with pytest.raises(SeriesError, match="too large: 20 rows of 4 columns"):
        read_log(path)
    monkeypatch.undo()
    monkeypatch.setattr(delimited_text, "LONGEST_LINE", 30)
    path.write_text("step,norm\n0,1\n1," + "2" * 50)
    with pytest.raises(SeriesError, match="a line of more than 30 characters"):
        read_log(path)
    monkeypatch.setattr(event_files, "_MOST_FOLDERS", 2)
    (tmp_path / "a" / "b").mkdir(parents=True)
    with pytest.raises(UsageError, match="more than 2 folders; name the folder of one run"):
        read_log(tmp_path)
    monkeypatch.undo()
    events = write_events(tmp_path / "events")
    monkeypatch.setattr(tfrecords, "LARGEST_RECORD", 10)
    with pytest.raises(SeriesError, match="contains no scalars"):
        read_log(events)
