"""Small faults in Python modules: one operator, number, argument, condition or statement changed."""

import ast
import hashlib
import warnings
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from tests.linked_package import PACKAGE

COMPARISONS = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
STATEMENTS = (ast.Expr, ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete)


@dataclass(frozen=True)
class Mutant:
    """A fault: where it is, what it changes, and the whole text of the changed file.

    `function` is the line on which the enclosing function begins, as its code object has it, or 0.
    """

    path: str
    line: int
    function: int
    kind: str
    before: str
    after: str
    text: str

    @property
    def key(self) -> str:
        """The same for the same fault in the same text."""
        return hashlib.sha256(f"{self.path}\0{self.kind}\0{self.text}".encode()).hexdigest()[:16]


def count_python(path: Path) -> int:
    """How many faults the operators below can make in a module."""
    return sum(len(list(_changes(node))) for node, _ in _sites(ast.parse(path.read_text())))


def python_mutant(path: Path, number: int) -> Mutant:
    """One of these faults."""
    tree = ast.parse(path.read_text())
    every = [(node, function, change) for node, function in _sites(tree) for change in _changes(node)]
    node, function, (kind, change) = every[number]
    before = _shown(node)
    after = change(deepcopy(node))
    _replace(tree, node, after)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = ast.unparse(ast.fix_missing_locations(tree))
    name = path.relative_to(PACKAGE).as_posix()
    return Mutant(name, node.lineno, function, kind, before, _shown(after), text + "\n")


def _shown(node: ast.AST) -> str:
    return ast.unparse(ast.fix_missing_locations(node)).splitlines()[0][:120]


def _sites(tree: ast.Module) -> list[tuple[ast.AST, int]]:
    """The nodes that faults are planted in, with the line of their function; no types, no asserts."""
    found: list[tuple[ast.AST, int]] = []
    _collect(tree, 0, found)
    return found


def _collect(node: ast.AST, function: int, found: list[tuple[ast.AST, int]]) -> None:
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "keywords_only", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or _left_alone(child):
                continue
            within = function
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                within = min([child.lineno, *(each.lineno for each in child.decorator_list)])
            found.append((child, within))
            _collect(child, within, found)


def _left_alone(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert | ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True  # a docstring
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    if isinstance(node, ast.Assign | ast.AnnAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        is_type = isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation)
        return is_type or (isinstance(target, ast.Name) and target.id == "__all__")
    return False


def _changes(node):
    """What can be done to a node: pairs of a kind, and a function from a copy of it to its replacement."""
    if isinstance(node, ast.Compare):
        for other in COMPARISONS[type(node.ops[0])]:
            yield "comparison", lambda n, op=other: ast.Compare(n.left, [op(), *n.ops[1:]], n.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not _is_text(node):
        other = ARITHMETIC[type(node.op)]
        yield "arithmetic", lambda n: ast.BinOp(n.left, other(), n.right)
    elif isinstance(node, ast.AugAssign):
        if type(node.op) in ARITHMETIC:
            other = ARITHMETIC[type(node.op)]
            yield "arithmetic", lambda n: ast.AugAssign(n.target, other(), n.value)
    elif isinstance(node, ast.BoolOp):
        other = ast.Or if isinstance(node.op, ast.And) else ast.And
        yield "boolean", lambda n: ast.BoolOp(other(), n.values)
        yield "boolean", lambda n: n.values[0] if len(n.values) == 2 else ast.BoolOp(n.op, n.values[:-1])
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        yield "unary", lambda n: n.operand
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.Return) and node.value is not None:
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield "return", lambda n: ast.Return(ast.Constant(None))
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        if not isinstance(node.test, ast.Compare | ast.UnaryOp):  # these are changed by themselves
            yield "condition", _negated
    elif isinstance(node, ast.Call) and _has_two_arguments(node):
        yield "arguments", lambda n: ast.Call(n.func, [n.args[1], n.args[0], *n.args[2:]], n.keywords)
    if isinstance(node, STATEMENTS):
        yield "statement", lambda n: ast.Pass()


def _has_two_arguments(node):
    """Whether a call has two arguments whose order can matter."""
    if len(node.args) < 2 or any(isinstance(each, ast.Starred) for each in node.args[:2]):
        return False
    first, second = (ast.dump(each) for each in node.args[:2])
    return first != second and not (isinstance(node.func, ast.Name) and node.func.id in ("min", "max"))


def _is_text(node):
    return any(isinstance(part, ast.JoinedStr) or _is_string(part) for part in (node.left, node.right))


def _is_string(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def _constants(node):
    value = node.value
    if isinstance(value, bool):
        yield "constant", lambda n: ast.Constant(not n.value)
    elif isinstance(value, int):
        yield "constant", lambda n: ast.Constant(n.value + 1)
    elif isinstance(value, float):
        yield "constant", lambda n: ast.Constant(n.value * 2 if n.value else 1.0)


def _negated(node):
    """The node with the opposite condition."""
    node.test = ast.UnaryOp(ast.Not(), node.test)
    return node


def _replace(tree, old, new):
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list) and any(each is old for each in value):
                setattr(parent, name, [new if each is old else each for each in value])
