"""The recipes of docs/engines.md, run as they are typed where their engine can be installed.

Slurm is a stand-in: `srun` and `scontrol` are small scripts that start the commands on this machine. The
manifests for Kubernetes are checked against a schema of the fields they use, which follows the types of
KubeRay's API `ray.io/v1` (required fields included, unknown ones refused); its own is in no package.
"""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import normscope as ns
from normscope.engines.waiting import wait_for_nodes
from normscope.errors import EngineError, UsageError

PAGE = Path(__file__).parents[2] / "docs" / "engines.md"
BIN = Path(sys.executable).parent


def snippet(language, words):
    """The block of the page that contains some words."""
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (found,) = [block for block in blocks if words in block]
    return found


def free_port():
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


def checkpoints(folder):
    folder.mkdir()
    for step in range(4):
        save_file({"h.0.mlp.weight": torch.full((8, 8), step + 1.0)}, folder / f"step_{step}.safetensors")


def run_script(text, folder, **variables):
    """Run a script of the page; whatever it left running is ended with it."""
    environment = os.environ | {"PATH": f"{folder}:{BIN}:{os.environ['PATH']}"} | variables
    script = folder / "script.sh"
    script.write_text(text)
    with (folder / "output.txt").open("w+") as output:
        process = subprocess.Popen(
            ["bash", script],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = process.wait(240)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
        output.seek(0)
        assert code == 0, output.read()


SRUN = """#!/bin/bash
# srun [options] command: only the command counts on one machine.
while [[ $1 == -* ]]; do case $1 in -w|-x) shift 2;; *) shift;; esac; done
exec "$@"
"""


@pytest.mark.slow
def test_the_slurm_script(tmp_path):
    pytest.importorskip("ray")
    port = free_port()
    checkpoints(tmp_path / "checkpoints")
    for name, text in {"srun": SRUN, "scontrol": "#!/bin/bash\nprintf '127.0.0.1\\nother\\n'\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    script = snippet("bash", "#SBATCH")
    assert "sleep" not in script and script.count("6379") == 3
    variables = {"SLURM_JOB_NODELIST": "node[1-2]", "SLURM_NNODES": "2", "SLURM_CPUS_PER_TASK": "1"}
    run_script(script.replace("6379", str(port)), tmp_path, SCRATCH=str(tmp_path), **variables)
    assert "has 2 nodes" in (tmp_path / "output.txt").read_text()
    with ns.Run(tmp_path / "run.db") as run:
        assert run.meta["complete"] and len(run.checkpoints()) == 4


@pytest.mark.slow
def test_the_dask_commands(tmp_path):
    pytest.importorskip("distributed")
    checkpoints(tmp_path / "checkpoints")
    script = snippet("bash", "dask scheduler").replace("8786", str(free_port()))
    script = "set -eu\n" + re.sub(r"\bscheduler(?=[: ]\d| --port)(?<!dask scheduler)", "127.0.0.1", script)
    run_script(script, tmp_path)
    with ns.Run(tmp_path / "run.db") as run:
        assert run.meta["complete"] and len(run.checkpoints()) == 4


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_dask_client(tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.chdir(tmp_path)
    text = snippet("python", "dask.distributed").replace("steps=400", "steps=3, batch=2")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        exec(text.replace("tcp://scheduler:8786", cluster.scheduler_address), {})
    assert _cells(tmp_path / "grid") == {"done": 2}


@pytest.mark.slow
def test_the_submitit_snippet(tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.chdir(tmp_path)
    exec(snippet("python", "submitit").replace("steps=400", "steps=3, batch=2"), {})
    assert _cells(tmp_path / "grid") == {"done": 2}
    assert any((tmp_path / "slurm-logs").iterdir())


def _cells(folder):
    from normscope.lab.sweep.sweep import read_sweep

    return read_sweep(folder).counts


def test_waiting_ends():
    pytest.importorskip("ray")
    with pytest.raises(EngineError, match="has 0 of 2 nodes after 0 seconds: no engine at localhost:9"):
        wait_for_nodes("ray:localhost:9", 2, patience=0)
    with pytest.raises(UsageError, match="is this machine"):
        wait_for_nodes("processes:1", 2)


def test_wrong_calls_of_waiting():
    command = [sys.executable, "-m", "normscope.engines.waiting", "ray"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.startswith("usage:")


# -- Kubernetes ---------------------------------------------------------------------------


def closed(required=(), **properties):
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": properties,
    }


TEXT, COUNT = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0}
NAME = {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
QUANTITY = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"}
AMOUNTS = closed(cpu=QUANTITY, memory=QUANTITY)
CONTAINER = closed(
    ["name", "image"],
    name=NAME,
    image=TEXT,
    ports={
        "type": "array",
        "items": closed(
            ["containerPort"],
            containerPort={"type": "integer", "minimum": 1, "maximum": 65535},
            name={**NAME, "maxLength": 15},
        ),
    },
    resources=closed(requests=AMOUNTS, limits=AMOUNTS),
    volumeMounts={"type": "array", "items": closed(["name", "mountPath"], name=NAME, mountPath=TEXT)},
)
VOLUME = closed(["name"], name=NAME, persistentVolumeClaim=closed(["claimName"], claimName=NAME))
TEMPLATE = closed(
    ["spec"],
    spec=closed(
        ["containers"],
        containers={"type": "array", "minItems": 1, "items": CONTAINER},
        volumes={"type": "array", "items": VOLUME},
    ),
)
HEAD = closed(["rayStartParams", "template"], rayStartParams=TEXTS, template=TEMPLATE)
WORKERS = closed(
    ["groupName", "minReplicas", "maxReplicas", "rayStartParams", "template"],
    groupName=NAME,
    replicas=COUNT,
    minReplicas=COUNT,
    maxReplicas=COUNT,
    rayStartParams=TEXTS,
    template=TEMPLATE,
)
CLUSTER = closed(
    ["headGroupSpec"],
    rayVersion=TEXT,
    headGroupSpec=HEAD,
    workerGroupSpecs={"type": "array", "items": WORKERS},
)
JOB = closed(
    entrypoint=TEXT,
    shutdownAfterJobFinishes={"type": "boolean"},
    backoffLimit=COUNT,
    rayClusterSpec=CLUSTER,
)


@pytest.mark.parametrize(
    ("file", "kind", "spec"),
    [("raycluster.yaml", "RayCluster", CLUSTER), ("rayjob.yaml", "RayJob", JOB)],
)
def test_the_manifests_fit_the_schema(file, kind, spec):
    jsonschema, yaml = pytest.importorskip("jsonschema"), pytest.importorskip("yaml")
    manifest = yaml.safe_load((PAGE.parent / file).read_text("utf-8"))
    whole = closed(
        ["apiVersion", "kind", "metadata", "spec"],
        apiVersion={"const": "ray.io/v1"},
        kind={"const": kind},
        metadata=closed(["name"], name=NAME),
        spec=spec,
    )
    jsonschema.Draft202012Validator(whole).validate(manifest)
    cluster = manifest["spec"].get("rayClusterSpec", manifest["spec"])
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        mounted = {each["name"] for one in pod["containers"] for each in one["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
    broken = {**manifest, "spec": {**manifest["spec"], "rayClustreSpec": {}}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(whole).validate(broken)


def test_the_commands_of_the_manifests_are_ours(tmp_path):
    """The job's command parses, and the page names the service that KubeRay makes for the cluster."""
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load((PAGE.parent / "rayjob.yaml").read_text("utf-8"))
    name, command, *words = job["spec"]["entrypoint"].split()
    assert (name, command, words[-2:]) == ("normscope", "scan", ["--engine", "ray"])
    cluster = yaml.safe_load((PAGE.parent / "raycluster.yaml").read_text("utf-8"))
    assert f"ray://{cluster['metadata']['name']}-head-svc:10001" in PAGE.read_text("utf-8")
