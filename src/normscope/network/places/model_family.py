"""The family of a model whose config.json does not name it: configs of 2019 have no `model_type`.

The class in `architectures` decides. Without one, the model of each family is built from the config, without
memory, and compared with the names and shapes of the stored tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from normscope.checkpoints.buffer_names import buffer_by_name
from normscope.errors import ModelError
from normscope.network.places.name_fitting import Shapes, find_prefix, plain_name, without_prefix
from normscope.words import some

_OLD = (
    *("bert", "roberta", "gpt2", "openai-gpt", "distilbert", "albert", "xlnet", "xlm", "ctrl", "t5"),
    *("camembert", "xlm-roberta"),
)
"""The families of 2019, before configs named theirs: tried first, and of several that fit the earlier one."""
_TRIED = 40  # other families whose configs have the most fields in common with the file
_OLD_FIELDS = frozenset(
    (
        *("architectures", "model_type", "transformers_version", "torch_dtype", "dtype", "torchscript"),
        *("output_past", "pruned_heads", "use_bfloat16", "finetuning_task", "num_labels", "is_decoder"),
        *("eos_token_ids", "directionality", "pooler_fc_size", "pooler_num_attention_heads", "n_ctx"),
        *("pooler_num_fc_layers", "pooler_size_per_head", "pooler_type", "predict_special_tokens"),
        *("use_cache", "xla_device", "gradient_checkpointing", "decoder_start_token_id", "id2label"),
        *("label2id", "output_attentions", "output_hidden_states", "is_encoder_decoder"),
        "task_specific_params",
    )
)
"""Fields that a config may have in any family, or had once."""


@dataclass(frozen=True)
class Family:
    """The family of a model, how it was found, and other families that fit as well."""

    model_type: str
    evidence: str
    others: tuple[str, ...] = ()

    @property
    def remark(self) -> str:
        """A sentence for the user."""
        other = f"; {some(self.others)} would fit as well" if self.others else ""
        return (
            f"config.json does not say its model_type: taken for {self.model_type!r} by {self.evidence}"
            f"{other} (write the model_type into config.json if that is wrong)"
        )


def find_family(transformers: Any, config: Mapping[str, Any], stored: Shapes, source: str) -> Family:
    """The family of a config without a model_type, or a ModelError that says what to do."""
    mapping = transformers.CONFIG_MAPPING
    for name in config.get("architectures") or ():
        settings = getattr(getattr(transformers, str(name), None), "config_class", None)
        if (family := getattr(settings, "model_type", None)) in mapping:
            return Family(str(family), f"its architecture, {name}")
    fields = _own_fields(transformers, config)
    fitting = [
        name
        for name in _OLD
        if name in mapping and fields <= _known(mapping, name) and _fits(transformers, name, config, stored)
    ]
    fitting = fitting or _best_fitting(transformers, fields, config, stored)
    if not fitting:
        raise ModelError(
            f"{source}: config.json has no model_type, and the tensors are those of no family that was "
            "tried: write the model_type into config.json, or load the checkpoint into a model of your own "
            "(my_model.py:build)"
        )
    return _preferred(transformers, fitting, config, stored)


def _own_fields(transformers: Any, config: Mapping[str, Any]) -> set[str]:
    """The fields of a config that not every family has: those of generation were part of it once."""
    return set(config) - _OLD_FIELDS - set(transformers.GenerationConfig().to_dict())


def _known(mapping: Any, family: str) -> set[str]:
    try:
        return set(mapping[family]().to_dict()) | set(mapping[family].attribute_map)
    except Exception:  # some configs cannot be made without arguments
        return set()


def _best_fitting(
    transformers: Any, fields: set[str], config: Mapping[str, Any], stored: Shapes
) -> list[str]:
    """Of all families that fit, those that know the most of the file's fields, the closest one first."""
    known = {family: _known(transformers.CONFIG_MAPPING, family) for family in transformers.CONFIG_MAPPING}
    ranked = sorted(
        (len(fields - names), len(names - set(config)), family) for family, names in known.items()
    )
    fitting = [each for each in ranked[:_TRIED] if _fits(transformers, each[2], config, stored)]
    return [family for unknown, _, family in fitting if unknown == fitting[0][0]]


def _fits(transformers: Any, family: str, config: Mapping[str, Any], stored: Shapes) -> bool:
    """Whether the model of this family has exactly the stored tensors, heads aside."""
    try:
        with torch.device("meta"):
            settings = transformers.CONFIG_MAPPING[family].from_dict(dict(config))
            model = transformers.AutoModel.from_config(settings)
        expected = {name: tuple(value.shape) for name, value in model.named_parameters()}
        prefix = find_prefix(stored, expected)
    except Exception:  # a config of another family can fail in any way
        return False
    if prefix is None:
        return False
    found = {without_prefix(name, prefix): tuple(shape) for name, shape in stored.items()}
    body = {name: shape for name, shape in expected.items() if "pooler" not in name.split(".")}
    if not body or any(found.get(name) != shape for name, shape in body.items()):
        return False
    return not _left_over(stored, prefix, expected)


def _left_over(stored: Shapes, prefix: str, expected: Shapes) -> bool:
    """Whether parameters beside the model's own in its layers are left over: it is another network then."""
    parts = {name.partition(".")[0] for name in expected} - {"pooler"}
    names = {without_prefix(name, prefix): shape for name, shape in stored.items()}
    return any(
        name not in expected and name.partition(".")[0] in parts and buffer_by_name(name, shape) is None
        for name, shape in names.items()
    )


def _preferred(
    transformers: Any, fitting: Sequence[str], config: Mapping[str, Any], stored: Shapes
) -> Family:
    """Of families with the same tensors, the one that the prefix or the number of positions points to."""
    evidence = "the names and shapes of its tensors"
    first_parts = {plain_name(name).partition(".")[0] for name in stored}
    for family in fitting:
        kind = transformers.MODEL_MAPPING[transformers.CONFIG_MAPPING[family]]
        prefix = getattr(kind, "base_model_prefix", None)
        if prefix in first_parts and prefix == family:
            return Family(family, f"{evidence} and their prefix {prefix!r}")
    positions = config.get("max_position_embeddings")
    reserved = isinstance(positions, int) and _is_power_of_two(positions - 2)  # 514, where BERT has 512
    first = "roberta" if reserved and "roberta" in fitting else fitting[0]
    return Family(first, evidence, tuple(name for name in fitting if name != first))


def _is_power_of_two(number: int) -> bool:
    return number > 2 and number & (number - 1) == 0
