"""TensorFlow's tensor bundles, read without TensorFlow.

From outside, use `tensor_bundle`; the other modules read the layers of its index file.
"""
