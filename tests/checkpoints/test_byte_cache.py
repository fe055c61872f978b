"""The cache keeps the latest blocks, up to its limit, and never mixes up their owners."""

import threading

from hypothesis import given
from hypothesis import strategies as st

from normscope.checkpoints.byte_cache import ByteCache, new_owner

OPERATIONS = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 3), st.integers(0, 3), st.integers(0, 9)),
    st.tuples(st.just("get"), st.integers(0, 3), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("discard"), st.integers(0, 3), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("discard_all"), st.integers(0, 3), st.just(0), st.just(0)),
)


@given(st.lists(OPERATIONS), st.integers(1, 20))
def test_against_a_plain_list(operations, limit):
    cache, model = ByteCache(limit), []  # [(key, block)], least recently used first
    for kind, owner, index, size in operations:
        key = (owner, index)
        known = dict(model).get(key)
        if kind == "put":
            cache.put(*key, bytes(size))
            model = [(k, b) for k, b in model if k != key] + [(key, bytes(size))]
            while sum(len(b) for _, b in model) > limit and len(model) > 1:
                model.pop(0)
        elif kind == "get":
            assert cache.get(*key) == known
            if known is not None:
                model = [(k, b) for k, b in model if k != key] + [(key, known)]
        elif kind == "discard":
            cache.discard(*key)
            model = [(k, b) for k, b in model if k != key]
        else:
            cache.discard_all(owner)
            model = [(k, b) for k, b in model if k[0] != owner]
        assert len(cache) == len(model)
        assert cache.nbytes == sum(len(b) for _, b in model)
        assert cache.count(owner) == sum(k[0] == owner for k, _ in model)


def test_owners_are_never_repeated():
    found = []
    threads = [
        threading.Thread(target=lambda: found.extend(new_owner() for _ in range(1000))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == len(found) == 8000
