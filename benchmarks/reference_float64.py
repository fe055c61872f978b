"""Cosines of layers and types of heads, computed in float64 without any code of normscope.

The model is copied and converted, every parameter of the copy multiplied by c. States are read by forward
hooks on blocks whose paths are written down for each architecture, attention weights from what eager
attention returns or from a formula. The thresholds are those of docs/saturation.md.
"""

from __future__ import annotations

import copy
import fnmatch
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from benchmarks.architecture_case import ArchitectureCase

ATTENDED = 1e-5
NARROW = (torch.float32, torch.float16, torch.bfloat16)


class NoNarrowCasts(TorchFunctionMode):
    """Every float32 that the model asks for (in norms, rotary angles, softmaxes) becomes float64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (Tensor.float, Tensor.half, Tensor.bfloat16):
            return args[0].double()
        wide = [
            torch.float64 if value in NARROW else value for value in args if isinstance(value, torch.dtype)
        ]
        args = tuple(wide.pop(0) if isinstance(value, torch.dtype) else value for value in args)
        named = {
            key: torch.float64 if isinstance(value, torch.dtype) and value in NARROW else value
            for key, value in (kwargs or {}).items()
        }
        return func(*args, **named)


@contextmanager
def all_float64() -> Iterator[None]:
    """Inside, new tensors are float64 too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with NoNarrowCasts(), torch.no_grad():
            yield
    finally:
        torch.set_default_dtype(before)


class Observed:
    """The states and the attention weights of one forward pass, by normscope's names for them."""

    def __init__(self) -> None:
        self.states: dict[str, Tensor] = {}
        self.maps: dict[str, Tensor] = {}


def observe(case: ArchitectureCase, c: float) -> Observed:
    """One forward pass of a float64 copy whose parameters are multiplied by c."""
    plain = getattr(case.model, "_orig_mod", case.model)
    model: nn.Module = copy.deepcopy(plain).double().eval()
    for module in model.modules():
        config = getattr(module, "config", None)
        if getattr(config, "_attn_implementation", None):
            config._attn_implementation = "eager"  # it returns the weights
        if getattr(config, "_experts_implementation", None):
            config._experts_implementation = "eager"
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(c)
    found = Observed()
    _watch_blocks(model, case, found)
    _watch_attention(model, case, found)
    args, kwargs = arguments(case.inputs)
    if case.ask_for_maps:
        kwargs = {**kwargs, "output_attentions": True}
    if case.hidden:
        kwargs = {**kwargs, "output_hidden_states": True}
    with all_float64():
        output = model(*map(_double, args), **{name: _double(value) for name, value in kwargs.items()})
    if case.hidden:
        first, *others = output.hidden_states
        found.states = {f"{case.hidden}.{number}": state for number, state in enumerate(others)}
        found.states[f"{case.hidden}.input"] = first
    if case.states is not None:
        found.states = case.states(model)
    return found


def arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the model is called with, by position and by name."""
    if isinstance(inputs, dict):
        return (), inputs
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}


def _double(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def _first_state(value: Any) -> Tensor | None:
    if isinstance(value, Tensor):
        return value if value.is_floating_point() and value.dim() >= 2 else None
    if isinstance(value, dict):
        value = tuple(value.values())
    parts = value if isinstance(value, (tuple, list)) else ()
    return next((part for part in map(_first_state, parts) if part is not None), None)


def _matching(model: nn.Module, pattern: str) -> list[str]:
    depth = pattern.count(".")
    return [
        path
        for path, _ in model.named_modules()
        if path.count(".") == depth and fnmatch.fnmatch(path, pattern)
    ]


def _watch_blocks(model: nn.Module, case: ArchitectureCase, found: Observed) -> None:
    turns: Counter[str] = Counter()

    def leave(path: str, output: Any) -> None:
        turns[path] += 1
        state = _first_state(output)
        if state is not None:
            found.states[path if turns[path] == 1 else f"{path}#{turns[path]}"] = state.clone()

    def enter(stem: str, args: Any, kwargs: Any) -> None:
        state = _first_state((args, kwargs))
        if state is not None:
            found.states.setdefault(f"{stem}.input", state.clone())

    for pattern in case.blocks:
        stem = pattern.split(".*")[0] if "*" in pattern else pattern.rpartition(".")[0]
        for path in _matching(model, pattern):
            block = model.get_submodule(path)
            block.register_forward_pre_hook(
                lambda _, args, kwargs, stem=stem: enter(stem, args, kwargs), with_kwargs=True
            )
            block.register_forward_hook(lambda _, args, out, path=path: leave(path, out))


def _watch_attention(model: nn.Module, case: ArchitectureCase, found: Observed) -> None:
    turns: Counter[str] = Counter()

    def keep(path: str, found_maps: Any) -> None:
        for weights in found_maps if isinstance(found_maps, list) else [found_maps]:
            turns[path] += 1
            if weights is not None:
                found.maps[path if turns[path] == 1 else f"{path}#{turns[path]}"] = weights

    read = case.maps or returned_maps
    for pattern in case.attention:
        for path in _matching(model, pattern):
            model.get_submodule(path).register_forward_hook(
                lambda module, args, kwargs, out, path=path: keep(path, read(module, args, kwargs, out)),
                with_kwargs=True,
            )


def returned_maps(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Tensor | None:
    """The weights that eager attention returns: the tensor of rank 4 whose rows sum to 1 (or are hidden)."""
    for value in output if isinstance(output, (tuple, list)) else ():
        if isinstance(value, Tensor) and value.dim() == 4 and not bool((value < 0).any()):
            total = value.sum(-1)
            whole = (total - 1).abs() < 1e-6
            if bool((whole | (total == 0) | total.isnan()).all()) and bool((whole | total.isnan()).any()):
                return value
    return None


def transformer_xl_maps(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Tensor:
    """The weights of XLNet, which it returns as [queries, keys, batch, heads]."""
    return output[-1].permute(2, 3, 0, 1)


def squeezed_maps(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Tensor:
    """The weights of SqueezeBERT, from the scores that it returns."""
    return output["attention_score"].softmax(-1)


def windowed_maps(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Tensor:
    """The weights of Longformer: of each query on its window, [batch, queries, heads, window]."""
    return output[1].transpose(1, 2)


def prophet_maps(module: nn.Module, args: Any, kwargs: Any, output: Any) -> list[Tensor]:
    """The weights of ProphetNet. Its plain attention returns scores; its decoder also attends from streams
    that predict, [batch, streams, heads, queries, keys]."""
    maps = [part for part in output[1:] if part is not None and part.dim() > 3]
    if type(module).__name__ == "ProphetNetAttention":
        return [part.softmax(-1) for part in maps]
    return [part.flatten(0, 1) if part.dim() == 5 else part for part in maps]


def maps_with_sink(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Tensor:
    """The weights of GPT-OSS and, as a last column, what is missing to 1: the weight of the sink."""
    return torch.cat((output[1], 1 - output[1].sum(-1, keepdim=True)), -1)


def real_rows(case: ArchitectureCase, states: Tensor) -> Tensor:
    """The states without padding, [tokens, width]."""
    mask = case.real
    if mask is not None:
        if states.shape[:2] == mask.shape:
            return states[mask]
        if states.shape[:2] == mask.T.shape:
            return states[mask.T]
    return states.reshape(-1, states.shape[-1])


def cosines(case: ArchitectureCase, soft: Observed, hard: Observed) -> dict[str, float]:
    """The mean cosine of every layer's states between the two networks."""
    found = {}
    for name, states in soft.states.items():
        one, two = real_rows(case, states), real_rows(case, hard.states[name])
        one = one / one.abs().amax(-1, keepdim=True)
        two = two / two.abs().amax(-1, keepdim=True)
        product = (one * two).sum(-1) / (one.square().sum(-1) * two.square().sum(-1)).sqrt()
        found[name] = float(product.mean())
    return found


def head_types(case: ArchitectureCase, soft: Observed, hard: Observed) -> dict[tuple[str, int], str]:
    """The type of every head: `broken` if its weights are not numbers."""
    found = {}
    for name, weights in hard.maps.items():
        seen = (soft.maps[name] > 0).sum(-1)
        attended = (weights > ATTENDED).sum(-1)
        counted = seen > 0
        if case.real is not None and case.real.shape == (weights.shape[0], weights.shape[2]):
            counted = counted & case.real[:, None]
        for head in range(weights.shape[1]):
            if not bool(torch.isfinite(weights[:, head]).all()):
                found[name, head] = "broken"
                continue
            rows = counted[:, head]
            number, all_ = attended[:, head][rows].double(), seen[:, head][rows].double()
            found[name, head] = _name(float((number > 1).double().mean()), float((number / all_).mean()))
    return found


def _name(split: float, share: float) -> str:
    if math.isnan(split) or split <= 0.1:
        return "broken" if math.isnan(split) else "argmax"
    return "mean" if split >= 0.5 and share >= 0.25 else "mixed"
