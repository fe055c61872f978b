"""A small column table: what every result hands to pandas, polars, JSON and notebooks."""

from __future__ import annotations

import abc
import html
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from normscope.errors import MissingExtra

if TYPE_CHECKING:
    import pandas
    import polars

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Table:
    """Named columns of equal length, in plain Python values."""

    columns: Mapping[str, Sequence[Value]]

    @classmethod
    def from_rows(cls, names: Sequence[str], rows: Iterable[Sequence[Value]]) -> Table:
        """Turn rows into columns; no rows give empty columns."""
        kept = list(rows)
        return cls({name: [row[i] for row in kept] for i, name in enumerate(names)})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __iter__(self) -> Iterator[dict[str, Value]]:
        """Each row as a dict, with NaN and infinities as None: what JSON can hold."""
        names = list(self.columns)
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(names, map(_json_value, values), strict=True))

    def __getitem__(self, name: str) -> Sequence[Value]:
        return self.columns[name]

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a pandas DataFrame."""
        try:
            import pandas
        except ImportError:
            raise MissingExtra("pandas", "pandas", "to_pandas()") from None
        return pandas.DataFrame({name: list(values) for name, values in self.columns.items()})

    def to_polars(self) -> polars.DataFrame:
        """The table as a polars DataFrame."""
        try:
            import polars
        except ImportError:
            raise MissingExtra("polars", "polars", "to_polars()") from None
        return polars.DataFrame({name: list(values) for name, values in self.columns.items()})

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(_short(v))}</td>" for v in row.values()) + "</tr>"
            for row in self
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Tabular(abc.ABC):
    """A result with a table: what pandas, polars and notebooks ask of it."""

    @property
    @abc.abstractmethod
    def table(self) -> Table:
        """The result in rows."""

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

    def _repr_html_(self) -> str:
        return "".join(f"<p>{html.escape(line)}</p>" for line in self.messages) + self.table._repr_html_()


def _json_value(value: Any) -> Value:
    if hasattr(value, "item"):  # a numpy scalar
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value  # type: ignore[no-any-return]


def _short(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else str(value)
