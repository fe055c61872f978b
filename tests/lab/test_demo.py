"""The demo's model: as large and as often saved as promised."""

from normscope.lab.demo import demo_config
from normscope.lab.model import Transformer


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
