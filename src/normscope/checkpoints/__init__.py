"""Where parameters come from: one file per format, and a series of ordered checkpoints."""

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
