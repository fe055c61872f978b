"""One module per checkpoint format, each turning files into a `Checkpoint`, and what several of them share.

From outside, use `registry`: `open_file`, `recognise`, `FOLDER_FORMATS`, `known_formats`. A format
module is imported by the registry, and by discovery where the format spans several files.
"""
