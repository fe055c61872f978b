"""TensorFlow's tensor bundles, read without TensorFlow.

From outside, use `tensor_bundle`; the other modules are the layers under its index file.
"""
