"""Writes the fixtures of Flax, Orbax NNX and pickled trees with the real libraries; run by hand.

    python tests/checkpoints/make_flax_fixtures.py

It needs flax, orbax-checkpoint, optax, dm-haiku and safetensors. Beside each layout stands the same model
saved whole, as safetensors. T5X's layout, which its package writes only in a training job, is put together
from flax.serialization and TensorStore as t5x/checkpoints.py does; Orbax's early one as its version 0.2 did.
"""

import json
import pickle
import shutil
from pathlib import Path
from unittest import mock

import flax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import tensorstore as ts
from flax import linen as nn
from flax import nnx, serialization, traverse_util
from flax.core import FrozenDict
from flax.training import checkpoints, train_state
from safetensors.numpy import save_file

HERE = (Path(__file__).parent / "fixtures" / "flax").absolute()
STEPS = (100, 200)
TEXT = jnp.zeros((1, 3), jnp.int32)


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = x + nn.MultiHeadDotProductAttention(2, name="attention")(nn.LayerNorm(name="ln_1")(x))
        hidden = nn.gelu(nn.Dense(8, name="up_proj")(nn.LayerNorm(name="ln_2")(x)))
        return x + nn.Dense(4, name="down_proj")(hidden)


class Model(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(12, 4, name="token_embed")(tokens)
        for i in range(2):
            x = Block(name=f"layers_{i}")(x)
        x = nn.BatchNorm(use_running_average=False, name="norm")(x)
        return nn.Dense(12, name="lm_head", use_bias=False)(x)


class State(train_state.TrainState):
    batch_stats: dict


def noisy(tree, step):
    """The same tree with other values at each step."""
    leaves, structure = jax.tree_util.tree_flatten(tree)
    rng = np.random.default_rng(step)
    changed = [
        jnp.asarray(leaf + rng.standard_normal(leaf.shape) / 10, leaf.dtype)
        if "float" in str(leaf.dtype)
        else leaf
        for leaf in leaves
    ]
    return jax.tree_util.tree_unflatten(structure, changed)


def linen(step):
    """Parameters, one of them in bfloat16, and batch statistics."""
    variables = noisy(Model().init(jax.random.key(0), TEXT), step)
    kernel = variables["params"]["layers_1"]["up_proj"]["kernel"]
    variables["params"]["layers_1"]["up_proj"]["kernel"] = kernel.astype(jnp.bfloat16)
    return variables


def trained(step):
    variables = linen(step)
    state = State.create(
        apply_fn=None, params=variables["params"], tx=optax.adamw(1e-3), batch_stats=variables["batch_stats"]
    )
    return state.replace(step=jnp.asarray(step, jnp.int32))


def whole(kind, step, flat):
    (HERE / "whole" / kind).mkdir(parents=True, exist_ok=True)
    arrays = {name: np.array(value) for name, value in flat.items()}
    save_file(arrays, HERE / "whole" / kind / f"step_{step}.safetensors")


def dotted(tree):
    return traverse_util.flatten_dict(tree, sep=".")


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def make_msgpack(step, chief):
    params = linen(step)["params"]
    checkpoints.save_checkpoint(HERE / "save_checkpoint", chief, step, keep=10)
    write(HERE / "to_bytes" / f"{'ab'[STEPS.index(step)]}_state.msgpack", serialization.to_bytes(chief))
    write(HERE / "hugging_face" / f"step_{step}" / "flax_model.msgpack", serialization.to_bytes(params))
    with mock.patch.object(serialization, "MAX_CHUNK_SIZE", 64):
        data = serialization.msgpack_serialize({"params": jax.tree_util.tree_map(np.asarray, params)})
        write(HERE / "chunked" / f"step_{step}.msgpack", data)
    make_shards(step, params)


def make_shards(step, params):
    """As transformers' flax_shard_checkpoint does: names joined with slashes, in their order."""
    flat = traverse_util.flatten_dict(params, sep="/")
    names = list(flat)
    weight_map = {}
    for i, part in enumerate((names[: len(names) // 2], names[len(names) // 2 :])):
        file = f"flax_model-{i + 1:05d}-of-00002.msgpack"
        tree = traverse_util.unflatten_dict({name: flat[name] for name in part}, sep="/")
        write(HERE / "shards" / f"step_{step}" / file, serialization.to_bytes(tree))
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": sum(v.nbytes for v in flat.values())}, "weight_map": weight_map}
    write(HERE / "shards" / f"step_{step}" / "flax_model.msgpack.index.json", json.dumps(index).encode())


def stored(folder, name, array):
    """Write an array with TensorStore; the reference to it that T5X puts into its msgpack file."""
    array = np.asarray(array)
    spec = {
        "driver": "zarr",
        "dtype": array.dtype.name,
        "kvstore": {"driver": "file", "path": name},
        "metadata": {"compressor": {"id": "gzip", "level": 1}, "shape": array.shape, "chunks": array.shape},
    }
    place = {**spec, "kvstore": {"driver": "file", "path": str(folder / name)}}
    ts.open(ts.Spec(place), create=True).result().write(array).result()
    return ts.Spec(spec).to_json()


def make_t5x(step):
    """Partitioned arrays in TensorStore, the others (here: vectors) in the msgpack file."""
    folder = HERE / "t5x" / f"checkpoint_{step}"
    variables = linen(step)
    target = traverse_util.flatten_dict(variables["params"])
    slots = {("lm_head", "kernel", "v"): np.ones((4, 12), np.float32), ("norm", "scale", "v"): np.ones(4)}
    saved = {("target", *path): value for path, value in target.items()}
    saved |= {("state", "param_states", *path): value for path, value in slots.items()}
    leaves = {
        path: stored(folder, ".".join(path), value) if value.ndim > 1 else np.asarray(value)
        for path, value in saved.items()
    }
    leaves["state", "step"] = np.asarray(step, np.int32)
    tree = {"version": 3, "optimizer": traverse_util.unflatten_dict(leaves)}
    write(folder / "checkpoint", serialization.msgpack_serialize(tree))


def make_early_orbax(step):
    """Orbax before OCDBT: large arrays as zarr folders, small ones in the file `checkpoint`."""
    folder = HERE / "early_orbax" / str(step)
    leaves = {("step",): np.asarray(step, np.int32)}
    for path, value in traverse_util.flatten_dict({"params": linen(step)["params"]}).items():
        name = ".".join(path)
        if value.size > 8:
            stored(folder, name, value)
        leaves[path] = f"PLACEHOLDER://{name}" if value.size > 8 else np.asarray(value)
    write(folder / "checkpoint", serialization.msgpack_serialize(traverse_util.unflatten_dict(leaves)))


class NnxBlock(nnx.Module):
    def __init__(self, rngs):
        self.attn = nnx.MultiHeadAttention(2, 4, rngs=rngs, use_bias=False, decode=False)
        self.ln_1, self.ln_2 = nnx.LayerNorm(4, rngs=rngs), nnx.LayerNorm(4, rngs=rngs)
        self.up_proj, self.down_proj = nnx.Linear(4, 8, rngs=rngs), nnx.Linear(8, 4, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)


class NnxModel(nnx.Module):
    def __init__(self, rngs):
        self.token_embed = nnx.Embed(12, 4, rngs=rngs)
        self.layers = nnx.List([NnxBlock(rngs) for _ in range(2)])
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.lm_head = nnx.Linear(4, 12, use_bias=False, rngs=rngs)


def make_nnx(step):
    model = NnxModel(nnx.Rngs(0))
    graph, params, others = nnx.split(model, nnx.Param, ...)
    params = noisy(params, step)
    whole("nnx", step, {".".join(map(str, path)): value[...] for path, value in nnx.to_flat_state(params)})
    everything = nnx.merge_state(params, others)
    optimizer = nnx.state(nnx.Optimizer(nnx.merge(graph, params, others), optax.adam(1e-3), wrt=nnx.Param))
    handler = ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=True))
    handler.save(HERE / "nnx_ocdbt" / str(step), {"model": everything, "optimizer": optimizer, "step": step})
    if step != STEPS[0]:
        return
    layouts = {
        "nnx_zarr": ({"use_ocdbt": False}, everything),
        "nnx_pure": ({"use_ocdbt": True}, nnx.to_pure_dict(everything)),
    }
    for name, (options, tree) in layouts.items():
        handler = ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**options))
        handler.save(HERE / name / str(step), tree)
    with ocp.CheckpointManager(HERE / "nnx_manager") as manager:
        split = {"params": params, "others": others}
        manager.save(step, args=ocp.args.Composite(state=ocp.args.StandardSave(split)))
        manager.wait_until_finished()


