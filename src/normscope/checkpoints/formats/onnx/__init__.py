"""ONNX files, read without the `onnx` package: their initialisers, where they are, and which are weights.

From outside, use `onnx_files`.
"""
