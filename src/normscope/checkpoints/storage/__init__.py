"""Where bytes are: local disks, Hugging Face repositories, anything fsspec can reach, zip archives.

Everything here is a `File` or a `Folder` of `checkpoints.base`; no module knows a checkpoint
format.
"""
