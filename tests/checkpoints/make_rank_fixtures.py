"""Writes the Megatron fixtures with real megatron-core; run by hand in an environment that has it.

    python tests/checkpoints/make_rank_fixtures.py

Four processes (tensor parallel 2, pipeline 2) save one model in both formats: `torch_dist`, with Megatron's
own dist_checkpointing, and `torch`, as Megatron-LM's save_checkpoint writes it.
"""

import argparse
import os
import shutil
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

HERE = (Path(__file__).parent / "fixtures" / "megatron").absolute()
TENSOR, STAGES = 2, 2


def model(stage_first, stage_last):
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig

    config = TransformerConfig(
        num_layers=2, hidden_size=4, num_attention_heads=2, ffn_hidden_size=6, gated_linear_unit=True,
        tensor_model_parallel_size=TENSOR, pipeline_model_parallel_size=STAGES, pipeline_dtype=torch.float32,
        use_cpu_initialization=True,
    )  # fmt: skip
    return GPTModel(
        config, get_gpt_layer_local_spec(), vocab_size=8, max_sequence_length=4, pre_process=stage_first,
        post_process=stage_last, share_embeddings_and_output_weights=False,
    )  # fmt: skip


def work(rank):
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="29533", LOCAL_RANK="0")
    dist.init_process_group("gloo", rank=rank, world_size=TENSOR * STAGES)
    torch.cuda.synchronize, torch.cuda.current_device = lambda *_: None, lambda: "cpu"  # it expects GPUs
    from megatron.core import dist_checkpointing, parallel_state

    parallel_state.initialize_model_parallel(TENSOR, STAGES)
    torch.manual_seed(0)
    made = model(parallel_state.is_pipeline_first_stage(), parallel_state.is_pipeline_last_stage())
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim == 1:  # copies stay equal: the same values on every rank
                parameter.copy_(torch.linspace(0.5, 1.5, len(parameter)))
    arguments = argparse.Namespace(
        tensor_model_parallel_size=TENSOR, pipeline_model_parallel_size=STAGES, expert_model_parallel_size=1
    )
    common = {"args": arguments, "checkpoint_version": 3.0, "iteration": 1}
    tensor, stage = (
        parallel_state.get_tensor_model_parallel_rank(),
        parallel_state.get_pipeline_model_parallel_rank(),
    )
    folder = HERE / "torch" / "iter_0000001" / f"mp_rank_{tensor:02d}_{stage:03d}"
    folder.mkdir(parents=True)
    state = made.state_dict_for_save_checkpoint()
    torch.save({**common, "model": state}, folder / "model_optim_rng.pt")
    whole = HERE / "torch_dist" / "iter_0000001"
    whole.mkdir(parents=True, exist_ok=True)
    dist.barrier()
    dist_checkpointing.save({**common, **made.sharded_state_dict()}, str(whole))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    shutil.rmtree(HERE, ignore_errors=True)
    mp.spawn(work, nprocs=TENSOR * STAGES)
    import megatron.core

    (HERE / "VERSION").write_text(f"megatron-core {megatron.core.__version__}, torch {torch.__version__}\n")
    sys.exit(0)
