"""How a name is read: number by number, each meaning in turn."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal

from normscope.checkpoints.limits import INT64
from normscope.checkpoints.series import name_words as words

_TAKEN, _SIZE, _TAIL = "\x00", "\x01", "\x02"
"""What replaces a number whose meaning is known; `_TAIL` are those that may follow the number of a file."""
_UNITS = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_DECIMAL = re.compile(r"(?<![0-9.])[0-9]+\.[0-9]+(?![0-9.]|[a-z])")
_INTEGER = re.compile(r"(?<![a-z0-9])([0-9]{1,18})(k?)(?![a-z0-9])")
_GLUED = re.compile(r"(?<![a-z0-9])([a-z]+)([0-9]{1,18})(k?)(?![a-z0-9])")
_NEGATIVE = re.compile(r"[_=.: ]-[0-9]")
_CLOCK = re.compile(r"^[-_ t](?:[01][0-9]|2[0-3])(?:[0-5][0-9])?(?![0-9a-z])")
_MONTH_AND_DAY = re.compile(r"(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])|2[0-9](?:0[1-9]|1[0-2])")


def parse_count(number: str, unit: str = "") -> int | None:
    """A number with a unit letter (k, m, b, t) or a power of ten as an integer; None if it is not one."""
    unit = unit.lower()
    factor = 10 ** int(unit[1:]) if unit.startswith("e") else _UNITS.get(unit, 1)
    value = Decimal(number) * factor
    return int(value) if value == value.to_integral_value() and value <= INT64 else None


class NameReader:
    """Takes the numbers of a name one meaning after the other; what is taken is blanked out."""

    def __init__(self, name: str) -> None:
        self.name = self.left = name
        self.marked: list[tuple[int, int, str]] = []
        self.step: int | None = None
        self.epoch: int | None = None
        self.tokens: int | None = None
        self.unit = self.stage = self.rank = self.day = ""
        self.ranks: int | None = None
        self.doubtful = self.unclear = False

    def read(self) -> None:
        """Find out what the name says; the answers are in the attributes."""
        self._take_what_is_not_training()
        self._take_counts()
        self._skip(words.SIZES, mark=_SIZE)
        self._skip(words.SCIENTIFIC)
        while found := self._find(words.VERSIONS):
            self.doubtful |= bool(words.VERSION_PART.match(self.left[found.end() :]))
            self._blank(found)
        if self.unclear:  # two numbers for one thing, as in step6_lora_20steps
            self.doubtful = True
            self.step = self.epoch = None
            self.unit = ""
        elif self.step is None and self.epoch is None:
            self._take_file_number()

    @property
    def kind(self) -> str:
        """Which checkpoint of a run it is."""
        word = next((kind for kind, pattern in words.KINDS if pattern.search(self.name)), "")
        names_model = word == "state" and "model" in re.findall("[a-z]+", self.name)
        if word and (not names_model or words.NEVER_A_MODEL.search(self.name)):
            return word
        if self.step is not None or self.epoch is not None:
            return "numbered"
        return "part" if self.rank else "several" if self.doubtful else "plain"

    # -- one meaning after the other ---------------------------------------------------

    def _take_what_is_not_training(self) -> None:
        self._take_dates(words.DATES)
        for pattern in words.RANKS:
            while found := pattern.search(self.left):
                self._take_rank(found)
        self._skip(words.HASHES, varying=True)
        self._skip(words.METRICS, varying=True, mark=_TAIL)
        self._skip(words.QUANTISATION, mark=_TAIL)
        self._skip(words.SETTINGS)

    def _take_dates(self, patterns: Iterable[re.Pattern[str]]) -> None:
        while found := self._find(patterns):
            self.doubtful |= bool(_CLOCK.match(self.left[found.end() :]))
            self.day = self.day or re.sub("[^0-9]", "", found[0])[:8]
            self._blank(found, varying=True)

    def _take_rank(self, found: re.Match[str]) -> None:
        groups = found.groupdict()
        self.rank = "-".join(filter(None, (self.rank, groups["rank"])))
        self.ranks = int(groups["count"]) if groups.get("count") else self.ranks
        self.marked.append((*found.span(), "@"))
        self._blank(found, mark=_TAIL)

    def _take_counts(self) -> None:
        if found := words.STAGE.search(self.left):
            self.stage = found.group(1)
            self.marked.append((*found.span(1), "~"))
            self._blank(found)
        if found := self._find(words.TOKENS):
            self.tokens = parse_count(*_number(found))
            self._blank(found, varying=True)
        both = words.EPOCH_AND_STEP.search(self.left)
        if both:
            self.epoch, self.step, self.unit = int(both.group(1)), parse_count(*_number(both, 2)), "step"
            self._blank(both, varying=True)
        self._take_worded()
        updates = words.EPOCH_THEN_UPDATES.search(self.left)
        if updates and self.step is None and int(updates.group(2)) >= int(updates.group(1)):
            self.epoch, self.step, self.unit = int(updates.group(1)), int(updates.group(2)), "step"
            self._blank(updates, varying=True)
        self._take_dates(words.BARE_DATES)
        if self.step is None and self.epoch is None and (found := words.FILE_NUMBER.search(self.left)):
            self.step, self.unit = parse_count(*_number(found)), "step"
            self._blank_number(found)

    def _take_worded(self) -> None:
        """Counts beside a word: before it if the name ends with such a word, else after it first."""
        orders = [
            (words.STEP_FIRST, words.EPOCH_FIRST, words.OTHER_FIRST),
            (words.STEP_LAST, words.EPOCH_LAST, words.OTHER_LAST),
        ]
        self.unclear = any(self._is_between(first, last) for first, last in zip(*orders, strict=True))
        if any(found.end() == len(self.left) for last in orders[1] for found in last.finditer(self.left)):
            orders.reverse()
        for step, epoch, other in orders:
            for pattern, unit in ((step, "step"), (epoch, "epoch"), (other, "")):
                while found := self._worded(pattern):
                    self._take_count(found, unit or next(w for w in words.COUNTER_WORDS if w in found[0]))
        while found := words.BATCH.search(self.left):
            if self.epoch is None:
                self._take_count(found, "step")
            else:
                self._blank(found, varying=True)
        if self.epoch is None and (found := words.EPOCH_LETTER.search(self.left)):
            self._take_count(found, "epoch")

    def _is_between(self, first: re.Pattern[str], last: re.Pattern[str]) -> bool:
        """Whether a word belongs to the number before it as well as to the one behind: 4step_1217."""
        spans = [found.span() for found in last.finditer(self.left)]
        return any(
            self.left[found.start() - 1].isdigit()
            and "=" not in found[0]
            and parse_count(*_number(found)) is not None
            for found in first.finditer(self.left)
            if any(start < found.start() < stop for start, stop in spans)
        )

    def _worded(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The next count beside its word; in `12epoch_0.93` the fraction is not the epoch."""
        for found in pattern.finditer(self.left):
            glued = found.start() > 0 and self.left[found.start() - 1].isdigit()
            if not glued or parse_count(*_number(found)) is not None:
                return found
        return None

    def _take_count(self, found: re.Match[str], unit: str) -> None:
        value = parse_count(*_number(found))
        open_end = unit == "step" and words.THOUSANDS.match(self.left[found.end() :])
        known = self.epoch if unit == "epoch" else self.step
        if value is None or open_end or (known is not None and known != value):
            self.doubtful = True
            self.unclear |= known is not None
        elif unit == "epoch":
            self.epoch = value
            self.unit = self.unit or unit
        else:
            self.step, self.unit = value, unit
            if self.tokens is None and (tokens := words.TOKENS_AFTER_STEP.match(self.left[found.end() :])):
                self.tokens = parse_count(*tokens.groups())
                self._blank_span(found.end() + tokens.start(1), found.end() + tokens.end(), varying=True)
        self._blank_number(found)

    def _take_file_number(self) -> None:
        """The number of a file without a word for it, if there is one and it is at an end of the name."""
        decimals = list(_DECIMAL.finditer(self.left))
        for found in decimals:
            self._blank(found, varying=True, mark=_TAIL)
        numbers = [(m.start(1), m.end(), m.group(1), m.group(2)) for m in _INTEGER.finditer(self.left)]
        numbers += [
            (m.start(2), m.end(), m.group(2), m.group(3))
            for m in _GLUED.finditer(self.left)
            if m.group(1) in words.COUNTED_FILE
        ]
        for start, stop, *_ in numbers:
            self._blank_span(start, stop, varying=True)
        negative = bool(_NEGATIVE.search(self.name))
        if len(numbers) != 1 or negative or self.doubtful or not self._is_at_an_end(*numbers[0][:2]):
            self.doubtful |= bool(numbers)
            return
        (start, stop, digits, unit) = numbers[0]
        if decimals and decimals[0].start() >= stop and not unit:
            self.epoch, self.unit = int(digits), "epoch"
        elif self._is_release(digits) or self._is_context(digits, unit):
            self.doubtful = True
        else:
            self.step, self.unit = parse_count(digits, unit), "number"

    def _is_at_an_end(self, start: int, stop: int) -> bool:
        before, after = self.left[:start], self.left[stop:]
        if not set(after) - set(f"-_=. {_TAIL}"):
            return True
        return not re.search("[a-z]", before) and words.COUNTED_FILE.issuperset(re.findall("[a-z]+", after))

    def _is_release(self, digits: str) -> bool:
        """OLMo-1B-0724 names a month: four digits behind a model's size are a date as likely as a count."""
        return len(digits) == 4 and _SIZE in self.left and bool(_MONTH_AND_DAY.fullmatch(digits))

    def _is_context(self, digits: str, unit: str) -> bool:
        """Yarn-Mistral-7b-128k names a context: a power of two behind a model's size may be a length."""
        return unit == "k" and _SIZE in self.left and int(digits) >= 4 and int(digits).bit_count() == 1

    # -- blanking ------------------------------------------------------------------------

    def _find(self, patterns: Iterable[re.Pattern[str]]) -> re.Match[str] | None:
        return next((found for pattern in patterns if (found := pattern.search(self.left))), None)

    def _skip(self, patterns: Iterable[re.Pattern[str]], varying: bool = False, mark: str = _TAKEN) -> None:
        while found := self._find(patterns):
            self._blank(found, varying, mark)

    def _blank(self, found: re.Match[str], varying: bool = False, mark: str = _TAKEN) -> None:
        """Blank out the match, or only its group "number" if it has one."""
        self._blank_span(*found.span("number" if "number" in found.re.groupindex else 0), varying, mark)

    def _blank_number(self, found: re.Match[str]) -> None:
        """Blank out the whole match; only its number differs, and `step` has several spellings."""
        self._blank(found)
        if "step" in found[0]:
            self.marked.append((*found.span(), "step#"))
            return
        self.marked.append(
            (found.start(1), max(found.end(1), found.end(2) if found.re.groups > 1 else 0), "#")
        )

    def _blank_span(self, start: int, stop: int, varying: bool = False, mark: str = _TAKEN) -> None:
        self.left = self.left[:start] + mark * (stop - start) + self.left[stop:]
        if varying:
            self.marked.append((start, stop, "#"))

    @property
    def skeleton(self) -> str:
        """The name with marks for the numbers that differ from one checkpoint of a run to the next."""
        text = self.name
        for start, stop, mark in sorted(self.marked, reverse=True):
            text = text[:start] + mark + text[stop:]
        return re.sub(r"[-_=. ]+", "_", text)


def _number(found: re.Match[str], group: int = 1) -> tuple[str, str]:
    return found.group(group), (found.group(group + 1) or "") if found.re.groups > group else ""
