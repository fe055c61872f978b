"""Python objects of the user's own, by name: `module:name`, or `path/to/file.py:name`.

A name is text, so it can be stored in a config and sent to another process. An object without such a name (a
lambda, a function inside a function, an instance) can be used in this process only.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from normscope.errors import ModelError, NormscopeError, UsageError

UNNAMED = "object: "
"""What the text of an object without a name begins with."""
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_importing: list[str] = []


class ObjectName(str):
    """The name of an object, with the object itself; a copy in another process is plain text."""

    value: Any

    def __new__(cls, name: str, value: Any) -> ObjectName:
        """Keep the object beside its name."""
        made = super().__new__(cls, name)
        made.value = value
        return made

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return str, (str(self),)


def is_program(text: str) -> bool:
    """Whether a text has the form `module:name` or `path/to/file.py:name`."""
    place, _, name = text.rpartition(":")
    return bool(_MODULE.fullmatch(name)) and (place.endswith(".py") or bool(_MODULE.fullmatch(place)))


def object_name(value: Any) -> str:
    """The name under which an object is stored; text is taken as it is, with the full path of a file.

    >>> object_name(print), object_name(lambda: 0)
    ('builtins:print', 'object: <lambda>')
    """
    if isinstance(value, ObjectName):
        return value
    if isinstance(value, str):
        place, _, name = value.rpartition(":")
        in_file = is_program(value) and place.endswith(".py")
        return f"{Path(place).expanduser().absolute()}:{name}" if in_file else value
    return ObjectName(_importable_name(value) or f"{UNNAMED}{_described(value)}", value)


def _importable_name(value: Any) -> str | None:
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    name = getattr(value, "__qualname__", "")
    if module is None or not _MODULE.fullmatch(name) or _attribute(module, name) is not value:
        return None
    if module.__name__ != "__main__" and not module.__name__.startswith(_FILE_MODULE):
        return f"{module.__name__}:{name}"
    file = getattr(module, "__file__", None)  # a notebook has none
    return f"{Path(file).absolute()}:{name}" if file and file.endswith(".py") else None


def _described(value: Any) -> str:
    return str(getattr(value, "__qualname__", None) or type(value).__qualname__)


def load_object(name: str) -> Any:
    """The object of a name; importing its module runs the user's code."""
    if isinstance(name, ObjectName):
        return name.value
    if name.startswith(UNNAMED):
        raise UsageError(
            f"{name!r} is an object of an earlier process: pass the same object again, or give it a name "
            "that can be imported, such as my_module:my_function"
        )
    place, _, attribute = name.rpartition(":")
    module = _file_module(Path(place), attribute) if place.endswith(".py") else _module(place, name)
    found = _attribute(module, attribute)
    if found is None:
        raise UsageError(f"{place} has no function {attribute}(): check the name after the colon in {name!r}")
    return found


def _attribute(module: ModuleType, name: str) -> Any:
    try:
        return attrgetter(name)(module)
    except AttributeError:
        return None


def check_program(path: Path, name: str) -> None:
    """Raise if there is no Python file that could have the function `name`."""
    if not path.is_file():
        raise UsageError(f"no file at {path}: expected a Python file with a function {name}()")


_FILE_MODULE = "normscope_build_"


def _file_module(path: Path, name: str) -> ModuleType:
    check_program(path, name)
    spec = importlib.util.spec_from_file_location(f"{_FILE_MODULE}{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickles in the file look up their module by name
    with _on_path(path.parent, first=True), _noted(str(path)):
        spec.loader.exec_module(module)
    return module


def _module(name: str, program: str) -> ModuleType:
    """Import a module as the caller could, and also from the folder where the command was started."""
    try:
        with _on_path(Path(), first=False), _noted(name):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module is there, and imports another one that is not
        raise UsageError(
            f"there is no module {name!r} to import for {program!r}: expected a module on Python's path, or "
            "a file, such as path/to/my_file.py:my_function"
        ) from None


@contextmanager
def _on_path(folder: Path, first: bool) -> Iterator[None]:
    """Let Python import from a folder: a file can import those beside it, as if it were run as a program."""
    entry = str(folder.resolve())
    sys.path.insert(0 if first else len(sys.path), entry)
    try:
        yield
    finally:
        sys.path.remove(entry)


@contextmanager
def _noted(program: str) -> Iterator[None]:
    _importing.append(program)
    try:
        yield
    finally:
        _importing.pop()


def refuse_while_importing(call: str) -> None:
    """Refuse a training that begins because a worker imports the script that started it."""
    if _importing:
        raise UsageError(
            f"{_importing[-1]} calls {call} while it is imported: put the call under "
            "'if __name__ == \"__main__\":', so that other processes can import its functions"
        )


@contextmanager
def failures_of(name: str, advice: str) -> Iterator[None]:
    """Say that an error is one of the user's program, and not of ours, and what to do to find it."""
    try:
        yield
    except NormscopeError:
        raise
    except Exception as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise ModelError(f"{name} failed: {type(error).__name__}: {reason}; {advice}") from error
