"""PEFT's LoRA: in TRL's trainer, and with adapters that come, go and are merged during training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

peft = pytest.importorskip("peft")
pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")  # PEFT's and TRL's own

from normscope.live.monitor import Monitor  # noqa: E402
from normscope.run import Run  # noqa: E402
from normscope.schedule import every  # noqa: E402
from tests.integrations.loops.hf import Texts, small_gpt2, train  # noqa: E402
from tests.integrations.loops.witness import Outcome, Witness, assert_rows  # noqa: E402


def lora(**more: Any) -> Any:
    given = {"r": 2, "lora_alpha": 4, "target_modules": ["c_attn", "c_fc"], "fan_in_fan_out": True, **more}
    return peft.LoraConfig(task_type="CAUSAL_LM", **given)


class Loop:
    """A loop whose model and optimizer change between its steps."""

    def __init__(self, path: Path | None) -> None:
        self.model = peft.get_peft_model(small_gpt2().eval(), lora(modules_to_save=["ln_f"]))
        self.new_optimizer()
        self.witness, self.losses = Witness(self.model), []
        self.monitor = Monitor(self.model, self.optimizer, path, every(1)) if path else None

    def new_optimizer(self) -> None:
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=0.01, weight_decay=0.1)

    def steps(self, number: int) -> None:
        for i in range(number):
            tokens = Texts()[i]["input_ids"][None]
            self.optimizer.zero_grad()
            loss = self.model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            self.witness.gradients()
            self.witness.around(self.optimizer)
            self.losses.append(loss.item())

    def end(self) -> Outcome:
        if self.monitor is not None:
            assert self.monitor.step == self.witness.step and self.monitor.close()
        return Outcome.of(self.losses, self.model)


def changing(path: Path | None) -> tuple[Outcome, Witness]:
    loop = Loop(path)
    loop.steps(2)
    loop.model.merge_adapter()  # for an evaluation: a change of the frozen matrices that is no update
    loop.model.unmerge_adapter()
    loop.model.add_adapter("second", lora())
    loop.model.set_adapter("second")
    added = [p for name, p in loop.model.named_parameters() if ".second." in name]
    loop.optimizer.add_param_group({"params": added, "lr": 0.02})
    loop.steps(2)  # 3 and 4
    loop.model.delete_adapter("second")
    loop.model.set_adapter("default")
    loop.steps(2)  # 5 and 6
    loop.model.merge_and_unload()
    loop.model.requires_grad_(True)
    loop.new_optimizer()
    loop.steps(2)  # 7 and 8
    return loop.end(), loop.witness


def test_adapters_are_followed(tmp_path: Path, caplog: Any) -> None:
    watched, witness = changing(tmp_path / "run.db")
    expected = {key: dict(row) for key, row in witness.rows.items() if key[0] != 7}
    for (step, name), row in expected.items():
        if step == 3 and ".second." in name:  # backward had made these gradients before they were known
            row.update(grad_sumsq=None, grad_dot=None)
    assert_rows(tmp_path / "run.db", expected)
    watched.assert_same(changing(None)[0])
    for sentence in (
        "the model has changed before step 3", "the model has changed before step 5",
        "since step 7, AdamW updates the model instead of the one before",
    ):  # fmt: skip
        assert sentence in caplog.text


def test_adapters_have_a_role_of_their_own_and_the_layer_that_they_adapt(tmp_path: Path) -> None:
    loop = Loop(tmp_path / "run.db")
    loop.steps(1)
    loop.end()
    with Run(tmp_path / "run.db") as run:
        found = {row.name: row for row in run.tensors()}
    for name, row in found.items():
        assert (row.role == "lora") == (".lora_" in name), name
        if ".h.1." in name:
            assert row.layer == 1
    base = found["base_model.model.transformer.h.1.attn.c_attn.base_layer.weight"]
    assert base.role == "qkv"


def test_supervised_fine_tuning_with_trl(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_list([{"input_ids": Texts()[i]["input_ids"].tolist()} for i in range(48)])

    def fine_tune(folder: str, path: Path | None) -> Any:
        from tokenizers import Tokenizer, models
        from transformers import PreTrainedTokenizerFast

        words = {"<eos>": 0, **{f"w{i}": i for i in range(1, 20)}}
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer(models.WordLevel(words, "<eos>")), eos_token="<eos>", pad_token="<eos>"
        )
        more = {
            "model": small_gpt2(), "train_dataset": data, "processing_class": tokenizer,
            "peft_config": lora(), "config": trl.SFTConfig,
            "args": {"bf16": False, "gradient_checkpointing": False},
        }  # fmt: skip
        return train(trl.SFTTrainer, tmp_path / folder, path, more)

    watched, witness, _ = fine_tune("a", tmp_path / "run.db")
    assert_rows(tmp_path / "run.db", witness.rows)
    watched.assert_same(fine_tune("b", None)[0])
