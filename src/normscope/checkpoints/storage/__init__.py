"""Where bytes come from: local disks, web servers, Hugging Face repositories, S3 and the rest of fsspec, zips.

Every kind of storage is a `File` or a `Folder` (see `checkpoints.base`). No module here knows a
checkpoint format.
"""
