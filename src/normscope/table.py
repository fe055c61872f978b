"""A small column table: how every result reaches pandas, polars, JSON and notebooks."""

from __future__ import annotations

import abc
import html
import math
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from normscope.errors import UsageError
from normscope.option_checks import check_kind
from normscope.plugins import require
from normscope.words import printable

if TYPE_CHECKING:
    import pandas
    import polars

Value = str | int | float | bool | None

SHOWN_ROWS = 100  # in a notebook: half from the beginning, half from the end

_brief = reprlib.Repr()  # long results are abbreviated, so that a prompt shows one line, not pages
_brief.maxtuple, _brief.maxlist, _brief.maxdict, _brief.maxother, _brief.maxstring = 3, 3, 3, 60, 120


@dataclass(frozen=True)
class Table:
    """Named `columns` of equal length, in plain Python values.

    >>> table = ns.Table({"step": [0, 10], "norm": [1.5, float("nan")]})
    >>> len(table), list(table)
    (2, [{'step': 0, 'norm': 1.5}, {'step': 10, 'norm': None}])
    """

    columns: Mapping[str, Sequence[Value]]

    def __post_init__(self) -> None:
        check_kind("columns", self.columns, Mapping, "a dict of columns")
        lengths = {name: len(values) for name, values in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise UsageError(f"the columns of a table must have one length; got {lengths}")

    def __hash__(self) -> int:
        return hash((tuple(self.columns), len(self)))

    def __repr__(self) -> str:
        return f"Table({len(self)} rows: {', '.join(self.columns)})"

    @classmethod
    def from_rows(cls, names: Sequence[str], rows: Iterable[Sequence[Value]]) -> Table:
        """Turn rows into columns; no rows give empty columns."""
        kept = list(rows)
        return cls({name: [row[i] for row in kept] for i, name in enumerate(names)})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __iter__(self) -> Iterator[dict[str, Value]]:
        """Iterate over rows as dicts; NaN and infinities become None, which JSON can represent."""
        names = list(self.columns)
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(names, map(_json_value, values), strict=True))

    def __getitem__(self, name: str) -> Sequence[Value]:
        if name not in self.columns:
            raise KeyError(f"the table has no column {name!r}; it has {', '.join(self.columns)}")
        return self.columns[name]

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a pandas DataFrame."""
        return require("pandas", "pandas", "to_pandas()").DataFrame(self._lists())

    def to_polars(self) -> polars.DataFrame:
        """The table as a polars DataFrame."""
        frame: polars.DataFrame = require("polars", "polars", "to_polars()").DataFrame(self._lists())
        return frame

    def _lists(self) -> dict[str, list[Value]]:
        return {name: list(values) for name, values in self.columns.items()}

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(printable(name))}</th>" for name in self.columns)
        hidden = len(self) - SHOWN_ROWS
        rows = list(self)
        if hidden > 0:
            rows = rows[: SHOWN_ROWS // 2] + rows[-SHOWN_ROWS // 2 :]
        cells = ["".join(f"<td>{html.escape(_short(v))}</td>" for v in row.values()) for row in rows]
        if hidden > 0:
            cells.insert(SHOWN_ROWS // 2, f'<td colspan="{len(self.columns)}">… {hidden:,} more rows …</td>')
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Tabular(abc.ABC):
    """A result that has a table, so that pandas, polars and notebooks can show it.

    >>> fit = ns.fit_growth("t5-base")
    >>> isinstance(fit, ns.Tabular), fit.to_pandas().shape[0] == len(fit.table)
    (True, True)
    """

    @property
    @abc.abstractmethod
    def table(self) -> Table:
        """The result as a table."""

    @property
    def messages(self) -> Sequence[str]:
        """Sentences that a notebook shows above the table."""
        return ()

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a pandas DataFrame."""
        return self.table.to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """The table as a polars DataFrame."""
        return self.table.to_polars()

    def __repr__(self) -> str:
        shown = [f"{field.name}={_brief.repr(getattr(self, field.name))}" for field in _shown_fields(self)]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _repr_html_(self) -> str:
        return (
            "".join(f"<p>{html.escape(printable(line))}</p>" for line in self.messages)
            + self.table._repr_html_()
        )


def _shown_fields(result: Any) -> list[Field[Any]]:
    return [field for field in fields(result) if field.repr] if is_dataclass(result) else []


def _json_value(value: Any) -> Value:
    if hasattr(value, "item"):  # a numpy scalar
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value  # type: ignore[no-any-return]


def _short(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else printable(str(value))
