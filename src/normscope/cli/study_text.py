"""The text that `saturate` and `homogeneity` run a model on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from normscope.cli.option_groups import refuse_unused

if TYPE_CHECKING:
    from normscope.network.loading.models import StudyText


def study_text(source: str, options: Mapping[str, Any], default: int) -> StudyText:
    """Return the text to run the model on; a build function has its own inputs and takes none."""
    from normscope.network.loading.build_functions import is_build_reference
    from normscope.network.loading.models import StudyText
    from normscope.network.running.inputs import read_sentences

    if is_build_reference(source):
        refuse_unused(f"with {source}, which returns its own inputs", **options)
    sentences = read_sentences(options["text"], options["sentences"] or default)
    return StudyText(sentences, options["tokenizer"], options.get("sentence"))
