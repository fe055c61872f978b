"""A scan of a remote series against downloading it first.

    python -m benchmarks remote [--quick]

A hub in a process of its own answers each request after 50 ms and sends 100 MB/s in all. One contestant
downloads every revision with huggingface_hub's snapshot_download and scans the files, the other scans the
hub. Each runs in a process of its own; memory is its peak above that of the imports, disk what it left there.
Then the 1,300 folders of a bucket, served by moto, are listed, each answer 50 ms away.
"""

import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import save, save_file

from normscope.checkpoints import open_series

MILLISECONDS, MEGABYTES = 50, 100
VOCABULARY, WIDTH, LAYERS = 12_288, 128, 6

DOWNLOAD = """
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.utils import disable_progress_bars
disable_progress_bars()
for ref in HfApi().list_repo_refs("owner/name").branches:
    snapshot_download("owner/name", revision=ref.name, local_dir=f"{folder}/{ref.name}")
scan(folder, run).close()
"""
REMOTE = """
scan("hf://owner/name", run, revisions="step*").close()
"""
TIMED = """
import sys, time, json
from pathlib import Path
import huggingface_hub, httpx2
import normscope.checkpoints.series.series
from normscope.weights.scan.scan import scan
folder, run = sys.argv[1:]
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
base, began = peak(), time.perf_counter()
{code}
print(json.dumps({{"seconds": time.perf_counter() - began, "memory": peak() - base, "peak": peak()}}))
"""


def tensors(step):
    """A small Pythia: float16, with embedding and output head apart."""
    generator = torch.Generator().manual_seed(step)

    def random(*shape):
        return (torch.randn(shape, generator=generator) * (1 + step / 1e5)).half()

    state = {
        "gpt_neox.embed_in.weight": random(VOCABULARY, WIDTH),
        "embed_out.weight": random(VOCABULARY, WIDTH),
    }
    for i in range(LAYERS):
        layer = f"gpt_neox.layers.{i}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            state |= {f"{layer}{norm}.weight": random(WIDTH), f"{layer}{norm}.bias": random(WIDTH)}
        for name, rows, columns in (
            ("attention.query_key_value", 3 * WIDTH, WIDTH), ("attention.dense", WIDTH, WIDTH),
            ("mlp.dense_h_to_4h", 4 * WIDTH, WIDTH), ("mlp.dense_4h_to_h", WIDTH, 4 * WIDTH),
        ):  # fmt: skip
            state |= {f"{layer}{name}.weight": random(rows, columns), f"{layer}{name}.bias": random(rows)}
    return state | {"gpt_neox.final_layer_norm.weight": random(WIDTH)}


def make_revisions(folder, count):
    for step in range(count):
        path = folder / f"step{step * 1000}"
        path.mkdir(parents=True)
        save_file(tensors(step), path / "model.safetensors")
        (path / "config.json").write_text("{}")


@contextmanager
def serving(folder):
    words = [sys.executable, "-m", "benchmarks.distant_hub", str(folder), str(MILLISECONDS), str(MEGABYTES)]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        yield server.stdout.readline().strip()
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()


def stats(address):
    with urllib.request.urlopen(f"{address}/stats") as answer:
        return json.load(answer)


def timed(code, address, folder):
    stats(address)
    (folder / "files").mkdir(parents=True)
    environment = {
        **os.environ,
        "HF_ENDPOINT": address,
        "HF_HOME": str(folder / "home"),
        "OMP_NUM_THREADS": "1",
    }
    words = [sys.executable, "-c", TIMED.format(code=code), str(folder / "files"), str(folder / "run.db")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    disk = sum(path.stat().st_size for path in folder.rglob("*.safetensors"))
    return {**json.loads(done.stdout.splitlines()[-1]), **stats(address), "disk": disk}


def compare(folder, count, rounds):
    revisions = folder / "hub"
    make_revisions(revisions, count)
    needed = sum(path.stat().st_size for path in revisions.rglob("*.safetensors"))
    best = {}
    with serving(revisions) as address:
        for turn in range(rounds):
            for name, code in (("download", DOWNLOAD), ("scan", REMOTE)):
                found = timed(code, address, folder / f"{name}{turn}")
                if name not in best or found["seconds"] < best[name]["seconds"]:
                    best[name] = found
    print(f"{count} revisions, {needed / 1e6:,.0f} MB ({MILLISECONDS} ms, {MEGABYTES} MB/s)")
    for name, found in best.items():
        print(
            f"  {name:9} {found['seconds']:6.1f} s  {found['bytes'] / needed:.3f} × the bytes  "
            f"{found['requests']:5d} requests  {found['memory']:4.0f} MB more memory "
            f"({found['peak']:.0f} in all)  {found['disk'] / 1e6:,.0f} MB on disk"
        )
    print(f"  scan / download: {best['scan']['seconds'] / best['download']['seconds']:.2f}")


def list_folders(count):
    """Seconds to find the checkpoints in so many folders of a bucket, each answer 50 ms away."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    asked = []
    application = DomainDispatcherApplication(create_backend_app)

    def distant(environ, start_response):
        if environ["REQUEST_METHOD"] == "GET":
            asked.append(environ["PATH_INFO"])
            time.sleep(MILLISECONDS / 1e3)
        return application(environ, start_response)

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, distant, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        os.environ[name] = "testing"
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    fill_bucket(count)
    asked.clear()
    began = time.perf_counter()
    series = open_series("s3://bucket/run")
    seconds = time.perf_counter() - began
    assert len(series.entries) == count
    print(f"{count} folders of a bucket: found in {seconds:.1f} s with {len(asked)} requests")
    server.shutdown()


def fill_bucket(count):
    import boto3

    client = boto3.client("s3")
    client.create_bucket(Bucket="bucket")
    data = save({"w": torch.ones(4, 4)})
    for step in range(count):
        client.put_object(Bucket="bucket", Key=f"run/checkpoints/step_{step}/model.safetensors", Body=data)
        client.put_object(Bucket="bucket", Key=f"run/checkpoints/step_{step}/config.json", Body=b"{}")
    client.close()


def main():
    quick = "--quick" in sys.argv
    for count, rounds in ((20, 1 if quick else 3), *(() if quick else ((154, 1),))):
        with tempfile.TemporaryDirectory() as name:
            compare(Path(name), count, rounds)
    list_folders(1300)
