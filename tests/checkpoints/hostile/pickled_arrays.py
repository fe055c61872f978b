"""Pickled arrays of NumPy and JAX: shapes, dtypes and bytes that lie, and calls that make no sense."""

import struct

from .case import add_file
from .pickles import (
    DICT,
    MARK,
    NONE,
    REDUCE,
    TUPLE,
    doubled_tuples,
    entries,
    get,
    integer,
    named,
    put,
    sizes,
    text,
)


def raw(data, length=None):
    return b"\x8e" + struct.pack("<Q", len(data) if length is None else length) + data


def call(function, *args):
    return function + MARK + b"".join(args) + TUPLE + REDUCE


def dtype(code="f4", order="<"):
    state = MARK + integer(3) + text(order) + NONE * 3 + integer(-1) * 2 + integer(0) + TUPLE
    name = code if isinstance(code, bytes) else text(code)
    return call(named("numpy", "dtype"), name, b"\x89", b"\x88") + state + b"b"


def array(shape=(3,), code="f4", data=None, fortran=b"\x89", kind=None, order="<", state=None):
    """What NumPy pickles for an array; every part can be another one."""
    empty = (kind or named("numpy", "ndarray")), integer(0) + b"\x85", raw(b"b")
    made = call(named("numpy.core.multiarray", "_reconstruct"), *empty)
    listed = shape if isinstance(shape, bytes) else sizes(shape)
    values = raw(bytes(12)) if data is None else data
    described = MARK + integer(1) + listed + dtype(code, order) + fortran + values + TUPLE
    return made + (described if state is None else state) + b"b"


def from_buffer(*order):
    return call(named("numpy._core.numeric", "_frombuffer"), raw(bytes(24)), dtype(), sizes([2, 3]), *order)


def jax_array(*args):
    return call(named("jax._src.array", "_reconstruct_array"), *args)


def latin(data):
    return call(named("_codecs", "encode"), text(data.decode("latin-1")), text("latin1"))


def pickled(*pairs, protocol=4):
    return bytes([0x80, protocol]) + entries(*pairs) + b"."


W = (text("w"), array())


def one(name, body, says="", code=1):
    add_file(f"arrays: {name}", "step_1.pkl", body, says, code)


def lone(name, made, says="an array is damaged", code=1):
    one(name, lambda: pickled((text("w"), made())), says, code)


