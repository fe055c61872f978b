"""Where parameters come from: checkpoints in many formats and places, and ordered series of them.

`base` defines files, folders, tensors and checkpoints; `extents` where a tensor's bytes are; `arrays`
reads whole tensors. `storage/` reads bytes, `formats/` turns them into checkpoints, `series/` finds
checkpoints and puts them in order. From outside, use the names below and `arrays.read_tensor`.
"""

from normscope.checkpoints.base import WIDTHS, Buffer, Checkpoint, File, Folder, Tensor
from normscope.checkpoints.formats.registry import known_formats, open_file
from normscope.checkpoints.series.names import Label, parse_label
from normscope.checkpoints.series.series import CheckpointSeries, Entry, open_series

__all__ = [
    "WIDTHS",
    "Buffer",
    "Checkpoint",
    "CheckpointSeries",
    "Entry",
    "File",
    "Folder",
    "Label",
    "Tensor",
    "known_formats",
    "open_file",
    "open_series",
    "parse_label",
]
