"""Every message that the program can print, read from its source: the page is made, and the rules hold."""

import re
import runpy
from functools import cache
from pathlib import Path

import pytest

from normscope.errors import LONGEST

DOCS = Path(__file__).parent.parent / "docs"
MADE = runpy.run_path(str(DOCS / "message_list.py"))
messages = cache(MADE["messages"])

# What a tired reader stumbles over; see also the words that the house does not use in messages.
UNPLAIN = (
    *(
        "it is no ",
        "which is no ",
        "does not take us",
        "stands twice",
        "known are",
        "oops",
        "sorry",
        "invalid input",
        "illegal",
    ),
    *("failed to", "unable to", "please", "simply", "just ", "obviously", "e.g.", "i.e.", "etc.", "via "),
    *("in order to", "utilize", "leverage", "respectively", "and/or", "!", "  "),
)


def bad(rule):
    return [f"{m.module}:{m.line}: {m.text}" for m in messages() if rule(m.text)]


def test_the_list_is_whole():
    """Every class of the tree that is raised by name has messages; those of known places are among them."""
    kinds = {message.kind for message in messages()}
    assert {"UsageError", "CheckpointError", "RunFileError", "SeriesError", "ModelError", "warning"} <= kinds
    texts = [message.text for message in messages()]
    assert "no text at ⟨path⟩: expected a file with one sentence per line" in texts
    assert (
        "⟨path⟩ is damaged or was not written by normscope: ⟨what⟩; make it again, or restore a copy" in texts
    )
    assert any(text.startswith("⟨purpose⟩ needs the package ⟨package⟩") for text in texts)
    assert len(messages()) > 700


def test_no_message_is_too_long():
    """What is filled in makes it longer: its own words leave room for that."""
    assert bad(lambda text: len(re.sub("⟨[^⟩]*⟩", "", text)) > LONGEST - 60) == []


def test_messages_begin_and_end_as_sentences_do():
    """One line, nothing left open; it begins with a letter, an option or what is filled in."""
    assert bad(lambda text: not re.match(r"[A-Za-z⟨]|--", text)) == []
    assert bad(lambda text: "\n" in text or text != text.strip()) == []
    assert bad(lambda text: text.endswith((",", ":", ";", "-", "..", "("))) == []


@pytest.mark.parametrize("phrase", UNPLAIN)
def test_no_message_has_unplain_words(phrase):
    assert bad(lambda text: re.search(rf"(?<![\w'(]){re.escape(phrase)}", text, re.IGNORECASE)) == []


def test_the_page_has_every_message_in_a_table():
    page = MADE["page"](messages())
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| kind")]
    assert len(rows) == len(messages())
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 4 for row in rows)
