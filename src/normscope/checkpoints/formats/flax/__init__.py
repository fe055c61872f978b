"""Flax: trees of arrays in msgpack files, and what the names of Flax's states say.

`msgpack_reader` and `stored_arrays` find arrays in a file, `trees` and `nnx_states` say which of them are
parameters, also for the other formats in which people save such trees; `flax_files` opens checkpoints.
"""