class HaikuMlp(hk.Module):
    def __call__(self, x):
        return hk.Linear(4)(jax.nn.gelu(hk.Linear(8)(x)))


def haiku_network(tokens):
    x = hk.Embed(12, 4, name="token_embed")(tokens)
    for i in range(2):
        normed = hk.LayerNorm(-1, True, True, name=f"h{i}_ln_1")(x)
        x = x + hk.MultiHeadAttention(2, 2, w_init_scale=1.0, model_size=4, name=f"h{i}_attn")(
            normed, normed, normed
        )
        x = x + HaikuMlp(name=f"h{i}_mlp")(hk.LayerNorm(-1, True, True, name=f"h{i}_ln_2")(x))
    x = hk.BatchNorm(True, True, 0.9, name="norm")(x, is_training=True)
    return hk.Linear(12, with_bias=False, name="lm_head")(x)


def make_pickles(step):
    params = linen(step)["params"]
    arrays = jax.tree_util.tree_map(np.asarray, params)
    transposed = jax.tree_util.tree_map(np.asfortranarray, arrays)
    for protocol in (2, 3, 4, 5):
        write(HERE / f"numpy_{protocol}" / f"step_{step}.pkl", pickle.dumps(arrays, protocol))
        write(HERE / f"fortran_{protocol}" / f"step_{step}.pickle", pickle.dumps(transposed, protocol))
    moments = optax.adam(1e-3).init(params)
    state = {
        "params": FrozenDict(params),
        "opt_state": moments,
        "step": np.int64(step),
        "rng": jax.random.key(1),
    }
    write(HERE / "jax_state" / f"{'ab'[STEPS.index(step)]}.pkl", pickle.dumps(state))
    write(HERE / "jax_tuple" / f"step_{step}.pkl", pickle.dumps((params, moments, step)))
    make_haiku(step)


