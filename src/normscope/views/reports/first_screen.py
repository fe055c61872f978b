"""What a reader should know before any number: which norm is shown, and whether the series is sound."""

from __future__ import annotations

from collections.abc import Sequence

from normscope.anatomy import in_body
from normscope.remarks import SURE, Finding
from normscope.run import TensorRow
from normscope.views.page.formatting import percent, plural

SCOPES = {
    "body": "the norm of the body: all parameters without embeddings, output head and scalars",
    "all": "the norm of all parameters, with embeddings and output head",
}
NO_BODY = "the norm of all parameters: all are embeddings, output head or scalars, so there is no body"
UNKNOWN = "The source does not say which parameters the norm is of."
ONLY_NORMS = "Only norms are known, so the checkpoints behind them could not be checked."


def scope_sentence(scope: str, tensors: Sequence[TensorRow] = ()) -> str:
    """Which norm the page shows, in words, and how much of the model that is."""
    if not scope:
        return UNKNOWN
    return f"Shown: {SCOPES.get(scope, NO_BODY)}{_share(scope, tensors)}."


def _share(scope: str, tensors: Sequence[TensorRow]) -> str:
    own = [tensor for tensor in tensors if tensor.tied_to is None]
    whole = sum(tensor.numel for tensor in own)
    if scope != "body" or not whole:
        return ""
    body = sum(tensor.numel for tensor in own if in_body(tensor.role, tensor.shape))
    return f" ({percent(body / whole)} of the parameters)"


def soundness(checkpoints: int, findings: Sequence[Finding], complete: bool | None = True) -> str:
    """What the checks of the scan say about the series, in one sentence; nothing if that is not known.

    `complete` says whether the scan finished; None if the run file does not say.
    """
    sure = sum(finding.confidence >= SURE for finding in findings)
    if sure:
        return f"What speaks against these checkpoints is in the box above: {plural(sure, 'finding')}."
    if findings:
        return f"The series is sound as far as it was checked, with {plural(len(findings), 'hint')}, above."
    if checkpoints and complete is None:
        return ""
    if not complete and checkpoints:
        return "The scan did not finish, so the series was not checked: run the scan again."
    if checkpoints > 1:
        return f"The series is sound: the scan found nothing wrong with its {checkpoints:,} checkpoints."
    if checkpoints:
        return "There is one checkpoint, so there is no series to check."
    return "These numbers were recorded while the model trained; there are no checkpoints to check."
