"""Names of files: numbers that no run file holds, patterns that take long, letters that are not text."""

import json
import os

from .case import add
from .safetensors_files import entry, packed

SOUND = packed({"w": entry()})


def one(name, files, says="", code=1):
    def write(folder):
        for file in files:
            os.makedirs(os.path.dirname(os.fsencode(folder) + b"/" + os.fsencode(file)), exist_ok=True)  # noqa: PTH103, PTH120
            with open(os.fsencode(folder) + b"/" + os.fsencode(file), "wb") as out:  # noqa: PTH123
                out.write(SOUND)

    add(f"names: {name}", write, says, code)


one("a step of 10^18", ["step_1.safetensors", "step_999999999999999999.safetensors"], code=0)
one("a step of 10^30", ["step_1.safetensors", "step_999999999999999999t.safetensors"], "")
one("a step of 10^99", ["step_1e99.safetensors"], "")
one(
    "tokens of 10^30", ["step_1-tokens999999999999999999T.safetensors", "step_2-tokens2B.safetensors"], code=0
)
one("an epoch of 10^99", ["epoch_1e99.safetensors"], "")
one("240 digits", [f"step_{'9' * 230}.safetensors"], "")
one("240 underscores", [f"{'_' * 240}.safetensors"], "", code=1)
one("words for every pattern", [f"{'step_epoch_' * 20}1.safetensors"], "", code=0)
one("many dates", [f"{'2020-01-01-' * 20}.safetensors"], "")
one("many settings", [f"{'lr1e-3_bs4_' * 20}.safetensors"], "")
one("many ranks", [f"{'rank_1_of_2_' * 19}.safetensors"], "")
one("many letters", [f"{'a' * 240}1.safetensors"], "")
one("deep folders", ["/".join(["step_1"] * 200) + "/model.safetensors"], "", code=2)
one("not UTF-8", ["step_1.safetensors", b"step_2\xff.safetensors"], code=0)
one("only not UTF-8", [b"step_2\xff.safetensors"], "contains no checkpoint", code=2)
one("a folder that is not UTF-8", ["step_1.safetensors", b"step_2\xff/model.safetensors"], code=0)
one("control characters", ["step_1\x1b[2J\x07.safetensors", "step_2\x1b[2J\x07.safetensors"], code=0)
one("a line break", ["step_1\n.safetensors", "step_1.safetensors"], "")
one("a formula", ["=1+1_step_1.safetensors", "=1+1_step_2.safetensors"], code=0)
one("direction marks", ["step_1\u202e.safetensors", "step_2\u202e.safetensors"], code=0)
one("digits that are not ASCII", ["step_\u0663.safetensors"], "", code=1)


def state(name, content, code=1):
    def write(folder):
        (folder / "model.safetensors").write_bytes(SOUND)
        (folder / "trainer_state.json").write_bytes(content())

    add(f"trainer state: {name}", write, "", code)


state("sound", lambda: json.dumps({"global_step": 3}).encode(), code=0)
state("a step of 10^30", lambda: json.dumps({"global_step": 10**30}).encode())
state("a step of 5,000 digits", lambda: b'{"global_step":' + b"9" * 5000 + b"}")
state("a negative step", lambda: json.dumps({"global_step": -3}).encode())
state("100,000 brackets", lambda: b"[" * 100_000)
state("40 MB of numbers", lambda: b"[" + b"1234," * 8_000_000 + b"1]")
state("not UTF-8", lambda: b'{"global_step": "\xff"}')