def make_haiku(step):
    params, stats = hk.transform_with_state(haiku_network).init(jax.random.key(0), TEXT)
    params = noisy(params, step)
    whole(
        "haiku",
        step,
        {f"{module}.{name}": v for module, inner in params.items() for name, v in inner.items()},
    )
    state = {"params": params, "state": stats, "opt_state": optax.adam(1e-3).init(params)}
    write(HERE / "haiku" / f"step_{step}.pkl", pickle.dumps(state))


def main():
    flax.config.update("flax_use_orbax_checkpointing", False)  # save_checkpoint writes msgpack
    shutil.rmtree(HERE, ignore_errors=True)
    for step in STEPS:
        whole("linen", step, dotted(linen(step)["params"]))
        make_msgpack(step, trained(step))
        make_nnx(step)
        make_pickles(step)
    make_t5x(STEPS[0])
    make_early_orbax(STEPS[0])
    for name in ("commit_success.txt", "_sharding", "array_metadatas"):  # not needed, and full of local paths
        for path in list(HERE.rglob(name)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    versions = {m.__name__: m.__version__ for m in (flax, jax, ocp, optax, hk)}
    (HERE / "VERSION").write_text("".join(f"{name} {version}\n" for name, version in versions.items()))


if __name__ == "__main__":
    main()
