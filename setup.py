"""Build the native kernel; everything else stands in pyproject.toml.

The extension is optional: where it cannot be compiled the package installs
without it and computes the same sums with torch.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "normscope.weights.sums._kernel",
            sources=["src/normscope/weights/sums/_kernel.c"],
            depends=["src/normscope/weights/sums/_lanes.h"],
            extra_compile_args=["-O3", "-g0", "-Wno-psabi", "-fno-math-errno", "-ffp-contract=fast"],
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
