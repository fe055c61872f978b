"""Constants as people register them, and parameters that look like constants, each under its usual name."""

import math

import numpy as np
import torch
from torch import nn

T, D = 32, 16


def angles(n=T, d=D, base=10000.0, start=0):
    inv = 1.0 / base ** (torch.arange(0, d, 2).float() / d)
    return torch.outer(torch.arange(start, start + n).float(), inv), inv


def interleaved(n=T, d=D, start=0):
    phase, _ = angles(n, d + d % 2, start=start)
    table = torch.zeros(n, d)
    table[:, 0::2] = phase.sin()
    table[:, 1::2] = phase.cos()[:, : d // 2]
    return table


def halves(n=T, d=D, start=0):
    phase, _ = angles(n, d, start=start)
    return torch.cat([phase.sin(), phase.cos()], dim=1)


def grid_sincos(side=4, d=D, cls=True):
    """The 2-D table of MAE and DiT: a quarter sines and a quarter cosines of each axis."""
    i, j = np.meshgrid(np.arange(side), np.arange(side), indexing="ij")
    omega = 1.0 / 10000 ** (np.arange(d // 4) / (d / 4))
    parts = []
    for axis in (j, i):
        phase = np.outer(axis.reshape(-1), omega)
        parts += [np.sin(phase), np.cos(phase)]
    table = torch.tensor(np.concatenate(parts, axis=1), dtype=torch.float32)
    return torch.cat([torch.zeros(1, d), table]) if cls else table


def channels_first(d=D, height=5, width=6):
    """A 2-D table [channels, height, width]: the first half of the channels for the columns."""
    table = torch.zeros(d, height, width)
    half = d // 2
    div = torch.exp(torch.arange(0.0, half, 2) * -(math.log(10000.0) / half))
    x, y = torch.arange(0.0, width)[:, None], torch.arange(0.0, height)[:, None]
    table[0:half:2] = torch.sin(x * div).T[:, None, :].repeat(1, height, 1)
    table[1:half:2] = torch.cos(x * div).T[:, None, :].repeat(1, height, 1)
    table[half::2] = torch.sin(y * div).T[:, :, None].repeat(1, 1, width)
    table[half + 1 :: 2] = torch.cos(y * div).T[:, :, None].repeat(1, 1, width)
    return table


def alibi(heads):
    def powers(n):
        return [2 ** (-8 / n * (i + 1)) for i in range(n)]

    if math.log2(heads).is_integer():
        return torch.tensor(powers(heads))
    low = 2 ** math.floor(math.log2(heads))
    return torch.tensor(powers(low) + powers(2 * low)[0::2][: heads - low])


def causal(value=float("-inf"), n=T):
    return torch.triu(torch.full((n, n), value), diagonal=1)


def swin_mask(windows=4, n=16):
    mask = torch.zeros(windows, n, n)
    mask[-1, : n // 2, n // 2 :] = mask[-1, n // 2 :, : n // 2] = -100.0
    mask[1, 0::2, 1::2] = mask[1, 1::2, 0::2] = -100.0
    return mask


def llama3(d=64):
    _, inv = angles(d=d, base=500000.0)
    wave = 2 * math.pi / inv
    smooth = ((8192 / wave) - 1) / 3
    middle = (1 - smooth) * inv / 8 + smooth * inv
    return torch.where(wave > 8192, inv / 8, torch.where(wave < 2048, inv, middle))


def schedule(n=1000):
    beta = torch.linspace(1e-4, 0.02, n)
    return beta, torch.cumprod(1 - beta, 0)


def mel_filters(bins=65, filters=20):
    """Triangles between points that are even on the mel scale, as audio front ends register them."""
    points = 700 * (10 ** (torch.linspace(0, 1, filters + 2) * math.log10(1 + 8000 / 700)) - 1)
    gaps = points[None] - torch.linspace(0, 8000, bins)[:, None]
    widths = points.diff()
    return torch.minimum(-gaps[:, :-2] / widths[:-1], gaps[:, 2:] / widths[1:]).clamp(min=0)


def grid_angles(side=5, d=D):
    """The angles of rotary embeddings on a grid: half of the columns for each axis."""
    _, inv = angles(d=d)
    i = torch.arange(side * side)
    return torch.cat([torch.outer((i % side).float(), inv), torch.outer((i // side).float(), inv)], 1)


PHASE, INV = angles()
BETA, BAR = schedule()
BUFFERS = {
    # sinusoidal tables
    "pos_encoder.pe": interleaved()[None],
    "positional_encoding.encoding": interleaved()[:, None],
    "emb.positions.table": interleaved(d=15),
    "pe2.pe": interleaved(n=500, d=64),
    "sin_pos.weight": halves(),
    "net.q7": halves(start=1),
    "net.q8": interleaved(start=2),
    "xyz.tbl": interleaved().T,
    "xyz.tbl2": halves().T,
    "pos_embed": grid_sincos()[None],
    "decoder_pos_embed": grid_sincos(cls=False)[None],
    "backbone.pos2d": channels_first(),
    "backbone.pos2d_b": channels_first()[None],
    "a.c": halves()[None, None],
    "padded.weights": torch.cat([torch.zeros(1, D), halves(start=1)]),
    "tsteps.emb": halves(n=1000, d=32),
    "scaled.pe": interleaved() * D**-0.5,
    "tst.W_pos": (interleaved() - interleaved().mean()) / (interleaved().std() * 10),
    "copies.pe": interleaved()[None].repeat(3, 1, 1),
    # rotary tables
    "rope.cos": PHASE.cos(),
    "rope.sin": PHASE.sin(),
    "attn.freqs_cos": PHASE.cos(),
    "attn.freqs_sin": PHASE.sin(),
    "blocks.0.r.c": torch.cat([PHASE, PHASE], 1).cos(),
    "blocks.0.r.s": torch.cat([PHASE, PHASE], 1).sin(),
    "r2.c": PHASE.repeat_interleave(2, 1).cos()[None, None],
    "r2.s": PHASE.repeat_interleave(2, 1).sin()[:, None, None],
    "h.0.attn.embed_positions": halves(d=8),
    "layers.0.freqs_real": torch.stack([PHASE.cos(), PHASE.sin()], -1),
    "cache.rope_cache": torch.stack([PHASE.cos(), PHASE.sin()], -1),
    "k.cos_sin": torch.cat([PHASE.cos(), PHASE.sin()], 1),
    "rot.angles": PHASE,
    "rot.emb": torch.cat([PHASE, PHASE], 1),
    "vision.rope_cos": grid_sincos(side=5, cls=False)[:, [2, 3, 6, 7, 10, 11]].cos(),
    "vision.rope_sin": grid_sincos(side=5, cls=False)[:, [2, 3, 6, 7, 10, 11]].sin(),
    # frequencies
    "layers.0.self_attn.rotary_emb.inv_freq": INV,
    "rotary.inv_freq": llama3(),
    "rotary_emb.freqs": INV,
    "mystery.f": INV,
    "time.div_term": torch.exp(torch.arange(0, 32, 2) * -(math.log(10000.0) / 32)),
    "nerf.freq_bands": 2.0 ** torch.arange(8),
    "rope.theta": llama3(),
    "yarn.s": PHASE.sin() * 1.2,
    "rotations.R": torch.stack(
        [
            torch.block_diag(*[torch.tensor([[a.cos(), -a.sin()], [a.sin(), a.cos()]]) for a in row])
            for row in PHASE
        ]
    ),
    "wide.pe": halves()[:, :, None].repeat(1, 1, 5),
    "clipped": (torch.arange(T)[:, None] - torch.arange(T)[None]).clamp(-8, 8).float(),
    "chunked": torch.kron(torch.tril(torch.ones(4, 4)), torch.ones(6, 6)),
    "retnet.angle": INV.repeat_interleave(2),
    "both.f": torch.cat([INV, INV]),
    "schnet.rbf.offsets": torch.linspace(0, 5, 50),
    "c51.support": torch.linspace(-10, 10, 51),
    "kan.grid": torch.linspace(-1, 1, 12).repeat(6, 1),
    "dist_abs": (torch.arange(T)[:, None] - torch.arange(T)[None]).abs().float(),
    # masks
    "h.0.attn.bias": torch.tril(torch.ones(T, T))[None, None],
    "h.0.attn.masked_bias": torch.tensor(-1e4),
    "attn.mask": torch.tril(torch.ones(T, T)),
    "blk.tril": torch.tril(torch.ones(T, T)),
    "b.m0": causal(),
    "b.m1": causal(-1e9),
    "b.m2": causal(-1e4)[None],
    "b.m3": causal(torch.finfo(torch.float32).min)[None, None],
    "b.m4": torch.triu(torch.ones(T, T), 1),
    "layers.1.blocks.1.attn_mask": swin_mask(),
    "nameless": swin_mask(),
    "conv.mask": torch.cat([torch.ones(8, 4, 3, 2), torch.zeros(8, 4, 3, 1)], 3),
    "band.w": (torch.arange(T)[:, None] - torch.arange(T)[None]).abs().le(3).float(),
    "blocky": torch.block_diag(*[torch.ones(4, 4)] * 4),
    "local.w": torch.tril(torch.ones(T, T)).triu(-4),
    "made.0.mask": (torch.arange(12)[:, None] % 5 >= torch.arange(8)[None] % 4).float(),
    # positions and indices, which some people cast to floats with everything else
    "embeddings.position_ids": torch.arange(T)[None].float(),
    "p.range": torch.arange(T).float(),
    "p.anon": torch.arange(1.0, 33.0),
    "attn.relative_position_index": torch.randint(
        0, 49, (16, 16), generator=torch.Generator().manual_seed(0)
    ).float(),
    "dist": (torch.arange(T)[:, None] - torch.arange(T)[None]).float(),
    "ids2": torch.arange(T).repeat(4, 1).float(),
    # ALiBi
    "alibi.slopes": alibi(8),
    "alibi.m": alibi(12)[:, None, None],
    "anon.s": -alibi(6),
    "alibi_bias": alibi(4)[:, None, None] * torch.arange(-T + 1, 1.0)[None, None],
    "anon.bias2": alibi(6)[:, None, None]
    * -(torch.arange(T)[:, None] - torch.arange(T)[None]).abs()[None].float(),
    "anon.bias3": (
        alibi(4)[:, None, None] * -(torch.arange(T)[:, None] - torch.arange(T)[None]).float()[None]
    )
    + causal(),
    # diffusion
    "betas": BETA,
    "alphas_cumprod": BAR,
    "sqrt_one_minus_alphas_cumprod": (1 - BAR).sqrt(),
    "alpha_hat": BAR,
    "diffusion.alphas": 1 - BETA,
    "posterior_mean_coef1": BETA * BAR.sqrt(),
    "sigmas": torch.linspace(1, 0.01, 50),
    # statistics and others
    "bn.running_mean": torch.randn(8),
    "bn.running_var": torch.rand(8),
    "bn.num_batches_tracked": torch.tensor(3.0),
    "quantize.cluster_size": torch.rand(32),
    "quantize.embed_avg": torch.randn(16, 32),
    "quantize.embed": torch.randn(16, 32),
    "queue": nn.functional.normalize(torch.randn(16, 64), dim=0),
    "normalize.mean": torch.tensor([0.485, 0.456, 0.406])[:, None, None],
    "pixel_std": torch.tensor([58.395, 57.12, 57.375]),
    "fe.window": torch.hann_window(64),
    "op.eye": torch.eye(8),
    "noises.noise_0": torch.randn(1, 1, 4, 4),
    "convs.0.conv.blur.kernel": torch.rand(4, 4),
    "b4.conv1.noise_const": torch.randn(4, 4),
    "actor_obs_normalizer._mean": torch.randn(1, 9),
    "criterion.weight": torch.rand(10),
    "global_cmvn.istd": torch.rand(80),
    "obs_rms.mean": torch.randn(17),
    "version": torch.tensor([3.0]),
    "embed_positions._float_tensor": torch.zeros(1),
    "front.bank": mel_filters(),
    "front.bank2": mel_filters().T,
    "logmel_extractor.melW": torch.rand(9, 4),
    "spectrogram_extractor.stft.conv_real.weight": torch.randn(9, 1, 16),
    "rope2d.x": grid_angles(),
    "anon.bias4": alibi(8)[:, None, None] * -(torch.arange(T)[:, None] - torch.arange(T)).abs().float()
    + causal(-1e4),
    "embed_tokens.embed_scale": torch.tensor(5.65),
    "self_attn.softcap": torch.tensor(50.0),
    "rotary_emb.full_attention_inv_freq": INV[:2],
    "mamba.mup_vector": torch.cat([torch.full((8,), 0.5), torch.ones(9)])[None, None],
    "moe.tokens_per_expert": torch.tensor([31.0, 0.5, 17.0]),
    "moe.expert_bias": torch.tensor([0.001, -0.002, 0.001]),
    "vq.embedding.cluster_size": torch.rand(32),
    "vq.embedding.embed_avg": torch.randn(32, 16),
    "vq.embedding.weight": torch.randn(32, 16),
    "norm/moving_mean:0": torch.randn(8),
}
"""Name → values that no optimizer trains."""


def _gaussian(*shape, std=0.02, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * std


def _forget(width=8):
    bias = torch.zeros(4 * width)
    bias[width : 2 * width] = 1
    return bias


def _ternary(*shape, seed=0):
    return torch.randint(-1, 2, shape, generator=torch.Generator().manual_seed(seed)).float()


PARAMETERS = {
    "ln.weight": torch.ones(D),
    "ln.bias": torch.zeros(D),
    "lstm.bias_ih_l0": _forget(),
    "proj.weight": torch.eye(D),
    "out.weight": torch.zeros(D, D),
    "ones.weight": torch.ones(D, D),
    "q.weight": nn.init.orthogonal_(torch.empty(D, D)),
    "mixer.A_log": torch.log(torch.arange(1, 17).float()).repeat(32, 1),
    "mixer.D": torch.ones(32),
    "mixer.A": torch.arange(1, 17).float().repeat(32, 1),
    "s4d.A_imag": math.pi * torch.arange(8).float().repeat(16, 1),
    "mixer.dt_bias": torch.log(torch.expm1(torch.exp(torch.linspace(-6.9, -2.3, 32)))),
    "ls1.gamma": torch.full((D,), 1e-5),
    "relative_attention_bias.weight": _gaussian(32, 8),
    "wpe.weight": _gaussian(T, D),
    "lora_B.weight": torch.zeros(D, 4),
    "bit.weight": _ternary(24, 16),
    "sign.weight": torch.sign(_gaussian(16, 16)),
    "pruned.weight": _gaussian(16, 16) * _ternary(16, 16).abs(),
    "attn.bias": _gaussian(D),
    "attention.bias": torch.zeros(D),
    "pe.weight": _gaussian(T, D),
    "pos_emb": _gaussian(1, T, D),
    "mask_token": _gaussian(1, 1, D),
    "mask_token_zero.mask_token": torch.zeros(1, 1, D),
    "rotary.proj.weight": _gaussian(D, D),
    "embeddings.position_embeddings.weight": _gaussian(T, D),
    "scheduler_embed": _gaussian(D),
    "scheduler_embed_net.weight": _gaussian(D, D),
    "optim_net.weight": _gaussian(D, D),
    "optim_net.bias": torch.zeros(D),
    "learned.freqs": _gaussian(8, std=1).abs(),
    "rope.freqs": torch.tensor([1.0, 0.4, 0.3, 0.05]) + _gaussian(4, std=0.01),
    "time_mix_k": (torch.arange(D) / D)[None, None],
    "time_decay": -5 + 8 * (torch.arange(D) / (D - 1)) ** 0.7,
    "gate.mask_logits": _gaussian(D),
    "mask_gate": torch.ones(D),
    "vae.mu.weight": _gaussian(4, D),
    "vae.mu.bias": torch.zeros(4),
    "v.weight": _gaussian(D, D, seed=1),
    "m.weight": _gaussian(D, D, seed=2),
    "downsample.kernel": _gaussian(3, 3, 8, 8),
    "criterion.weight": _gaussian(10, D),
    "centers": _gaussian(12, D),
    "offset": torch.zeros(D),
    "center_loss.centers": _gaussian(10, 2),
    "beta": torch.zeros(D),
    "gamma": torch.ones(D),
    "alpha": torch.full((1,), 0.5),
    "logit_scale": torch.tensor(2.659),
    "betas": _gaussian(D),
    "sigma": torch.rand(D, generator=torch.Generator().manual_seed(1)),
    "slopes": torch.rand(8),
    "codebook.weight": nn.functional.normalize(_gaussian(64, D), dim=1),
    "tables.cos_proj.weight": _gaussian(D, D),
    "prototypes": nn.functional.normalize(_gaussian(64, 2, std=1), dim=1),
    "rel_pos_bias": _gaussian(T, T),
    "att_bias": torch.zeros(T, T),
    "index_embed.weight": _gaussian(T, D),
    "grid": _gaussian(8, 8, std=1),
    "window_embed": _gaussian(D),
    "queue_proj.weight": _gaussian(D, D),
    "std_head.weight": _gaussian(3, D),
    "mean": _gaussian(3, std=1),
    "step_emb.weight": _gaussian(T, D),
    "state.0.weight": _gaussian(D, D),
    "ema.weight": _gaussian(D, D, seed=5),
    "ema.bias": _gaussian(D, seed=6),
    "shadow.weight": _gaussian(D, D, seed=7),
    "momentum": torch.tensor(0.9),
    "haar": torch.tensor([[1.0, 1.0], [1.0, -1.0]]),
    "hadamard.weight": torch.tensor(
        [[(-1.0) ** bin(i & j).count("1") for j in range(16)] for i in range(16)]
    ),
    "shift.weight": torch.diag(torch.ones(D - 1), 1),
    "toy": torch.arange(12.0).reshape(3, 4),
    "toy2": torch.arange(4.0),
    "triangular.weight": torch.tril(_gaussian(D, D)),
    "hippo": torch.tril(
        torch.sqrt(2 * torch.arange(D) + 1.0)[:, None] * torch.sqrt(2 * torch.arange(D) + 1.0)[None]
    ),
    "dct.weight": torch.cos(math.pi / D * (torch.arange(D)[:, None] + 0.5) * torch.arange(D)[None])
    * (2 / D) ** 0.5
    + _gaussian(D, D, std=1e-3),
    "smoothing.weight": sum(torch.diag(torch.full((D - abs(k),), 0.5 - 0.2 * abs(k)), k) for k in (-1, 0, 1)),
    "sparse.weight": _gaussian(24, 24).clamp(min=0.02),
    "levels.weight": _ternary(16, 8) * torch.linspace(0.1, 0.2, 8),
    "expert_bias": _gaussian(8),
    "shared_image_embedding.positional_embedding": _gaussian(2, 16, std=1),
    "embed_scale": _gaussian(D),
    "trained.pe": interleaved() + _gaussian(T, D, std=1e-3),
    "trained.cos": PHASE.cos() + _gaussian(T, D // 2, std=1e-3),
    "trained.inv": INV * (1 + _gaussian(D // 2, std=0.02)),
    "trained.slopes": alibi(8) * (1 + _gaussian(8, std=0.02)),
}
"""Name → values of parameters: at initialisation, or trained from a constant."""


class Holder(nn.Module):
    """A module tree with these buffers and parameters; dots in names become submodules."""

    def __init__(self, buffers, parameters):
        super().__init__()
        for name, value in buffers.items():
            self._at(name).register_buffer(name.rpartition(".")[2], value.clone())
        for name, value in parameters.items():
            self._at(name).register_parameter(name.rpartition(".")[2], nn.Parameter(value.clone()))

    def _at(self, name):
        module = self
        for part in name.split(".")[:-1]:
            if part not in module._modules:
                module.add_module(part, nn.Module())
            module = module._modules[part]
        return module

    def train_steps(self, steps=3, lr=1e-3):
        """A few steps of Adam on a loss that moves every parameter."""
        generator = torch.Generator().manual_seed(1)
        targets = [torch.randn(p.shape, generator=generator) for p in self.parameters()]
        optimizer = torch.optim.Adam(self.parameters(), lr=lr)
        for _ in range(steps):
            optimizer.zero_grad()
            sum(((p - t) ** 2).sum() for p, t in zip(self.parameters(), targets, strict=True)).backward()
            optimizer.step()
        return self
