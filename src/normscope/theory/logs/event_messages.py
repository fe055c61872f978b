"""One TensorBoard event as a step and its scalars."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FieldMap = dict[int, list[int | bytes]]

# field numbers of Event, Summary.Value and TensorProto
_STEP, _SUMMARY, _SESSION = 2, 5, 7
_TAG, _SIMPLE, _TENSOR, _METADATA = 1, 2, 8, 9
_SESSION_START = 1
_STEP_KEY = 0x10
_STEP_AT = 9  # after the wall time: a key and eight bytes
_CONTENT, _SHAPE = 4, 2

# dtype of TensorProto → NumPy's, and the field and the type of its values
_TENSORS = {
    1: ("<f4", 5, "<f4"),
    2: ("<f8", 6, "<f8"),
    3: ("<i4", 7, "varint"),
    9: ("<i8", 10, "varint"),
    19: ("<f2", 13, "half"),
}
_SCALARS = b"scalars"


@dataclass(frozen=True)
class Event:
    """The step of an event and its scalars; `restarts` if a run continued from this step."""

    step: int
    scalars: tuple[tuple[str, float], ...] = ()
    restarts: bool = False


@dataclass(frozen=True)
class ValuePlace:
    """Where the value of a single scalar is, from the end of the step on, and how it is packed."""

    begin: int
    end: int
    code: str


def _packed(code: str, value: float) -> bytes:
    """The bytes of a value; none if they would not give the value back, or may stand for other things too."""
    try:
        packed = struct.pack(code, value)
    except OverflowError:
        return b""
    return packed if any(packed) and struct.unpack(code, packed)[0] == value else b""


class EventReader:
    """Reads events, and remembers where those with a single scalar (most of them) have its value."""

    def __init__(self) -> None:
        from normscope.checkpoints.formats.tensorflow import protobuf

        self._protobuf = protobuf
        self._layouts: dict[int, ValuePlace] = {}
        self._tags: dict[bytes, str] = {}
        self._code = ""  # how the last scalar was packed, if it was as four or eight bytes
        self._other_plugins: set[str] = set()

    def read(self, data: bytes) -> Event:
        """One event; ValueError or IndexError if it is not a protocol buffer."""
        step, after = self._early_step(data)
        layout = self._layouts.get(len(data) - after)
        if layout is not None:
            begin, end = after + layout.begin, after + layout.end
            tag = self._tags.get(data[after:begin] + data[end:])
            if tag is not None:
                return Event(step, ((tag, struct.unpack(layout.code, data[begin:end])[0]),))
        return self._parse(data, after)

    def _early_step(self, data: bytes) -> tuple[int, int]:
        """The step, if it follows the wall time as usual, and the position after it."""
        if len(data) <= _STEP_AT or data[_STEP_AT] != _STEP_KEY:
            return 0, _STEP_AT
        step, after = self._protobuf.read_varint(data, _STEP_AT + 1)
        return (step - (1 << 64) if step >> 63 else step), after

    def _parse(self, data: bytes, after: int) -> Event:
        fields = self._protobuf.read_message(data)
        step = self._protobuf.integer_field(fields, _STEP)
        if fields.get(_SESSION):
            session = self._message(fields, _SESSION)
            return Event(step, restarts=self._protobuf.integer_field(session, 1) == _SESSION_START)
        scalars = []
        for summary in self._protobuf.message_field(fields, _SUMMARY):
            for value in self._protobuf.message_field(self._protobuf.read_message(summary), 1):
                found = self._scalar(self._protobuf.read_message(value))
                if found is not None:
                    scalars.append(found)
        event = Event(step, tuple(scalars))
        self._remember(data, after, event, fields)
        return event

    def _remember(self, data: bytes, after: int, event: Event, fields: FieldMap) -> None:
        """Keep where the value is: equal bytes around it are the same tag, with the same lengths."""
        usual = set(fields) <= {1, _STEP, _SUMMARY} and self._is_early(data, event)
        if not usual or len(event.scalars) != 1 or not self._code:
            return
        (tag, value), rest = event.scalars[0], data[after:]
        packed = _packed(self._code, value)
        if packed and rest.count(packed) == 1:
            begin = rest.index(packed)
            layout = ValuePlace(begin, begin + len(packed), self._code)
            if self._layouts.setdefault(len(rest), layout) == layout:
                self._tags[rest[:begin] + rest[layout.end :]] = tag

    def _is_early(self, data: bytes, event: Event) -> bool:
        return self._early_step(data)[0] == event.step

    def _message(self, fields: FieldMap, number: int) -> FieldMap:
        found = self._protobuf.message_field(fields, number)
        return self._protobuf.read_message(found[-1]) if found else {}

    def _scalar(self, value: FieldMap) -> tuple[str, float] | None:
        names = self._protobuf.message_field(value, _TAG)
        tag = names[-1].decode("utf-8", "replace") if names else ""
        simple = value.get(_SIMPLE)
        if simple and isinstance(simple[-1], bytes):
            self._code = "<f"
            return tag, struct.unpack("<f", simple[-1])[0]
        plugin = self._protobuf.message_field(self._message(self._message(value, _METADATA), 1), 1)
        if plugin and plugin[-1] != _SCALARS:
            self._other_plugins.add(tag)
        if not value.get(_TENSOR) or tag in self._other_plugins:
            return None
        number = self._tensor_number(self._message(value, _TENSOR))
        return None if number is None else (tag, number)

    def _tensor_number(self, tensor: FieldMap) -> float | None:
        """The number of a tensor that is one; None for text, other types and larger tensors."""
        known = _TENSORS.get(self._protobuf.integer_field(tensor, 1))
        if known is None or self._message(tensor, _SHAPE).get(2):
            return None
        dtype, number, kind = known
        self._code = {"<f4": "<f", "<f8": "<d"}.get(dtype, "")
        content = self._protobuf.message_field(tensor, _CONTENT)
        stored = tensor.get(number, [])
        if content:
            found = np.frombuffer(content[-1], dtype=dtype)
        elif kind in ("varint", "half"):
            found = self._integers(stored, dtype, kind)
        else:
            found = np.frombuffer(b"".join(x for x in stored if isinstance(x, bytes)), dtype=kind)
        return float(found[0]) if len(found) == 1 else (None if len(found) else 0.0)  # zeros may be left out

    def _integers(self, stored: list[int | bytes], dtype: str, kind: str) -> NDArray[Any]:
        """Integers of a repeated field, packed or not; half-precision numbers are stored as integers."""
        found: list[int] = []
        for value in stored:
            position, packed = 0, value if isinstance(value, bytes) else b""
            found += [value] if isinstance(value, int) else []
            while position < len(packed):
                one, position = self._protobuf.read_varint(packed, position)
                found.append(one)
        if kind == "half":
            return np.array(found, dtype=np.uint16).view(dtype)
        return np.array([one - (1 << 64) if one >> 63 else one for one in found])
