"""Writes the Orbax fixtures with real Orbax; run by hand in an environment that has it.

    python tests/checkpoints/make_orbax_fixtures.py

Beside the checkpoints stand the arrays they were made of, as .npz.
"""

import shutil
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

HERE = (Path(__file__).parent / "fixtures" / "orbax").absolute()


def make(step):
    rng = np.random.default_rng(step)
    return {
        "embed": {"table": rng.standard_normal((9, 4))},
        "block_0": {"kernel": rng.standard_normal((1, 4, 6)), "scale": rng.standard_normal(4)},
    }


def as_jax(params, step):
    leaves = {
        "embed": {"table": jnp.asarray(params["embed"]["table"], jnp.float32)},
        "block_0": {
            "kernel": jnp.asarray(params["block_0"]["kernel"], jnp.bfloat16),
            "scale": jnp.asarray(params["block_0"]["scale"], jnp.float32),
        },
    }
    return {"params": leaves, "opt_state": [{"mu": jnp.ones((9, 4))}], "step": jnp.asarray(step, jnp.int32)}


def main():
    shutil.rmtree(HERE, ignore_errors=True)
    for step in (100, 200):
        tree = as_jax(make(step), step)
        checkpointer = ocp.StandardCheckpointer()
        checkpointer.save(HERE / "ocdbt" / str(step), tree)
        checkpointer.wait_until_finished()
        plain = ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False))
        plain.save(HERE / "zarr" / f"checkpoint_{step}", tree)
        third = ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=True, use_zarr3=True))
        third.save(HERE / "zarr3" / str(step), tree)
        arrays = {
            "embed.table": np.asarray(tree["params"]["embed"]["table"]),
            "block_0.kernel": np.asarray(tree["params"]["block_0"]["kernel"]).view(np.uint16),
            "block_0.scale": np.asarray(tree["params"]["block_0"]["scale"]),
        }
        (HERE / "expected").mkdir(exist_ok=True)
        np.savez_compressed(HERE / "expected" / f"{step}.npz", **arrays)
    for name in ("commit_success.txt", "_sharding", "array_metadatas"):  # not needed, and full of local paths
        for path in list(HERE.rglob(name)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (HERE / "VERSION").write_text(f"Orbax {ocp.__version__}\n")


if __name__ == "__main__":
    main()
