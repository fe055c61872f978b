"""The `normscope` command: one function per subcommand, each parse → one library call → print."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from normscope._version import __version__
from normscope.cli.option_groups import spelling
from normscope.errors import NormscopeError, shortened
from normscope.words import printable

# In the order of the help page. Each module has a function of the command's name, and EXAMPLES of its use.
COMMANDS: dict[str, str] = {
    "demo": "normscope.cli.demo",
    "scan": "normscope.cli.scan",
    "show": "normscope.cli.show",
    "advise": "normscope.cli.advise",
    "fit": "normscope.cli.fit",
    "forecast": "normscope.cli.forecast",
    "compare": "normscope.cli.compare",
    "report": "normscope.cli.report",
    "export": "normscope.cli.export",
    "audit": "normscope.cli.audit",
    "watch": "normscope.cli.watch",
    "serve": "normscope.cli.serve",
    "spectrum": "normscope.cli.spectrum",
    "saturate": "normscope.cli.saturate",
    "homogeneity": "normscope.cli.homogeneity",
    "train": "normscope.cli.train",
    "sweep": "normscope.cli.sweep",
    "replicate": "normscope.cli.replicate",
    "paper": "normscope.cli.paper",
    "plugins": "normscope.cli.plugins",
}

INTERRUPTED = 130  # the exit code of a shell's command that Ctrl-C ended
# What was finished before Ctrl-C is kept, and where.
CONTINUED = {
    "scan": "what was measured is in the run file",
    "report": "what was measured is in the run file",
    "audit": "what was measured is in the run file of --run, if there is one",
    "spectrum": "what was measured is in the run file",
    "saturate": "the steps that were measured are in the run file, if there is one",
    "train": "the training is saved up to its last checkpoint",
    "sweep": "finished cells are in the folder of the sweep",
    "replicate": "finished experiments are in the folder of the results",
}
FROM_THE_START = "interrupted; the same command starts from the beginning"


def build() -> typer.Typer:
    """Return the application with every command of the table above."""
    app = typer.Typer(
        name="normscope",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain pages: quick to show, stable to document
        context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": spelling},
    )
    app.callback()(_common)
    for name, place in COMMANDS.items():
        module = import_module(place)
        command = getattr(module, name)
        summary, *_ = (command.__doc__ or name).splitlines()  # python -OO has no docstrings
        named = _saying_how_to_continue(name, command)
        app.command(name, short_help=summary, epilog=_examples(module.EXAMPLES))(named)
    return app


class _Interrupted(Exception):
    """Ctrl-C, with the sentence that says how to continue: typer would end the process without a word."""


def _saying_how_to_continue(name: str, command: Callable[..., None]) -> Callable[..., None]:
    kept = CONTINUED.get(name)
    sentence = f"interrupted: {kept}; the same command continues from there" if kept else FROM_THE_START

    @functools.wraps(command)
    def call(**given: Any) -> None:
        try:
            command(**given)
        except KeyboardInterrupt as pressed:
            raise _Interrupted(sentence) from pressed

    return call


def _examples(commands: Sequence[str]) -> str:
    lines = ("Examples:", *(f"  {command}" for command in commands))
    return "\b\n" + "\n".join(lines)  # \b: click keeps the lines as they are


def _show_version(wanted: bool) -> None:
    if wanted:
        from normscope.weights.sums.statistics import backend

        print(f"normscope {__version__}, sums by {backend()}")
        raise typer.Exit


def _common(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Print the version and what computes sums.",
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")] = False,
) -> None:
    """See how the parameters of a transformer grow while it trains, and what that does to the network."""


def main() -> None:
    """Run the command line. An error is one sentence and an exit code; --debug shows the traceback."""
    if sys.stdout is None:  # closed by the caller: what would be printed is lost, as the caller wishes
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
    try:
        build()(prog_name="normscope")
    except NormscopeError as error:
        _give_up(error, str(error), error.exit_code)
    except _Interrupted as pressed:
        _give_up(pressed, str(pressed), INTERRUPTED)
    except KeyboardInterrupt as pressed:  # before a command began, or after it ended
        _give_up(pressed, FROM_THE_START, INTERRUPTED)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:  # typer makes this of a KeyboardInterrupt
            _give_up(ended, FROM_THE_START, INTERRUPTED)
        raise
    except BrokenPipeError:
        sys.stderr.close()  # the reader is gone: nobody would see a message
        raise SystemExit(1) from None
    except OSError as error:
        _give_up(error, f"{error.filename or 'input or output'}: {error.strerror or error}", 1)
    except Exception as error:
        _give_up(error, f"unexpected {type(error).__name__}: {error} (run with --debug and report it)", 1)


def _give_up(error: BaseException, sentence: str, code: int) -> None:
    if "--debug" in sys.argv:
        raise error
    # What a file contains may be in it: no control characters for the terminal, and no pages of text.
    print(shortened(f"normscope: {printable(sentence)}"), file=sys.stderr)
    raise SystemExit(code) from None
