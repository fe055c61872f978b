"""What it costs to look at a network while it trains: by probes, and in the training forward itself.

    python -m benchmarks.monitor_network [small] [medium] [gpt2]

Processor time on one thread, the best of alternating rounds. A probe runs between two steps: its time is
given in forward passes and in training steps of the same batch. Observed attention is part of a step.
"""

import sys
import tempfile
import time
from pathlib import Path

import torch

from normscope.live.monitor import Monitor
from normscope.schedule import NEVER, at_steps

SIZES = {  # layers, heads, width, vocabulary, batch, length, rounds
    "small": (2, 2, 16, 50, 4, 32, 5),
    "medium": (6, 8, 512, 20_000, 4, 128, 2),
    "gpt2": (12, 12, 768, 50_257, 4, 128, 1),
}
NAMES = {"small": "0.01 M parameters", "medium": "30 M parameters", "gpt2": "GPT-2, 124 M parameters"}


class Looked:
    """A model, its batch, and the best times of what is done to it."""

    def __init__(self, layers, heads, width, vocabulary, batch, length, rounds):
        from transformers import GPT2Config, GPT2LMHeadModel

        torch.manual_seed(0)
        size = {"n_layer": layers, "n_head": heads, "n_embd": width, "vocab_size": vocabulary}
        config = GPT2Config(**size, use_cache=False, bos_token_id=0, eos_token_id=0, n_positions=1024)
        self.model = GPT2LMHeadModel(config)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.tokens = torch.randint(0, vocabulary, (batch, length))
        self.rounds = rounds

    def forward(self):
        with torch.no_grad():
            self.model(input_ids=self.tokens)

    def step(self):
        self.optimizer.zero_grad()
        self.model(input_ids=self.tokens, labels=self.tokens).loss.backward()
        self.optimizer.step()

    def step_with(self, folder, schedule, **options):
        """The second step with a monitor; the first one makes its file."""
        path = Path(folder) / f"{time.monotonic_ns()}.db"
        options = {"gradients": False, "updates": False, "initial": False, **options}
        with Monitor(self.model, self.optimizer, path, schedule, **options) as monitor:
            self.step()
            monitor.flush(600)
            return timed(self.step)

    def times(self, folder):
        """Best seconds of a forward pass, of steps, and of steps with a probe or observed attention."""
        best = dict.fromkeys(("forward", "step", "recorded", "probe", "observe"), float("inf"))
        self.step()
        for _ in range(self.rounds):
            batch = {"input_ids": self.tokens}
            found = {
                "forward": timed(self.forward),
                "step": timed(self.step),
                "recorded": self.step_with(folder, at_steps([2])),
                "probe": self.step_with(folder, NEVER, network=at_steps([2]), batch=batch),
                "observe": self.step_with(folder, at_steps([2]), attention="observe"),
            }
            best = {name: min(best[name], found[name]) for name in best}
        return best


def timed(run):
    began = time.thread_time()
    run()
    return time.thread_time() - began


def main(sizes=("small", "medium")):
    """Print a line per model; "gpt2" takes minutes."""
    torch.set_num_threads(1)
    print("looking at the network: seconds of a probe, and what observed attention adds to a recorded step")
    for name in sizes:
        with tempfile.TemporaryDirectory() as folder:
            best = Looked(*SIZES[name]).times(folder)
        probe, observe = best["probe"] - best["step"], best["observe"] - best["recorded"]
        print(
            f"  {NAMES[name]:24}  step {best['step']:.3f} s  probe {probe:.3f} s = "
            f"{probe / best['forward']:.0f} forward passes = {probe / best['step']:.1f} steps "
            f"({probe / best['step'] / 500:.2%} at every 500th step)  "
            f"observe +{observe / best['step']:.1%} of a recorded step"
        )


if __name__ == "__main__":
    main(sys.argv[1:] or ("small", "medium"))
