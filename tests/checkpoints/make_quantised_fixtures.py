"""Writes small quantised models with the libraries that people quantise with; run by hand.

    pip install --no-deps bitsandbytes==0.50.0 torchao==0.18.0 compressed-tensors==0.20.0 loguru
    python tests/checkpoints/make_quantised_fixtures.py

Each folder of fixtures/quantised holds a quantised model, its config.json where the library writes one, and
`whole.npz`: the same model as the library itself dequantises it. GPTQ and AWQ are packed here, number by
number, as their sources say; what the numbers stand for is known before they are packed.
"""

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

HERE = Path(__file__).parent / "fixtures" / "quantised"
Q, DOWN = "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"


def plain():
    """What is not quantised."""
    torch.manual_seed(1)
    return {"model.embed_tokens.weight": torch.randn(8, 64), "model.norm.weight": torch.rand(64) + 0.5}


def matrices(sizes=((32, 64), (32, 96))):
    torch.manual_seed(0)
    return {name: torch.randn(*size) / 8 for name, size in zip((Q, DOWN), sizes, strict=True)}


def write(name, packed, whole, config=None, metadata=None, suffix="safetensors"):
    folder = HERE / name
    folder.mkdir(parents=True)
    state = (
        {key: value.contiguous() for key, value in {**packed, **plain()}.items()}
        if suffix != "bin"
        else packed
    )
    if suffix == "bin":
        torch.save({**state, **plain()}, folder / "pytorch_model.bin")
    else:
        save_file(state, folder / "model.safetensors", metadata)
    if config is not None:
        (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
    arrays = {key: value.detach().float().contiguous().numpy() for key, value in {**whole, **plain()}.items()}
    np.savez_compressed(folder / "whole.npz", **arrays)


# -- transformers -------------------------------------------------------------------------------


def fp8_blocks():
    """As DeepSeek and Qwen: 128 x 128 blocks, the last of them cut."""
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    packed, whole = {}, {}
    for name, weight in matrices(((130, 70), (64, 140))).items():
        rows, columns = (-(-size // 128) for size in weight.shape)
        padded = torch.zeros(rows * 128, columns * 128)
        padded[: weight.shape[0], : weight.shape[1]] = weight
        blocks = padded.view(rows, 128, columns, 128)
        scale = blocks.abs().amax(dim=(1, 3)) / 448
        numbers = (blocks / scale[:, None, :, None]).to(torch.float8_e4m3fn).view(padded.shape)
        restored = Fp8Dequantize(None)._dequantize_one(numbers, scale, torch.float32)
        cut = tuple(slice(size) for size in weight.shape)
        packed |= {f"{name}.weight": numbers[cut], f"{name}.weight_scale_inv": scale}
        whole[f"{name}.weight"] = restored[cut]
    write("fp8-blocks", packed, whole, {"quant_method": "fp8", "weight_block_size": [128, 128]})


def gpt_oss():
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    torch.manual_seed(0)
    packed, whole = {}, {}
    for name, (rows, groups) in {"gate_up_proj": (48, 1), "down_proj": (32, 2)}.items():
        stem = f"model.layers.0.mlp.experts.{name}"
        blocks = torch.randint(0, 256, (2, rows, groups, 16), dtype=torch.uint8)
        scales = torch.randint(110, 130, (2, rows, groups), dtype=torch.uint8)
        packed |= {f"{stem}_blocks": blocks, f"{stem}_scales": scales, f"{stem}_bias": torch.randn(2, rows)}
        restored = convert_moe_packed_tensors(blocks.clone(), scales.clone(), dtype=torch.float32)
        whole |= {stem: restored, f"{stem}_bias": packed[f"{stem}_bias"]}
    write("gpt-oss", packed, whole, {"quant_method": "mxfp4"})


# -- bitsandbytes -------------------------------------------------------------------------------


def bitsandbytes():
    import bitsandbytes as bnb

    for kind in ("nf4", "fp4"):
        for nested in (False, True):
            packed, whole = {}, {}
            for name, weight in matrices(((32, 64), (31, 33))).items():
                linear = bnb.nn.Linear4bit(*weight.shape[::-1], bias=False, quant_type=kind)
                linear.weight = bnb.nn.Params4bit(
                    weight, requires_grad=False, quant_type=kind, compress_statistics=nested
                )
                linear = linear.to("cpu")
                packed |= {f"{name}.{key}": value for key, value in linear.state_dict().items()}
                whole[f"{name}.weight"] = bnb.functional.dequantize_4bit(
                    linear.weight.data, linear.weight.quant_state
                )
            folder = f"bitsandbytes-{kind}{'-nested' if nested else ''}"
            write(folder, packed, whole, {"quant_method": "bitsandbytes", "load_in_4bit": True})
    packed, whole = {}, {}
    for name, weight in matrices().items():
        linear = bnb.nn.Linear8bitLt(*weight.shape[::-1], bias=False, has_fp16_weights=False)
        linear.weight = bnb.nn.Int8Params(weight.half(), requires_grad=False, has_fp16_weights=False)
        linear = linear.to("cpu")
        packed |= {f"{name}.{key}": value for key, value in linear.state_dict().items()}
        whole[f"{name}.weight"] = bnb.functional.int8_vectorwise_dequant(
            packed[f"{name}.weight"], packed[f"{name}.SCB"]
        )
    write("bitsandbytes-int8", packed, whole, {"quant_method": "bitsandbytes", "load_in_8bit": True})


# -- compressed-tensors -------------------------------------------------------------------------


def compressed_tensors():
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams

    def scales(weight, args):
        rows = 1 if args.strategy == "tensor" else weight.shape[0]
        size = args.group_size or weight.numel() // rows
        blocks = weight.reshape(rows, -1, size)
        return calculate_qparams(blocks.amin(-1), blocks.amax(-1), args)

    group32 = {"strategy": "group", "group_size": 32}
    group16 = {"strategy": "tensor_group", "group_size": 16, "scale_dtype": torch.float8_e4m3fn}
    small, powers = {"num_bits": 4, "type": "float"}, {"scale_dtype": torch.uint8}
    float8 = {"num_bits": 8, "type": "float"}
    cases = {
        "pack-int4-group": ("pack-quantized", {"num_bits": 4, **group32}),
        "pack-int4-zeros": ("pack-quantized", {"num_bits": 4, **group32, "symmetric": False}),
        "pack-int8-channel": ("pack-quantized", {"num_bits": 8, "strategy": "channel"}),
        "pack-int3-group": ("pack-quantized", {"num_bits": 3, **group32}),
        "int8-channel": ("int-quantized", {"num_bits": 8, "strategy": "channel"}),
        "int8-zeros": ("naive-quantized", {"num_bits": 8, "strategy": "channel", "symmetric": False}),
        "fp8-tensor": ("float-quantized", {**float8, "strategy": "tensor"}),
        "fp8-channel": ("float-quantized", {**float8, "strategy": "channel"}),
        "mxfp8": ("mxfp8-quantized", {**float8, **group32, **powers}),
        "mxfp4": ("mxfp4-pack-quantized", {**small, **group32, **powers}),
        "nvfp4": ("nvfp4-pack-quantized", {**small, **group16}),
    }
    for case, (kind, settings) in cases.items():
        args = QuantizationArgs(**settings)
        scheme = QuantizationScheme(targets=["Linear"], weights=args, format=kind)
        compressor = BaseCompressor.get_value_from_registry(kind)
        packed, whole = {}, {}
        for name, weight in matrices().items():
            state = {"weight": weight}
            if case.startswith("mx"):
                blocks = weight.reshape(weight.shape[0], -1, 32)
                top = 448 if case == "mxfp8" else 6
                state["weight_scale"] = 2.0 ** torch.ceil(torch.log2(blocks.abs().amax(-1) / top))
            elif case == "nvfp4":
                blocks = weight.reshape(weight.shape[0], -1, 16)
                state["weight_global_scale"] = (448 * 6 / weight.abs().max()).reshape(1)
                state["weight_scale"] = (
                    (state["weight_global_scale"] * blocks.abs().amax(-1) / 6).to(torch.float8_e4m3fn).float()
                )
            else:
                state["weight_scale"], state["weight_zero_point"] = scales(weight, args)
            small = compressor.compress(state, scheme)
            restored = compressor.decompress(dict(small), scheme)["weight"]
            if case == "nvfp4":  # which it restores in bfloat16
                numbers = unpack_fp4_from_uint8(small["weight_packed"], *weight.shape, dtype=torch.float32)
                factors = small["weight_scale"].float() / small["weight_global_scale"]
                restored = numbers * factors.repeat_interleave(16, dim=1)
            packed |= {f"{name}.{key}": torch.as_tensor(value) for key, value in small.items()}
            whole[f"{name}.weight"] = restored
        config = {"quant_method": "compressed-tensors", "format": kind}
        write(f"compressed-{case}", packed, whole, config)


# -- torchao ------------------------------------------------------------------------------------


def torchao():
    from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
    from torchao.quantization import (
        Float8WeightOnlyConfig,
        Int8WeightOnlyConfig,
        IntxWeightOnlyConfig,
        quantize_,
    )
    from torchao.quantization.granularity import PerGroup, PerTensor

    configs = {
        "float8-row": Float8WeightOnlyConfig(),
        "int8": Int8WeightOnlyConfig(),
        "int8-tensor": Int8WeightOnlyConfig(granularity=PerTensor()),
        "int4-group": IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
    }
    for case, config in configs.items():
        packed, whole = {}, {}
        for name, weight in matrices().items():
            linear = torch.nn.Sequential(torch.nn.Linear(*weight.shape[::-1], bias=False))
            linear[0].weight = torch.nn.Parameter(weight.clone())
            quantize_(linear, config)
            packed[f"{name}.weight"] = linear.state_dict()["0.weight"]
            whole[f"{name}.weight"] = packed[f"{name}.weight"].dequantize()
        flat, metadata = flatten_tensor_state_dict(packed)
        write(f"torchao-{case}", flat, whole, {"quant_method": "torchao"}, metadata)
        if case in ("float8-row", "int4-group"):
            write(f"torchao-{case}-bin", packed, whole, {"quant_method": "torchao"}, suffix="bin")


# -- GPTQ and AWQ, packed by hand ---------------------------------------------------------------


def put(words, at, bits, value):
    """Write a number of so many bits at a position of a row of 32-bit words, the lowest bits first."""
    for i in range(bits):
        position = at * bits + i
        words[position // 32] |= ((value >> i) & 1) << (position % 32)


def as_int32(rows):
    return torch.from_numpy(np.array(rows, np.uint64).astype(np.uint32).view(np.int32))


def gptq(case, bits, group, old, shuffled=False, symmetric=False, config=True):
    random = np.random.default_rng(bits)
    packed, whole = {}, {}
    for name, (out, width) in {Q: (32, 64), DOWN: (64, 32)}.items():
        groups = width // group
        index = np.arange(width) // group
        if shuffled:
            index = random.permutation(index)
        top = 1 << bits
        codes = random.integers(0, top, (width, out))
        zeros = np.full((groups, out), top // 2) if symmetric else random.integers(1, top, (groups, out))
        scales = (random.random((groups, out)) / 64).astype(np.float16)
        qweight = np.zeros((width * bits // 32, out), np.uint64)
        for column in range(out):
            words = [0] * (width * bits // 32)
            for row in range(width):
                put(words, row, bits, int(codes[row, column]))
            qweight[:, column] = words
        qzeros = []
        for row in zeros:
            words = [0] * (out * bits // 32)
            for column, zero in enumerate(row):
                put(words, column, bits, int(zero) - (1 if old else 0))
            qzeros.append(words)
        values = (codes - zeros[index]) * scales[index].astype(np.float32)
        packed |= {
            f"{name}.qweight": as_int32(qweight),
            f"{name}.qzeros": as_int32(qzeros),
            f"{name}.scales": torch.from_numpy(scales),
            f"{name}.g_idx": torch.from_numpy(index.astype(np.int32)),
        }
        whole[f"{name}.weight"] = torch.from_numpy(values.T.astype(np.float32))
    settings = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": shuffled}
    settings["checkpoint_format"] = "gptq" if old else "gptq_v2"
    write(f"gptq-{case}", packed, whole, settings if config else None)


def awq():
    random = np.random.default_rng(0)
    order = [0, 2, 4, 6, 1, 3, 5, 7]

    def pack(numbers):
        rows = []
        for row in numbers:
            words = [0] * (len(row) // 8)
            for word in range(len(words)):
                for i, place in enumerate(order):
                    words[word] |= int(row[8 * word + place]) << (4 * i)
            rows.append(words)
        return as_int32(rows)

    packed, whole = {}, {}
    for name, (out, width) in {Q: (32, 64), DOWN: (64, 32)}.items():
        codes = random.integers(0, 16, (width, out))
        zeros = random.integers(0, 16, (width // 32, out))
        scales = (random.random((width // 32, out)) / 64).astype(np.float16)
        packed |= {
            f"{name}.qweight": pack(codes),
            f"{name}.qzeros": pack(zeros),
            f"{name}.scales": torch.from_numpy(scales),
        }
        index = np.arange(width) // 32
        values = (codes - zeros[index]) * scales[index].astype(np.float32)
        whole[f"{name}.weight"] = torch.from_numpy(values.T.astype(np.float32))
    write("awq", packed, whole, {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"})


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    shutil.rmtree(HERE, ignore_errors=True)
    fp8_blocks()
    gpt_oss()
    bitsandbytes()
    gptq("4bit", 4, 32, old=True)
    gptq("4bit-v2", 4, 32, old=False)
    gptq("3bit-act-order", 3, 32, old=True, shuffled=True)
    gptq("2bit-v2", 2, 32, old=False)
    gptq("8bit", 8, 32, old=True)
    gptq("symmetric-without-config", 4, 32, old=True, symmetric=True, config=False)
    awq()
    compressed_tensors()
    torchao()
