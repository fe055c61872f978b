"""Files that are read by ranges over a network: requests, answers that are checked, retries.

What is read of a file is always of one version. No module here knows where files are kept.
"""
