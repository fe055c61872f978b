"""One public API: everything a signature names is there, is documented, and has an example that runs."""

import ast
import dataclasses
import doctest
import inspect
import re
import typing
from importlib import import_module
from pathlib import Path
from typing import Literal, TypeVar, get_origin

import pytest

import normscope as ns
from normscope.table import Tabular

ROOT = Path(ns.__file__).parent
NAMES = [name for name in ns.__all__ if name != "__version__"]
CLASSES = [name for name in NAMES if inspect.isclass(getattr(ns, name))]
FUNCTIONS = [name for name in NAMES if inspect.isfunction(getattr(ns, name))]
RESULTS = [
    name
    for name in CLASSES
    if issubclass(getattr(ns, name), Tabular) and name not in ("Tabular", "ResultSequence")
]


def test_the_list_is_sorted_and_complete():
    assert sorted(ns.__all__) == ns.__all__
    assert all(getattr(ns, name) is not None for name in ns.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        ns.nonsense  # noqa: B018


def test_type_checkers_see_the_same_names():
    tree = ast.parse((ROOT / "__init__.py").read_text("utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    assert seen == ns._HOMES


def test_no_module_hides_a_public_name():
    """A submodule of the same name would replace the function as soon as it is imported."""
    children = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert not children & set(ns.__all__)


def normscope_names(annotation, module):
    """The identifiers of an annotation that are defined in normscope: classes and aliases."""
    for name in re.findall(r"[A-Za-z_][A-Za-z_0-9.]*", annotation):
        value = module
        for part in name.split("."):
            value = getattr(value, part, None)
        home = getattr(value, "__module__", "") or ""
        if inspect.isclass(value) and home.startswith("normscope"):
            yield name


def annotations(value):
    """Parameters and return of a function or of a class's constructor, and a class's public fields."""
    if dataclasses.is_dataclass(value):
        yield from (field.type for field in dataclasses.fields(value) if not field.name.startswith("_"))
    if typing.is_typeddict(value):
        yield from (annotation.__forward_arg__ for annotation in value.__annotations__.values())
        return
    signature = inspect.signature(value)
    yield from (p.annotation for p in signature.parameters.values() if p.annotation is not p.empty)
    if not inspect.isclass(value) and signature.return_annotation is not signature.empty:
        yield signature.return_annotation


@pytest.mark.parametrize("name", CLASSES + FUNCTIONS)
def test_everything_a_signature_names_is_public(name):
    value = getattr(ns, name)
    if inspect.isabstract(value) or value is ns.NormscopeError:  # its constructor is Exception's
        return
    module = import_module(inspect.unwrap(value).__module__)
    for annotation in annotations(value):
        text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        for other in normscope_names(text, module):
            assert other.split(".")[-1] in ns.__all__, f"{name} names {other}: {text}"


ANONYMOUS = {"Array", "Basis", "Row", "Value"}  # aliases of what the caller has names for already


def visible_names(module):
    """Every name that a module defines or imports from normscope, also for type checkers only."""
    tree = ast.parse(Path(module.__file__).read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("normscope"):
            yield from (alias.name for alias in node.names)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def methods(kind):
    for base in kind.__mro__:
        if base.__module__.startswith("normscope"):
            for name, value in vars(base).items():
                function = getattr(value, "fget", None) or getattr(value, "__func__", value)
                if inspect.isfunction(function) and (name == "__init__" or not name.startswith("_")):
                    yield function


def is_spelled_by_the_caller(name, module):
    """A type variable, or a choice of words such as "pre" or "post"."""
    value = getattr(module, name, None)
    return isinstance(value, TypeVar) or get_origin(value) is Literal


@pytest.mark.parametrize("name", CLASSES + FUNCTIONS)
def test_everything_a_method_or_an_alias_names_is_public(name):
    value = getattr(ns, name)
    functions = list(methods(value)) if inspect.isclass(value) else [inspect.unwrap(value)]
    for function in functions:
        module = import_module(function.__module__)
        known = {each for each in visible_names(module) if not is_spelled_by_the_caller(each, module)}
        for annotation in function.__annotations__.values():
            named = set(re.findall(r"[A-Za-z_]\w*", str(annotation))) & known - ANONYMOUS
            assert named <= set(ns.__all__), f"{function.__qualname__} names {named - set(ns.__all__)}"


CONFIGS = [
    *(
        "Batch",
        "Budget",
        "Curve",
        "DataConfig",
        "HeadTypes",
        "Limit",
        "ModelConfig",
        "Monitor",
        "MonitorOptions",
    ),
    *("OptimizerConfig", "Plan", "Rates", "Run", "ScanConfig", "Series", "SweepConfig", "TrainConfig"),
]


@pytest.mark.parametrize("name", FUNCTIONS + CONFIGS)
def test_every_keyword_is_explained(name):
    value = getattr(ns, name)
    text = inspect.getdoc(value).split(">>>")[0]
    source = inspect.getsource(value)
    for parameter in inspect.signature(value).parameters:
        field = rf'^    {parameter}: [^\n]*\n    """'  # MonitorOptions explains each field below it
        explained = re.search(rf"`{parameter}\b", text) or re.search(field, source, re.MULTILINE)
        assert explained, f"{name}: {parameter} is not in its docstring"


def test_importing_everything():
    names = {}
    exec("from normscope import *", names)
    assert set(ns.__all__) <= set(names)
    assert dir(ns) == ns.__all__


@pytest.mark.parametrize("name", FUNCTIONS)
def test_options_are_keywords_spelled_alike(name):
    """Beside what a call is about, every parameter must be given by name; one spelling for one thing."""
    banned = {"c", "out", "n_seeds", "verbose", "callback", "silent"}
    assert not banned & set(inspect.signature(getattr(ns, name)).parameters)
    for parameter in inspect.signature(getattr(ns, name)).parameters.values():
        if parameter.name in {"by", "scope", "stage", "since", "until", "progress"}:
            assert parameter.kind is parameter.KEYWORD_ONLY, f"{name}({parameter.name})"


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_frozen_and_tabular(name):
    kind = getattr(ns, name)
    assert dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen
    for attribute in ("table", "to_pandas", "to_polars", "_repr_html_"):
        assert hasattr(kind, attribute)
    assert kind.table is not Tabular.table


@pytest.mark.parametrize("name", CLASSES + FUNCTIONS)
def test_every_public_name_has_an_example_that_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    value = getattr(ns, name)
    assert inspect.getdoc(value), f"{name} has no docstring"
    module = import_module(inspect.unwrap(value).__module__)
    tests = doctest.DocTestFinder(recurse=False).find(value, name, module=module, globs={"ns": ns})
    examples = [test for test in tests if test.examples]
    assert examples, f"{name} has no example"
    for test in examples:
        said = []
        assert (
            doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=said.append).failed
            == 0
        ), "".join(said)


def modules():
    return [
        "normscope." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in sorted(ROOT.rglob("*.py"))
        if path.name not in ("__init__.py", "__main__.py") and ">>> " in path.read_text("utf-8")
    ]


@pytest.mark.parametrize("name", modules())
def test_the_examples_of_other_names_run(name, tmp_path, monkeypatch):
    """Those of public names have run above."""
    monkeypatch.chdir(tmp_path)
    module = import_module(name)
    for test in doctest.DocTestFinder().find(module, name, extraglobs={"ns": ns}):
        if test.name.removeprefix(f"{name}.") not in ns.__all__:
            assert doctest.DocTestRunner().run(test).failed == 0


def test_the_example_of_the_package():
    assert doctest.testmod(ns).failed == 0
