"""Folders: links that lead in circles, pipes and devices, entries that nobody may read."""

import os

from .case import add
from .names import SOUND


def with_steps(*others):
    """Two sound checkpoints, and something beside them."""

    def write(folder):
        for step in (1, 2):
            (folder / f"step_{step}.safetensors").write_bytes(SOUND)
        for make in others:
            make(folder)

    return write


def link(name, target):
    return lambda folder: (folder / name).symlink_to(target)


def pipe(name):
    return lambda folder: os.mkfifo(folder / name)


def loops(folder):
    for i in range(60):
        (folder / f"run_{i}").symlink_to(".")


def web(folder):
    """Folders that all link to each other."""
    for i in range(12):
        (folder / f"part_{i}").mkdir()
    for i in range(12):
        for j in range(12):
            (folder / f"part_{i}" / f"to_{j}").symlink_to(folder / f"part_{j}")


def locked(name):
    def make(folder):
        (folder / name).mkdir()
        (folder / name).chmod(0)

    return make


def chain(folder):
    for i in range(200):
        (folder / f"link_{i}.safetensors").symlink_to(f"link_{i + 1}.safetensors")


add("folders: a link to itself", with_steps(link("step_3.safetensors", "step_3.safetensors")), code=0)
add("folders: two links to each other", with_steps(link("a.pt", "b.pt"), link("b.pt", "a.pt")), code=0)
add("folders: a link to nothing", with_steps(link("step_3.safetensors", "gone")), code=0)
add("folders: a link to the folder", with_steps(link("step_3", ".")), code=0)
add("folders: a link to the folder above", with_steps(link("step_3", "..")), code=0)
add("folders: sixty links to the folder", with_steps(loops), code=0)
add("folders: a web of links", with_steps(web), "behind links")
add("folders: a chain of 200 links", with_steps(chain), code=0)
add("folders: a pipe", with_steps(pipe("step_3.safetensors")), code=0)
add("folders: a pipe with the name of a bundle", with_steps(pipe("model.ckpt-3.index")), code=0)
add("folders: a pipe as a trainer's state", with_steps(pipe("trainer_state.json")), code=0)
add("folders: a link to a device", with_steps(link("step_3.safetensors", "/dev/zero")), code=0)
add(
    "folders: a link to the memory of the process",
    with_steps(link("step_3.safetensors", "/proc/self/mem")),
    code=0,
)
add("folders: a folder that may not be listed", with_steps(locked("step_3")), code=0)
add(
    "folders: a folder with the name of a file",
    with_steps(lambda f: (f / "step_3.safetensors").mkdir()),
    code=0,
)
add("folders: only a pipe", pipe("step_1.safetensors"), "is empty", code=2)
add(
    "folders: a pipe inside a step",
    with_steps(lambda f: (f / "step_3").mkdir(), pipe("step_3/model.safetensors")),
    code=0,
)
add(
    "folders: 3,000 empty folders", with_steps(lambda f: [(f / f"d{i}").mkdir() for i in range(3000)]), code=0
)
