"""One call on every node of a cluster, before the work begins: does it have what the work needs?

Engines whose nodes cannot be listed, and nodes that join later, are checked by the first call of each
of their processes (`prepared_call`).
"""

from __future__ import annotations

from concurrent.futures import Future, wait
from typing import Any

from normscope._version import __version__
from normscope.engines.engine import SupportsSubmit
from normscope.engines.node_needs import NodeNeeds
from normscope.engines.nodes import HasNodes, Node
from normscope.engines.prepared_call import PreparedCall
from normscope.errors import NodeProblem

PATIENCE = 120.0
"""Seconds that a node has to answer: it may have to start Python from a network disk."""


def check_nodes(engine: SupportsSubmit, needs: NodeNeeds) -> int:
    """Return how many nodes were checked; NodeProblem names the first that lacks something."""
    if not isinstance(engine, HasNodes):
        return 0
    call = PreparedCall(NodeNeeds.problem)
    waiting = {engine.submit_to(node, call, needs): node for node in engine.nodes()}
    wait(waiting, PATIENCE)
    problems = [(node, _problem(future)) for future, node in waiting.items()]
    _refuse([(node, problem) for node, problem in problems if problem])
    return len(waiting)


def _problem(future: Future[Any]) -> str | None:
    if not future.done():
        future.cancel()
        return f"did not answer within {PATIENCE:.0f} seconds: is it overloaded, or its disk not reachable?"
    error = future.exception()
    return future.result() if error is None else explain(error)


def explain(error: BaseException) -> str:
    """What an exception of the engine says about a node."""
    text = str(error)
    if "No module named 'normscope'" in text:
        return f"has no normscope: install it there (pip install normscope=={__version__})"
    if "normscope" in text and ("No module named" in text or "Can't get attribute" in text):
        return f"has another version of normscope: install normscope=={__version__} there"
    return f"could not be checked: {type(error).__name__}: {text.strip().rpartition(chr(10))[2]}"


def _refuse(problems: list[tuple[Node, str]]) -> None:
    if problems:
        node, problem = problems[0]
        more = f" ({len(problems) - 1} more nodes have problems)" if len(problems) > 1 else ""
        raise NodeProblem(f"node {node.name} {problem}{more}. Nothing was started.")
