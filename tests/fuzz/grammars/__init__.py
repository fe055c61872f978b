"""One module per family of formats; each makes mutants and knows which numbers are right."""

from ..mutant import Grammar
from .array_mutants import GGUF, LLAMA, NPZ
from .dcp_mutants import DCP
from .hdf5_mutants import HDF5
from .hub_mutants import HUB
from .onnx_mutants import ONNX
from .orbax_mutants import ORBAX
from .quantised_mutants import QUANTISED
from .rank_mutants import RANKS
from .remote_mutants import REMOTE
from .safetensors_mutants import SAFETENSORS, SHARDS
from .tensorflow_mutants import TENSORFLOW
from .torch_mutants import LEGACY, ZIP
from .tree_mutants import FLAX, PICKLES

GRAMMARS: dict[str, Grammar] = {
    grammar.name: grammar
    for grammar in (
        *(SAFETENSORS, SHARDS, ZIP, LEGACY, DCP, NPZ, GGUF, LLAMA, RANKS),
        *(QUANTISED, FLAX, PICKLES, HDF5, ONNX, TENSORFLOW, ORBAX, REMOTE, HUB),
    )
}
