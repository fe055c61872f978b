"""Checkpoints that ranks wrote in parts: Meta, Megatron, DeepSpeed, GPT-NeoX, FSDP; one module per layout."""
