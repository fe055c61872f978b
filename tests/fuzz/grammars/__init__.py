"""One module per family of formats; each makes mutants and knows which numbers are right."""

from ..mutant import Grammar
from .safetensors_mutants import SAFETENSORS, SHARDS

GRAMMARS: dict[str, Grammar] = {grammar.name: grammar for grammar in (SAFETENSORS, SHARDS)}
