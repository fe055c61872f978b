"""Writes the TensorFlow fixtures with real TensorFlow; run by hand in an environment that has it.

    python tests/checkpoints/make_tf_fixtures.py

Beside each checkpoint stands what TensorFlow itself reads from it, as .npz.
"""

from pathlib import Path

import numpy as np
import tensorflow as tf

HERE = Path(__file__).parent / "fixtures" / "tensorflow"
RNG = np.random.default_rng(7)


def values(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def save(prefix, names, slices, tensors):
    tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=names, shape_and_slices=slices, tensors=tensors)


def as_read_by_tensorflow(prefix):
    """Every entry as TensorFlow reads it; bfloat16 as its 16 bits, since npz has no such type."""
    reader = tf.train.load_checkpoint(str(prefix))
    found = {}
    for name, dtype in reader.get_variable_to_dtype_map().items():
        if dtype != tf.string:
            array = np.asarray(reader.get_tensor(name))
            plain = array.dtype.kind in "fiub" and array.dtype.name in np.sctypeDict
            found[name] = array if plain else array.view(f"u{array.itemsize}")
    return found


def t5(step):
    """Names of T5's released checkpoints, with Adafactor's slots, in two shards."""
    prefix = HERE / f"model.ckpt-{step}"
    parts = [prefix.with_name(f"part{i}") for i in range(2)]
    block = "encoder/block_000/layer_000/SelfAttention"
    first = {
        "shared/embedding": values(20, 6),
        f"{block}/q": values(6, 8),
        f"{block}/q_slot_vr": values(6),
        f"{block}/q_slot_vc": values(8),
        "encoder/final_layer_norm/scale": values(6),
        "encoder/final_layer_norm/scale_slot_v": values(6),
    }
    second = {"decoder/logits/kernel": values(6, 20), "global_step": np.int64(step)}
    save(parts[0], list(first), [""] * len(first), list(first.values()))
    save(parts[1], list(second), [""] * len(second), list(second.values()))
    merge(parts, prefix)


def merge(parts, prefix):
    tf.raw_ops.MergeV2Checkpoints(
        checkpoint_prefixes=[str(part) for part in parts],
        destination_prefix=str(prefix),
        delete_old_dirs=False,
    )


def partitioned():
    """Variables split along the first axis, the second, and both; with large numbers in the keys."""
    prefix = HERE / "sliced.ckpt-3"
    rows, columns, boxes, long = values(7, 5), values(4, 6), values(4, 6), values(300, 2)
    names, slices, tensors = [], [], []
    for name, whole, cuts in (
        ("rows", rows, [(0, 3, 0, -1), (3, 4, 0, -1)]),
        ("columns", columns, [(0, -1, 0, 2), (0, -1, 2, 4)]),
        ("boxes", boxes, [(0, 2, 0, 3), (0, 2, 3, 3), (2, 2, 0, 3), (2, 2, 3, 3)]),
        ("long", long, [(0, 100, 0, -1), (100, 100, 0, -1), (200, 100, 0, -1)]),
    ):
        height, width = whole.shape
        for top, h, left, w in cuts:
            piece = whole[top : None if h < 0 else top + h, left : None if w < 0 else left + w]
            row = "-" if h < 0 else f"{top},{h}"
            column = "-" if w < 0 else f"{left},{w}"
            names.append(name)
            slices.append(f"{height} {width} {row}:{column}")
            tensors.append(tf.constant(piece))
    # SaveV2 refuses one name twice in a call, so each slice is a shard of its own.
    parts = [prefix.with_name(f"part{i}") for i in range(len(names))]
    for part, name, cut, tensor in zip(parts, names, slices, tensors, strict=True):
        save(part, [name], [cut], [tensor])
    merge(parts, prefix)


def dtypes():
    prefix = HERE / "dtypes.ckpt-1"
    base = values(3, 4) * 50
    floats = (tf.float32, tf.float64, tf.float16, tf.bfloat16)
    kinds = (*floats, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.bool)
    tensors = {f"kind/{kind.name}": tf.cast(tf.constant(base), kind) for kind in kinds}
    tensors |= {"scalar": tf.constant(2.5), "empty": tf.zeros((0, 3)), "text": tf.constant("hello")}
    save(prefix, list(tensors), [""] * len(tensors), list(tensors.values()))


def objects():
    """The object-based checkpoints of TensorFlow 2, with an optimizer's slots."""
    layer = tf.keras.layers.Dense(3)
    optimizer = tf.keras.optimizers.Adam()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.ones((2, 4))))
    optimizer.apply_gradients(
        zip(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables, strict=True)
    )
    checkpoint = tf.train.Checkpoint(model=layer, optimizer=optimizer)
    checkpoint.write(str(HERE / "objects.ckpt-2"))


def main():
    (HERE / "expected").mkdir(parents=True, exist_ok=True)
    for old in (*HERE.glob("*.*"), *HERE.glob("expected/*")):
        old.unlink()
    for make in (lambda: t5(1000), lambda: t5(2000), partitioned, dtypes, objects):
        make()
    for left in HERE.glob("part*"):
        left.unlink()
    for index in HERE.glob("*.index"):
        found = as_read_by_tensorflow(index.with_suffix(""))
        np.savez_compressed(HERE / "expected" / f"{index.stem}.npz", **found)
    (HERE / "VERSION").write_text(f"TensorFlow {tf.__version__}\n")


if __name__ == "__main__":
    main()
