"""Where bytes come from: local disks, web servers, the Hugging Face hub, S3 and other stores, zip archives.

Every kind of storage is a `File` or a `Folder` (see `checkpoints.base`). No module here knows a
checkpoint format.
"""
