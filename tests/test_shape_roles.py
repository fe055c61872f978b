"""What shapes and neighbours say about tensors, on models nobody wrote patterns for."""

import pytest

from normscope.anatomy import OUTSIDE_BODY, locate_all


def roles(shapes):
    return {name: place.role for name, place in locate_all(shapes, shapes).items()}


LAYER = {"x": (96, 32), "y": (32, 32), "up": (128, 32), "z": (32, 128)}


def stack(layers, part=LAYER):
    return {f"foo.{i}.{name}.weight": shape for i in range(layers) for name, shape in part.items()}


def test_a_last_layer_unlike_the_others_stays_in_the_body():
    """Stable Diffusion 3: the last block modulates two streams only, with a smaller matrix."""
    shapes = stack(4) | {f"foo.{i}.mod.weight": (192 if i < 3 else 64, 32) for i in range(4)}
    assert not set(roles(shapes).values()) & OUTSIDE_BODY


def test_the_norms_of_stacked_layers_are_no_tables():
    """JAX keeps all layers in one tensor: gains of 6 layers are 6 rows of the width."""
    layer = {f"foo.{name}.kernel": (6, *shape) for name, shape in LAYER.items()}
    shapes = layer | {"foo.a.scale": (6, 32), "foo.b.scale": (6, 32), "wte.embedding": (500, 32)}
    found = roles(shapes)
    assert [name for name, role in found.items() if role in OUTSIDE_BODY] == ["wte.embedding"]


def test_a_vector_named_like_a_matrix_is_a_gain():
    """The first module of an MLP may be its norm, as in vit-pytorch."""
    shapes = {"layers.0.1.net.0.weight": (32,), "layers.0.1.net.0.bias": (32,)}
    found = roles(shapes | {"layers.0.1.net.1.weight": (128, 32), "layers.0.1.net.4.weight": (32, 128)})
    assert list(found.values()) == ["norm", "norm", "mlp in", "mlp out"]


def test_several_vocabularies_have_several_heads():
    shapes = stack(3) | {f"emb.{i}.weight": (500, 32) for i in range(4)}
    found = roles(shapes | {f"linears.{i}.weight": (500, 32) for i in range(4)})
    assert [found[f"linears.{i}.weight"] for i in range(4)] == ["head"] * 4


def test_a_projection_into_a_language_model_is_no_head():
    model = ["model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight"]
    vision, text = "model.vision_projection.weight", "model.text_projection.weight"
    assert locate_all([*model, vision])[vision].role == "other"
    assert {place.role for place in locate_all([vision, text]).values()} == {"head"}


@pytest.mark.parametrize(
    ("names", "role"),
    [
        (["h.0.mlp.w2.weight", "h.0.mlp.w1.weight", "h.0.mlp.c_proj.weight"], "gate"),
        (["h.0.mlp.w2.weight", "h.0.mlp.w1.weight", "h.0.mlp.w3.weight"], "mlp out"),
        (["layers.0.mixer.out_proj.weight", "layers.0.mixer.Wqkv.weight"], "attention output"),
        (["layers.0.mixer.out_proj.weight", "layers.0.mixer.A_log"], "ssm"),
    ],
)
def test_names_beside_it_say_what_a_tensor_is(names, role):
    assert locate_all(names)[names[0]].role == role


def test_a_bias_is_known_without_its_matrix():
    shapes = {name.replace("weight", "bias"): shape[:1] for name, shape in stack(3).items()} | stack(3)
    found = locate_all(shapes, shapes)
    assert {place.role for name, place in found.items() if name.endswith("bias")} == {"bias"}
    assert not any(place.known for name, place in found.items() if name.endswith("weight"))


def test_a_map_to_another_width_is_no_table():
    found = roles(stack(3) | {"wte.weight": (500, 32), "post_projection.weight": (96, 32)})
    assert found["post_projection.weight"] not in OUTSIDE_BODY
