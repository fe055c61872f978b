"""The walks of docs/architecture.md: each call enters these files, in this order."""

import re
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

import normscope as ns
from normscope.cli.app import build
from tests.lab.at_once import AtOnce

ROOT = Path(ns.__file__).parent
PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"

MODEL = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), [torch.randn(2, 5, 8)]
"""


def documented(walk):
    text = PAGE.read_text("utf-8").split(f"**{walk}**")[1].split("\n**")[0].split("\n## ")[0]
    items = re.sub(r"^.*?(?=^1\. )", "", text, count=1, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"`([\w/]+\.py)`", items)


@contextmanager
def entered(files):
    """Collect the package's files in the order in which a call first enters a function of theirs."""

    known = set()  # this is asked at every call of every library: a path is taken apart once

    def note(frame, event, argument):
        code = frame.f_code
        if event == "call" and code.co_filename not in known and code.co_name != "<module>":
            known.add(code.co_filename)
            if code.co_filename.startswith(str(ROOT)):
                files[Path(code.co_filename).relative_to(ROOT).as_posix()] = None

    sys.setprofile(note)
    threading.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def command(*words):
    build()([str(word) for word in words], standalone_mode=False)


def scan(folder, number):
    command("scan", folder / "series", "--run", folder / f"scan{number}.db", "--json")


def monitor(folder, number):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watcher = ns.Monitor(model, optimizer, folder / f"monitor{number}.db")
    for _ in range(3):
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    watcher.close()


def saturate(folder, number):
    run = folder / f"saturate{number}.db"
    command("saturate", f"{folder / 'my_model.py'}:build", folder / "states", "--run", run, "--json")


def sweep(folder, number):
    base = ns.TrainConfig(data=ns.DataConfig(task="dyck-1", length=8), steps=3)
    ns.sweep(ns.SweepConfig(base, [{"lr": 1e-3}]), folder / f"grid{number}", engine=AtOnce())


@pytest.fixture
def folder(tmp_path, series_folder):
    (tmp_path / "my_model.py").write_text(MODEL)
    (tmp_path / "states").mkdir()
    namespace = {}
    exec(MODEL, namespace)
    for step in (0, 10):
        torch.save(namespace["build"]()[0].state_dict(), tmp_path / "states" / f"step_{step}.pt")
    return tmp_path


@pytest.mark.parametrize("walk", [scan, monitor, saturate, sweep], ids=lambda walk: walk.__name__)
def test_the_walk_is_as_documented(walk, folder, capsys):
    listed = documented(walk.__name__.capitalize())
    assert len(set(listed)) == len(listed) > 10
    assert all((ROOT / name).is_file() for name in listed)
    walk(folder, 0)  # whatever is imported or cached on first use is not part of the walk
    files = {}
    with entered(files):
        walk(folder, 1)
    assert [name for name in files if name in listed] == listed
