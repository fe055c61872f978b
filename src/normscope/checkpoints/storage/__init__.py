"""Where bytes come from: local disks, Hugging Face repositories, anything fsspec can reach, zip archives.

Every kind of storage is a `File` or a `Folder` (see `checkpoints.base`). No module here knows a
checkpoint format.
"""
