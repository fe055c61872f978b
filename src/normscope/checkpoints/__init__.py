"""Where parameters come from: one file per format, and a series of ordered checkpoints."""

from normscope.checkpoints.base import WIDTHS, Buffer, Checkpoint, File, Folder, Tensor
from normscope.checkpoints.names import Label, parse_label
from normscope.checkpoints.registry import known_formats, open_file
from normscope.checkpoints.series import Entry, Series, open_series

__all__ = [
    "WIDTHS",
    "Buffer",
    "Checkpoint",
    "Entry",
    "File",
    "Folder",
    "Label",
    "Series",
    "Tensor",
    "known_formats",
    "open_file",
    "open_series",
    "parse_label",
]
