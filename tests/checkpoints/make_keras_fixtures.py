"""Writes the Keras fixtures with real Keras; run by hand in an environment that has it, once per backend.

    python tests/checkpoints/make_keras_fixtures.py torch
    python tests/checkpoints/make_keras_fixtures.py tensorflow

Beside the files of each model stands the same model saved whole, as .npz, named after its attributes.
"""

import os
import shutil
import sys
from pathlib import Path

BACKEND = sys.argv[1]
os.environ["KERAS_BACKEND"] = BACKEND
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers  # noqa: E402

HERE = Path(__file__).parent / "fixtures" / "keras"
INPUTS = np.arange(10, dtype="int32").reshape(2, 5)


class Block(layers.Layer):
    def __init__(self, width, **options):
        super().__init__(**options)
        self.attention = layers.MultiHeadAttention(2, width // 2, dropout=0.1)
        self.norm1, self.norm2 = layers.LayerNormalization(), layers.RMSNormalization()
        self.mlp_in, self.mlp_out = layers.Dense(2 * width, activation="relu"), layers.Dense(width)

    def call(self, inputs):
        seen = self.norm1(inputs + self.attention(inputs, inputs))
        return self.norm2(seen + self.mlp_out(self.mlp_in(seen)))


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.tokens = layers.Embedding(20, 8)
        self.blocks = [Block(8) for _ in range(2)]
        self.batch_norm = layers.BatchNormalization()
        self.lm_head = layers.Dense(20, use_bias=False, dtype="bfloat16")

    def call(self, inputs):
        hidden = self.tokens(inputs)
        for block in self.blocks:
            hidden = block(hidden)
        return self.lm_head(self.batch_norm(hidden))


def fill(model):
    rng = np.random.default_rng(3)
    for variable in model.weights:
        if "seed" not in variable.path:
            variable.assign(rng.standard_normal(variable.shape).astype("float32"))


def whole(model):
    """Names by attributes and places in lists; of layers that a model holds itself, files keep the class."""
    found = {"embedding.embeddings": model.tokens.weights[0], "dense.kernel": model.lm_head.weights[0]}
    found |= {f"batch_norm.{v.name}": v for v in model.batch_norm.weights if "moving" not in v.name}
    for index, block in enumerate(model.blocks):
        attention = block.attention
        parts = {
            "attention.query_dense": attention.query_dense, "attention.key_dense": attention.key_dense,
            "attention.value_dense": attention.value_dense, "attention.output_dense": attention.output_dense,
            "norm1": block.norm1, "norm2": block.norm2, "mlp_in": block.mlp_in, "mlp_out": block.mlp_out,
        }  # fmt: skip
        for name, layer in parts.items():
            found |= {f"blocks.{index}.{name}.{v.name}": v for v in layer.weights}
    return found


def arrays(variables):
    values = {name: keras.ops.convert_to_numpy(variable) for name, variable in variables.items()}
    return {name: value.astype("float32") for name, value in values.items()}


def save_whole(name, variables):
    np.savez(HERE / name, **arrays(variables))


def subclassed():
    """A model of the user's own classes, in every file that Keras 3 writes."""
    model = Model()
    model(INPUTS)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy")
    model.fit(INPUTS, INPUTS, epochs=7, batch_size=2, verbose=0)
    fill(model)
    save_whole("subclassed.npz", whole(model))
    model.save_weights(HERE / "subclassed.weights.h5")
    model.save(HERE / "subclassed.keras")
    (HERE / "shards").mkdir()
    model.save_weights(HERE / "shards" / "subclassed.weights.json", max_shard_size=0.000004)


def functional():
    inputs = keras.Input((5,), dtype="int32")
    hidden = layers.Embedding(20, 8, name="token_embedding")(inputs)
    for index in range(2):
        hidden = Block(8, name=f"transformer_layer_{index}")(hidden)
    return keras.Model(inputs, layers.Dense(20, name="lm_head")(hidden))


def legacy():
    """The files of Keras 2, which Keras 3 still writes."""
    model = functional()
    model.compile("adam", "mse")
    fill(model)
    save_whole("functional.npz", {variable.path: variable for variable in model.weights})
    model.save(HERE / "functional.h5")
    model.save_weights(HERE / "functional.weights.h5")


def saved_models():
    import tensorflow as tf

    model = functional()
    fill(model)
    save_whole("exported.npz", {variable.path: variable for variable in model.weights})
    model.export(HERE / "exported", format="tf_saved_model", verbose=False)
    graph = HERE / "exported" / "saved_model.pb"
    graph.write_bytes(graph.read_bytes()[:64])  # 200 kB that no reader of ours opens
    trained = Model()
    trained(INPUTS)
    trained.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
    trained.fit(INPUTS, INPUTS, epochs=7, batch_size=2, verbose=0)
    fill(trained)
    save_whole("objects.npz", whole(trained))
    (HERE / "objects").mkdir(exist_ok=True)
    tf.train.Checkpoint(model=trained, optimizer=trained.optimizer).write(str(HERE / "objects" / "ckpt"))


def main():
    HERE.mkdir(parents=True, exist_ok=True)
    for old in ("shards",) if BACKEND == "torch" else ("exported", "objects"):
        shutil.rmtree(HERE / old, ignore_errors=True)
    keras.utils.set_random_seed(0)
    for make in (subclassed, legacy) if BACKEND == "torch" else (saved_models,):
        make()
    (HERE / f"VERSION.{BACKEND}").write_text(f"Keras {keras.__version__}\n")


if __name__ == "__main__":
    main()
