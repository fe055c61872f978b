"""Crafted run files: each case changes a sound one, by SQL or byte by byte."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

DEEP = "[" * 200_000 + "]" * 200_000
COUNTING = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
DAMAGED = "is damaged or was not written by normscope"


@dataclass(frozen=True)
class Case:
    """`change` makes a sound run file hostile; `says` is in the sentence of every command that reads it.

    `needs` names the commands that read the changed part; every command must end well.
    """

    change: Callable[[Path], object]
    says: str = DAMAGED
    needs: tuple[str, ...] = ()
    sound: bool = False


CASES: dict[str, Case] = {}


def add(name, change, says=DAMAGED, needs=(), sound=False):
    assert name not in CASES, name
    CASES[name] = Case(change, says, needs, sound)


def sql(*statements):
    """Run statements that change a file, the schema too."""

    def change(path):
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("PRAGMA writable_schema = ON")
            db.execute("BEGIN")
            for statement in statements:
                db.execute(*(statement if isinstance(statement, tuple) else (statement,)))
            db.execute("COMMIT")

    return change


def view(table, select):
    return sql(f"DROP TABLE {table}", f"CREATE VIEW {table} AS {select}")


def edit(function):
    """Change the bytes of a file."""
    return lambda path: path.write_bytes(function(bytearray(path.read_bytes())))


def put(offset, content):
    def change(data):
        data[offset : offset + len(content)] = content
        return data

    return edit(change)


WEIGHT = "stage, step, prev_step, tensor, sumsq, dot, sumsq_delta, dot_init, absmax, nonfinite, grad_sumsq"
WEIGHT += ", grad_dot, lr, weight_decay, origin"

# -- things that run ---------------------------------------------------------------------------
add(
    "view: endless weights",
    view("weight", f"{COUNTING} SELECT '', x, 0, 0, 1.0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 2 FROM c"),
)
add("view: endless metadata", view("meta", f"{COUNTING} SELECT x AS key, '1' AS value FROM c"))
add("view: endless checkpoints", view("checkpoint", f"{COUNTING} SELECT '', x, '', 1, '', '', 1, '' FROM c"))
add(
    "view: a cross product",
    view("scalar", "SELECT '' stage, a.step, 'loss' name, 1.0 value FROM weight a, weight b, weight c"),
)
add("view: beside the tables", sql(f"CREATE VIEW more AS {COUNTING} SELECT x FROM c"))
add("view: that reads itself", view("skipped", "SELECT name, reason FROM skipped"))
add(
    "view: of a value of a gigabyte",
    view("skipped", "SELECT 'x' AS name, hex(zeroblob(500000000)) AS reason"),
)
add("trigger: on metadata", sql("CREATE TRIGGER t AFTER INSERT ON meta BEGIN DELETE FROM weight; END"))
add("trigger: on deletion", sql("CREATE TRIGGER t AFTER DELETE ON finding BEGIN DELETE FROM checkpoint; END"))
add(
    "trigger: that fires itself",
    sql(
        "CREATE TRIGGER t AFTER INSERT ON scalar BEGIN "
        "INSERT INTO scalar VALUES('', new.step + 1, 'x', 1); END"
    ),
)
add("table: virtual", sql("CREATE VIRTUAL TABLE words USING fts5(text)"))
add("table: a virtual weight", sql("DROP TABLE weight", "CREATE VIRTUAL TABLE weight USING rtree(id, a, b)"))
add(
    "table: a generated column",
    sql(
        "DROP TABLE skipped",
        "CREATE TABLE skipped(name TEXT PRIMARY KEY, reason TEXT NOT NULL AS (hex(zeroblob(90000000))))",
    ),
)
add(
    "table: a check that computes",
    sql(
        "DROP TABLE skipped",
        "CREATE TABLE skipped(name TEXT PRIMARY KEY, reason TEXT NOT NULL "
        "CHECK(length(hex(zeroblob(9))) > 0))",
    ),
)
add(
    "table: a default that calls",
    sql(
        "DROP TABLE skipped",
        "CREATE TABLE skipped(name TEXT PRIMARY KEY, reason TEXT NOT NULL DEFAULT (randomblob(9)))",
    ),
)
add("index: on an expression", sql("CREATE INDEX i ON weight(abs(sumsq))"))
add("index: a partial one", sql("CREATE INDEX i ON weight(step) WHERE step > 5"))

# -- the schema --------------------------------------------------------------------------------
for _table in (
    "meta",
    "checkpoint",
    "tensor",
    "weight",
    "skipped",
    "saturation",
    "head",
    "scalar",
    "artifact",
):
    add(f"schema: without {_table}", sql(f"DROP TABLE {_table}"))
add("schema: foreign", sql("DROP TABLE weight", "CREATE TABLE weight(a, b)"))
add(
    "schema: columns in another order",
    sql(
        "DROP TABLE scalar",
        "CREATE TABLE scalar(step INTEGER NOT NULL, stage TEXT NOT NULL, name TEXT NOT NULL, "
        "value REAL, PRIMARY KEY(stage, step, name)) WITHOUT ROWID",
    ),
)
add(
    "schema: columns without types", sql("DROP TABLE scalar", "CREATE TABLE scalar(stage, step, name, value)")
)
add("schema: 600 tables", sql(*(f"CREATE TABLE t{i}(x)" for i in range(600))))
add(
    "schema: a statement that is none",
    sql("UPDATE sqlite_master SET sql = 'CREATE TABLE' WHERE name = 'weight'"),
)
add(
    "schema: two tables in one place",
    sql(
        "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master "
        "WHERE name = 'head') WHERE name = 'scalar'"
    ),
)
add(
    "schema: a table outside the file", sql("UPDATE sqlite_master SET rootpage = 99999 WHERE name = 'weight'")
)
add("schema: a table at page 0", sql("UPDATE sqlite_master SET rootpage = 0 WHERE name = 'weight'"))
add("schema: a table on the first page", sql("UPDATE sqlite_master SET rootpage = 1 WHERE name = 'meta'"))
add(
    "schema: a statement that is not UTF-8",
    sql("UPDATE sqlite_master SET sql = CAST(x'435245415445205441424c4520ff' AS TEXT) WHERE name = 'weight'"),
)
add("version: of the future", sql("PRAGMA user_version = 7"), "version 7; this normscope reads version 1")
add("version: below zero", sql("PRAGMA user_version = -1"), "version -1")
add("identity: another program's", sql("PRAGMA application_id = 252006674"), "not a normscope run file")

# -- values ------------------------------------------------------------------------------------
for _column in ("sumsq", "dot", "sumsq_delta", "dot_init", "absmax", "lr", "grad_sumsq"):
    add(f"value: text in {_column}", sql(f"UPDATE weight SET {_column} = 'much' WHERE step = 500"))
add("value: a blob in sumsq", sql("UPDATE weight SET sumsq = x'00' WHERE step = 500"))
add("value: a negative square", sql("UPDATE weight SET sumsq = -4.0 WHERE step = 500"))
add("value: a step that is text", sql("UPDATE weight SET step = 'five' WHERE step = 500"))
add("value: a step with a fraction", sql("UPDATE weight SET step = 500.5 WHERE step = 500"))
add("value: a step below zero", sql("UPDATE checkpoint SET step = -5 WHERE step = 500"))
add("value: a step of 2^62", sql(f"UPDATE scalar SET step = {2**62} WHERE step = 500"))
add("value: a tensor that is not there", sql("UPDATE weight SET tensor = 77 WHERE step = 500 AND tensor = 1"))
add("value: a stage that is a blob", sql("UPDATE weight SET stage = x'ff' WHERE step = 500"))
add(
    "value: a name that is not UTF-8",
    sql("UPDATE tensor SET name = CAST(x'ff68' AS TEXT) WHERE id = 1"),
    "cannot read",
    ("show", "report"),
)
add("value: a name of 60 MB", sql("UPDATE tensor SET name = hex(zeroblob(30000000)) WHERE id = 1"))
add("value: a blob of 200 MB", sql("UPDATE artifact SET value = zeroblob(200000000) WHERE kind = 'alarm'"))
add(
    "value: a wide document of 8 MB",
    sql("UPDATE meta SET value = '\"' || hex(zeroblob(4000000)) || 'Ω\"' WHERE key = 'source'"),
)
add("value: a confidence that is text", sql("UPDATE finding SET confidence = 'sure'"))
add("value: numel below zero", sql("UPDATE tensor SET numel = -48"))
add("value: a layer of 2^60", sql(f"UPDATE tensor SET layer = {2**60} WHERE id = 1"))
add("value: text for a loss", sql("UPDATE scalar SET value = 'low' WHERE step = 500"))


# -- documents ---------------------------------------------------------------------------------
def meta(key, text):
    return sql(("INSERT OR REPLACE INTO meta VALUES(?, ?)", (key, text)))


def artifact(kind, text, key=""):
    return sql(("INSERT OR REPLACE INTO artifact VALUES(?, ?, ?)", (kind, key, text)))


ANY, PAGE = ("show", "report"), ("report",)
add("json: metadata that is none", meta("notes", "{"), needs=ANY)
add("json: metadata nested deeply", meta("notes", DEEP), needs=ANY)
add("json: metadata of another kind", meta("notes", "5"), needs=ANY)
add("json: metadata with a long integer", meta("seed", "9" * 5000), needs=ANY)
add("json: half a surrogate pair", meta("notes", '["\\ud800"]'), needs=ANY)
add("json: an empty text", meta("source", ""), needs=ANY)
add("json: breaks that are a list", meta("monitor.breaks", "[1]"), needs=ANY)
add("json: breaks at no step", meta("monitor.breaks", '{"": {"x": "y"}}'), needs=ANY)
add("json: abandoned without digests", meta("monitor.abandoned", '{"": [{"step": 1}]}'), needs=ANY)
add("json: sources that are numbers", meta("sources", "[1, 2]"), needs=("scan",))
add("json: a shape that is none", sql("UPDATE tensor SET shape = 'wide' WHERE id = 1"), needs=ANY)
add("json: a shape of objects", sql("UPDATE tensor SET shape = '[{}]' WHERE id = 1"), needs=ANY)
add("json: a shape nested deeply", sql(("UPDATE tensor SET shape = ? WHERE id = 1", (DEEP,))), needs=ANY)
add("json: steps of a finding", sql("UPDATE finding SET steps = '{}'"), needs=ANY)
add("json: numbers of a finding", sql("UPDATE finding SET numbers = '[]'"), needs=ANY)
add("json: what a head attends to", sql("UPDATE head SET attends = '[1]'"), needs=PAGE)
add("json: alarms without a message", artifact("alarm", '[{"step": 1}]'), needs=PAGE)
add("json: alarms that are numbers", artifact("alarm", "[1]"), needs=("report", "watch"))
add(
    "json: an alarm at step 10^400",
    artifact("alarm", json.dumps([{"step": 10**400, "kind": "", "where": "", "message": ""}])),
    needs=PAGE,
)
add(
    "json: an attention map of text",
    artifact("attention", '{"tokens": ["a"], "soft": "x"}', "1100/h.0.attn/3"),
    needs=PAGE,
)
add(
    "json: an attention map of ragged rows",
    artifact(
        "attention", '{"tokens": ["a"], "soft": [[1], [1, 2]], "saturated": [[1], [2]]}', "1100/h.0.attn/3"
    ),
    needs=PAGE,
)
add("json: a curve without scales", artifact("scaling-curve", '{"cosine": [1]}', "output"), needs=PAGE)
add("json: a note of no step", artifact("saturation-settings", "{}", "x"), needs=("scan",))

# -- bytes -------------------------------------------------------------------------------------
add("bytes: half a file", edit(lambda data: data[: len(data) // 2]))
add("bytes: all but the first page zero", edit(lambda data: data[:4096] + bytes(len(data) - 4096)))
add("bytes: a page of ones", put(3 * 4096, b"\xff" * 4096))
add("bytes: the header alone", edit(lambda data: data[:100]), "")
add("bytes: sixteen bytes", edit(lambda data: data[:16]), "")
add("bytes: a page size of 1", put(16, b"\x00\x03"), "not an SQLite database")
add("bytes: a free list that is a loop", put(32, (3).to_bytes(4, "big") + (9).to_bytes(4, "big")))
add("bytes: text in UTF-16", put(56, (2).to_bytes(4, "big")), "")
add("bytes: a format of the future", put(18, b"\x09\x09"), "")
add("bytes: a page that is its own child", put(4096, b"\x05\x00\x00\x00\x00\x10\x00\x00\x00\x00\x00\x02"))


def beside(ending, content):
    return lambda path: path.with_name(path.name + ending).write_bytes(content)


_MASTER = b"/etc/hostname-x" + (15).to_bytes(4, "big") + sum(b"/etc/hostname-x").to_bytes(4, "big")
add(
    "beside: a journal that names another file",
    beside("-journal", b"\0" * 512 + _MASTER + bytes.fromhex("d9d505f920a163d7")),
    "names another database",
)
add("beside: a write-ahead log", beside("-wal", b"\x37\x7f\x06\x82" + bytes(60)), "of another program")

# -- sound, and shown as it is -------------------------------------------------------------------
ESCAPES = "\x1b[2J\x07<script>alert(1)</script>"
add("names: escapes in a tensor", sql(("UPDATE tensor SET name = ? WHERE id = 1", (ESCAPES,))), sound=True)
add("names: escapes in metadata", meta("source", json.dumps(ESCAPES)), sound=True)
add("names: escapes in notes", meta("notes", json.dumps([ESCAPES])), sound=True)
add(
    "names: escapes in a finding",
    sql(("UPDATE finding SET evidence = ?, confidence = 0.9", (ESCAPES,))),
    sound=True,
)
add(
    "names: escapes in a stage",
    sql(("UPDATE weight SET stage = ?", (ESCAPES,)), ("UPDATE checkpoint SET stage = ?", (ESCAPES,))),
    sound=True,
)
add(
    "names: escapes in an alarm",
    artifact("alarm", json.dumps([{"step": 5, "kind": ESCAPES, "where": ESCAPES, "message": ESCAPES}])),
    sound=True,
)
add(
    "names: escapes in tokens",
    artifact(
        "attention",
        json.dumps(
            {"tokens": [ESCAPES] * 2, "soft": [[1.0, 0.0], [0.5, 0.5]], "saturated": [[1.0, 0.0], [0.0, 1.0]]}
        ),
        "1100/h.0.attn/3",
    ),
    sound=True,
)
add("values: infinite sums", sql("UPDATE weight SET sumsq = 9e999 WHERE step = 500"), sound=True)
add("values: sums of 1e140", sql("UPDATE weight SET sumsq = 1e140, dot = -1e140"), sound=True)
add(
    "values: every sum zero",
    sql("UPDATE weight SET sumsq = 0, dot = 0, sumsq_delta = 0, dot_init = 0"),
    sound=True,
)
add("values: no sum at all", sql("UPDATE weight SET sumsq = NULL"), sound=True)
add("values: no rows", sql("DELETE FROM weight"), sound=True)
add(
    "values: nothing",
    sql("DELETE FROM weight", "DELETE FROM tensor", "DELETE FROM checkpoint", "DELETE FROM measure"),
    sound=True,
)
