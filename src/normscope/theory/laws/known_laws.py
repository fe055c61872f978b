"""The growth laws that are known here: the built-in ones, and those of installed plugins."""

from __future__ import annotations

import numpy as np

from normscope.errors import PluginError
from normscope.plugins import Plugin, plugins
from normscope.theory.laws.laws import LAWS, Law


def laws() -> dict[str, Law]:
    """Every growth law by name: the built-in ones, then those that installed packages add.

    >>> from normscope.theory.laws.known_laws import laws
    >>> laws()["sqrt"].formula
    'a·√t + b'
    """
    known = dict(LAWS)
    for plugin in plugins("laws"):
        law = _checked(plugin)
        if law.name in known:
            raise PluginError(
                f"the package {plugin.package} adds a growth law called {law.name!r}, which exists already; "
                "uninstall that package or ask its author for another name"
            )
        known[law.name] = law
    return known


def _checked(plugin: Plugin) -> Law:
    law = plugin.value
    problem = f"it is of type {type(law).__name__}" if not isinstance(law, Law) else _problem(law)
    if problem:
        raise PluginError(
            f"the growth law {plugin.name!r} of the package {plugin.package} cannot be used: {problem}; "
            "expected a Law (see docs/extending.md); repair or uninstall that package"
        )
    return law  # type: ignore[no-any-return]


def _problem(law: Law) -> str:
    """What would make every fit of this law fail; "" for a valid law."""
    steps = np.arange(8.0)
    if law.slope is not None and not (law.guesses and law.bounds):
        return "a law with a shape needs guesses and bounds"
    try:
        shape = float(law.guesses(steps)[0]) if law.guesses else 0.0
        found = [np.shape(basis(steps, shape)) for basis in (law.basis, law.slope) if basis]
    except Exception as error:
        return f"its basis raises {type(error).__name__}: {error}"
    expected = (law.terms, len(steps))
    wrong = [form for form in found if form != expected]
    return f"its basis or slope has shape {wrong[0]}, not {expected} as its parameters say" if wrong else ""
