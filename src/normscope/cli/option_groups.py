"""How options are declared, and how several commands take a group of options together.

    def window(since: Since = 0, until: Until = None) -> None:
        ...

    @gathers(steps=window)
    def show(run: RunArgument, steps: dict[str, Any], json: JsonFlag = False) -> None:
        ...

The command line of `show` then has --since and --until, and `steps` is {"since": …, "until": …}. A group
may also be a table of options that all default to None: {"lr": (float, "X", "Peak learning rate.")}.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from normscope.errors import UsageError

Command = Callable[..., None]
OptionTable = Mapping[str, tuple[Any, ...]]
"""Name → type, metavar, help text, and choices for the shell, if there are any."""
OTHER_SPELLINGS = {"out": "output"}
"""Option names of earlier versions that still work, without their dashes."""


def spelling(name: str) -> str:
    """Return the current name of an option."""
    return OTHER_SPELLINGS.get(name, name)


def argument(metavar: str, text: str) -> Any:
    """Declare an argument: its name in the usage line, and its help text."""
    return typer.Argument(metavar=metavar, help=text, show_default=False)


def option(names: str, metavar: str, text: str, *choices: str, **more: Any) -> Any:
    """Declare an option that takes a value; a shell offers the `choices` when someone presses tab."""
    if choices:
        more["autocompletion"] = lambda: list(choices)
    return typer.Option(*names.split(), metavar=metavar, help=text, **more)


def gathers(**groups: Command | OptionTable) -> Callable[[Command], Command]:
    """Replace each named parameter of a command by the parameters of a group; pass them as one dict."""

    def decorate(command: Command) -> Command:
        members = {name: _members(group) for name, group in groups.items()}

        @functools.wraps(command)
        def call(**given: Any) -> None:
            for name, parameters in members.items():
                given[name] = {member: given.pop(member) for member in parameters}
            command(**given)

        parameters: list[inspect.Parameter] = []
        for name, parameter in _parameters(command).items():
            parameters += members[name].values() if name in members else [parameter]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return call

    return decorate


def _members(group: Command | OptionTable) -> Mapping[str, inspect.Parameter]:
    return (
        _parameters(group) if callable(group) else {name: _listed(name, *row) for name, row in group.items()}
    )


def _listed(name: str, kind: Any, *words: str) -> inspect.Parameter:
    declared = option(f"--{name.strip('_').replace('_', '-')}", *words)
    annotation = Annotated[kind | None, declared]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _parameters(function: Command) -> Mapping[str, inspect.Parameter]:
    found = inspect.signature(function, eval_str=True).parameters
    return {name: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, parameter in found.items()}


def step_numbers(text: str | None) -> list[int] | None:
    """Parse the value of --steps: integers separated by commas."""
    if text is None:
        return None
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(
            f"--steps takes integers separated by commas, such as 0,1000,2000; got {text!r}"
        ) from None


def refuse_unused(reason: str, **options: object) -> None:
    """Raise UsageError if an option was given although it has no effect, and say why."""
    for name, value in options.items():
        if value:
            raise UsageError(f"--{name.replace('_', '-')} has no effect {reason}; leave it out")
