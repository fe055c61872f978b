"""The demo's model: as large and as often saved as promised."""

import pytest
import torch

from normscope.lab.demo import demo_config
from normscope.lab.model import Transformer
from normscope.lab.one_thread import one_thread


def test_demo_is_a_small_causal_language_model():
    config = demo_config(seed=7)
    parameters = sum(p.numel() for p in Transformer(config.model).parameters())
    assert 0.8e6 < parameters < 3e6
    assert config.model.mask == "causal"
    assert config.model.norm == "pre"
    assert config.seed == 7
    assert 25 <= len({*config.save.steps(config.steps), config.steps}) <= 40


def test_the_network_is_measured_only_where_the_norm_is_known():
    """The report draws saturation and logits against the norms of the saved checkpoints."""
    config = demo_config()
    measured = {*config.saturation.steps(config.steps), config.steps}
    assert measured <= {*config.save.steps(config.steps), config.steps}
    assert 10 <= len(measured) <= 14  # each takes a second or two


def test_one_thread_is_for_the_training_alone():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(KeyboardInterrupt), one_thread():
            assert torch.get_num_threads() == 1
            raise KeyboardInterrupt
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
