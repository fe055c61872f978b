"""What the modules of a live model are, by their classes: more certain than any name."""

from __future__ import annotations

import re

from torch import nn

from normscope.anatomy import unwrapped
from normscope.shape_roles import EMBEDDING, LINEAR, NORM


def module_kinds(model: nn.Module) -> dict[str, str]:
    """Names of parameters, and whether their module is an embedding, a linear map or a norm; no others."""
    found = {}
    for path, module in model.named_modules(remove_duplicate=False):
        kind = _kind(module)
        if kind is not None:
            for name, _ in module.named_parameters(path, recurse=False, remove_duplicate=False):
                found[unwrapped(name)] = kind
    return found


def _kind(module: nn.Module) -> str | None:
    """By class, and by the class names of other packages: LlamaRMSNorm, VocabParallelEmbedding."""
    names = [kind.__name__ for kind in type(module).__mro__]
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) or any(
        re.search(r"Embeddings?$", n) for n in names
    ):
        return EMBEDDING
    if any(re.search(r"Norm(?:\d[dD])?$|Norm[A-Z_]", name) for name in names):
        return NORM
    return LINEAR if isinstance(module, nn.Linear) else None
