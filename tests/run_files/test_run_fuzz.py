"""Run files damaged at random: a command ends in time, in little memory, with one sentence or an answer."""

import random

import pytest

from .test_crafted_runs import LONGEST, MOST_BYTES, MOST_SECONDS, call, runner, sound

__all__ = ["runner", "sound"]
TRIED = ("show", "advise", "export", "fit", "watch", "audit", "compare", "forecast")
PAGE = 4096


def damaged(data, rng):
    """One to eight changes: bits, bytes, runs of bytes, pages exchanged or repeated, the end cut off."""
    found = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        kind, at = rng.randrange(6), rng.randrange(len(found))
        if kind == 0:
            found[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            found[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            found[at : at + rng.randint(1, 64)] = rng.randbytes(rng.randint(1, 64))
        elif kind == 3:
            one, other = (PAGE * rng.randrange(len(found) // PAGE or 1) for _ in range(2))
            found[one : one + PAGE] = found[other : other + PAGE]
        elif kind == 4:  # in the headers of pages, where the structure is
            page = PAGE * rng.randrange(len(found) // PAGE or 1)
            found[page + rng.randrange(12) :][:1] = bytes((rng.randrange(256),))
            found[min(page + rng.randrange(12), len(found) - 1)] = rng.randrange(256)
        elif rng.random() < 0.2:
            del found[max(1, at) :]
    return bytes(found)


def try_one(seed, sound, folder, runner):
    rng = random.Random(seed)
    path = folder / "run.db"
    path.write_bytes(damaged(sound.read_bytes(), rng))
    found, printed, said = call(runner, TRIED[seed % len(TRIED)], path)
    about = (seed, found, said[-1500:])
    assert found["code"] in (0, 1, 2), about
    assert found["cpu"] < MOST_SECONDS and found["bytes"] < MOST_BYTES, about
    assert "Traceback" not in said and "unexpected" not in said, about
    if found["code"] == 2 or (found["code"] and not printed):
        assert said.count("\n") == 1 and len(said) <= LONGEST + 1, about
    for each in folder.iterdir():
        each.unlink()
    return found["code"]


@pytest.mark.parametrize("first", [0, 20])
def test_damaged_run_files(first, sound, tmp_path, runner):
    codes = [try_one(seed, sound, tmp_path, runner) for seed in range(first, first + 20)]
    assert codes.count(1) >= 10  # most damage is noticed; what is not hits free space or a number


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 11000, 1000))
def test_ten_thousand_damaged_run_files(first, sound, tmp_path, runner):
    for seed in range(first, first + 1000):
        try_one(seed, sound, tmp_path, runner)
