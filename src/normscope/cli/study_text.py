"""The text or token ids that `saturate` and `homogeneity` run a model on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from normscope.cli.option_groups import refuse_unused
from normscope.errors import UsageError

if TYPE_CHECKING:
    from normscope.network.loading.models import StudyText


def study_text(sources: Sequence[str], options: Mapping[str, Any], default: int) -> StudyText:
    """Return the text or ids to run the model on; a build function has its own inputs and takes none.

    What can be checked without torch, which takes seconds to import, is checked first.
    """
    from normscope.network.places.source_paths import check_sources, is_build_reference
    from normscope.network.running.token_ids import read_token_ids

    if is_build_reference(sources[0]):
        refuse_unused(f"with {sources[0]}, which returns its own inputs", **options)
    if options["ids"] and options["text"]:
        raise UsageError("give the model sentences (--text) or token ids (--ids), not both")
    check_sources(sources)
    count = options["sentences"] or default
    ids = read_token_ids(options["ids"], count) if options["ids"] else None

    from normscope.network.loading.models import StudyText
    from normscope.network.running.inputs import read_sentences

    sentences = read_sentences(options["text"], count) if ids is None else ()
    return StudyText(sentences, options["tokenizer"], options.get("sentence"), ids)
