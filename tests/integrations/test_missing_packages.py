"""An integration whose package is not installed says what to install."""

from __future__ import annotations

import importlib
import sys

import pytest

from normscope.errors import MissingExtra


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [("huggingface", "transformers", "hf"), ("lightning", "lightning", "lightning")],
)
def test_the_sentence_has_the_command(
    module: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, f"normscope.integrations.{module}", raising=False)
    for name in (package, f"{package}.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=rf"'{package}'.*pip install 'normscope\[{extra}\]'"):
        importlib.import_module(f"normscope.integrations.{module}")
