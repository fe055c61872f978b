"""The kernel's own memory errors and undefined behaviour: none is found, and one that is planted is."""

import pytest

from tests.linked_package import KERNEL, PACKAGE
from tests.weights import sanitized_kernel

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sanitized_kernel.missing() is not None, reason=str(sanitized_kernel.missing())),
]
PLANTED = {
    "a read behind the end": ("n - i, s);\n}", "n - i + 1, s);\n}", "heap-buffer-overflow"),
    "memcpy without an address": ("if (row[2] > 0)", "if (row[2] >= 0)", "null pointer passed as argument"),
    "a misaligned load": (
        "float x; memcpy(&x, at, 4); return x;",
        "return *(const float *)at;",
        "load of misaligned address",
    ),
    "signed overflow": (
        "int exponents = 7 - mantissa,",
        "int exponents = 7 - mantissa + (0x7fffffff + bias - bias),",
        "signed integer overflow",
    ),
}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return sanitized_kernel.build(tmp_path_factory.mktemp("sanitized"))


@pytest.mark.parametrize("instruction_set", sanitized_kernel.INSTRUCTION_SETS)
def test_all_tests_of_the_sums(package, instruction_set):
    if not sanitized_kernel.has(package, instruction_set):
        pytest.skip(f"this processor does not have {instruction_set}")
    done = sanitized_kernel.run_tests(package, instruction_set)
    assert not sanitized_kernel.complaint(done)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_faults_are_noticed(tmp_path, fault):
    good, bad, said = PLANTED[fault]
    source = {
        name: (PACKAGE / KERNEL.with_name(name)).read_text().replace(good, bad)
        for name in ("_kernel.c", "_lanes.h")
    }
    assert any(bad in text for text in source.values())
    package = sanitized_kernel.build(tmp_path, source)
    done = sanitized_kernel.run_tests(package, "baseline", "-k", "any_address or no_address or copies")
    assert done.returncode != 0
    assert said in sanitized_kernel.complaint(done)