lone("sound", array, "", 0)
lone("sound, as text", lambda: array(data=latin(bytes(range(200, 212)))), "", 0)
lone("a size of 2^63", lambda: array([2**63]))
lone("a product of 2^120", lambda: array([2**60, 2**60]))
lone("a negative size", lambda: array([-3]))
lone("65 axes", lambda: array([1] * 65))
lone("sizes shared 2^60 times", lambda: array(doubled_tuples(60)))
lone("a shape that is a call", lambda: array(call(named("a", "b"), integer(3))), "an array is damaged")
lone("fewer bytes than its shape", lambda: array([4]))
lone("more bytes than its shape", lambda: array([2]))
lone("bytes of 2^63", lambda: array(data=raw(bytes(12), 2**63)), "damaged")
lone("bytes behind the end", lambda: array(data=raw(bytes(12), 10**6)), "damaged")
lone("no elements, but sizes of 2^61", lambda: array([0, 2**61], data=raw(b"")) + b"0" + array(), "", 0)
lone(
    "text of other characters",
    lambda: array(data=call(named("_codecs", "encode"), text("\u20ac" * 12), text("latin1"))),
)
lone(
    "text in another coding",
    lambda: array(data=call(named("_codecs", "encode"), text("a" * 12), text("rot13"))),
)
lone(
    "long text of other characters",
    lambda: array([20_000], data=call(named("_codecs", "encode"), text("\u20ac" * 40_000), text("latin1"))),
    "40,000",
)
lone(
    "long text of fewer characters",
    lambda: array([20_000], data=call(named("_codecs", "encode"), text("\xe9" * 45_000), text("latin1"))),
    "80,000",
)
lone("values that are a list", lambda: array(data=b"]"))
lone("values that are shared 2^60 times", lambda: array(data=doubled_tuples(60)))
lone("an unknown dtype", lambda: array(code="q9"), "")
lone("a dtype of 300,000 characters", lambda: array(code="f" * 300_000), "")
lone("a dtype that is a class", lambda: array([6], code=named("ml_dtypes", "bfloat16")), "", 0)
lone("a dtype that is an unknown class", lambda: array(code=named("os", "x")), "would call")
lone("a dtype shared 2^60 times", lambda: array(code=doubled_tuples(60)), "")
lone("a dtype of objects", lambda: array(code="O8", data=b"]"), "")
lone("big-endian", lambda: array(order=">"), "")
lone("another class of array", lambda: array(kind=named("numpy", "memmap")), "")
lone("a class that is no class", lambda: array(kind=integer(3)), "")
lone(
    "no state",
    lambda: call(named("numpy.core.multiarray", "_reconstruct"), named("numpy", "ndarray"), NONE, NONE),
)
lone("a state of ten", lambda: array(state=MARK + NONE * 10 + TUPLE))
lone("no arguments", lambda: named("numpy.core.multiarray", "_reconstruct") + NONE + REDUCE)
lone("no arguments of JAX", lambda: jax_array())
lone("arguments of JAX shared 2^60 times", lambda: jax_array(doubled_tuples(60), NONE, NONE, NONE))
lone("a scalar of one byte", lambda: call(named("numpy.core.multiarray", "scalar"), dtype(), raw(b"x")))
lone("an order of axes twice", lambda: from_buffer(text("K"), sizes([0, 0])))
lone("an unknown order", lambda: from_buffer(text("Z")))
lone("a buffer outside", lambda: b"\x97", "buffers outside")
lone(
    "an attack beside",
    lambda: array() + b"0" + call(named("os", "system"), text("x")),
    "would call os.system",
)
lone(
    "an attack as the function of JAX",
    lambda: jax_array(named("posix", "system"), MARK + TUPLE, NONE, NONE),
    "would call posix.system",
)
lone("nested 100,000 deep", lambda: b"]" * 100_000 + array() + b"a" * 100_000, "nested too deeply")
one("keys that are arrays", lambda: pickled(W, (array(), array())), "", 0)
one(
    "one array under 250,000 names",
    lambda: pickled((text("w"), array() + put(0)), *((text(f"w{i}"), get(0)) for i in range(1, 250_000))),
    "too many",
)
one("an array shared 2^20 times", lambda: pickled((text("w"), _doubled(20))), "too ")
one("a tuple of trees shared", lambda: b"\x80\4" + MARK + _doubled(18) + _doubled(18) + TUPLE + b".", "too ")
one(
    "a million small arrays",
    lambda: pickled(W, (text("x"), b"]" + MARK + (array([0], data=raw(b"")) * 100_000) + b"e")),
    "",
)
one(
    "an optimizer shared 2^60 times",
    lambda: pickled(W, (text("o"), call(named("optax", "State"), array(), doubled_tuples(60)))),
    "",
    0,
)
one("a frozen dictionary of itself", lambda: pickled(W, (text("f"), frozen_in_itself())), "", 0)
one(
    "a step that is an array of 2^40",
    lambda: pickled(W, (text("step"), array([2**40], "i4"))),
    "an array is damaged",
)


def frozen_in_itself():
    inside = DICT + put(9) + text("x") + get(9) + b"s"
    return call(named("flax.core.frozen_dict", "FrozenDict"), inside)


def _doubled(levels):
    result = DICT + text("w") + array() + b"s" + put(0) + b"0"
    for i in range(levels):
        result += b"]" + get(i) + b"a" + get(i) + b"a" + put(i + 1) + b"0"
    return result + get(levels)
