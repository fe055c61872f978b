"""Only blocks below a module named `decoder` belong to a decoder."""

import pytest

from normscope.network.predicting.ablation import _is_decoder
from normscope.network.settling.watchers import decoder_path
from normscope.network.watching.block_lists import BlockList

LISTS = [
    BlockList("encoder.layers", ("encoder.layers.0", "encoder.layers.1")),
    BlockList("model.decoder.layers", ("model.decoder.layers.0",)),
    BlockList("decoders.h", ("decoders.h.0",)),
]


@pytest.mark.parametrize("ask", [decoder_path(LISTS), lambda module: _is_decoder(LISTS, module)])
@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("encoder.layers.0.attn", False),
        ("encoder.layers.1", False),
        ("model.decoder.layers.0.attn", True),
        ("model.decoder.layers.0.cross", True),
        ("decoders.h.0.attn", False),
        ("pooler", False),
        ("model.decoder.norm", False),
    ],
)
def test_which_modules_belong_to_a_decoder(ask, module, expected):
    assert ask(module) is expected
