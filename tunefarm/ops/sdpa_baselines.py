"""Attention as torch users write it today, whole and per backend."""

# ruff: noqa: SLF001 - torch names its operators so

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING

from tunefarm.model.dtypes import DType
from tunefarm.ops.band import Band
from tunefarm.ops.baselines import compiled
from tunefarm.ops.operation import Baseline, Tensors

if TYPE_CHECKING:
    import torch

    from tunefarm.ops.sdpa import SdpaProblem

    Attend = Callable[[Tensors, torch.Tensor | None], Tensors]
    """Inputs by name and attention mask -> outputs by name."""

MATH_SCORES = 2**28
"""Scores up to which torch's unfused backend races: it holds all of them, more than once, in up to 4 bytes each."""

FLASH_HEAD_DIM = 256
"""Longest head that torch's flash attention takes."""


def sdpa_baselines(problem: SdpaProblem) -> tuple[Baseline, ...]:
    """`eager`, `compile`, and F.scaled_dot_product_attention held to each backend: `sdpa-flash` and so on.

    Backends are left out where torch refuses the problem on every GPU. A mask tensor, where one is needed, is made once
    and kept, as a model keeps it for all its layers.

    torch's public function returns no statistics. With stats, `eager` is the flash kernel that torch itself calls (a
    private operator) where that serves, else plain math in float32, and there are no baselines per backend.
    """
    if problem.stats:
        attend, mask_on = _attend_with_stats(problem), _mask_for_stats(problem)
    else:
        attend, mask_on = _attend(problem), _mask(problem)

    def masked(attend: Attend) -> Callable[[Tensors], Tensors]:
        return lambda inputs: attend(inputs, mask_on(inputs["q"].device))

    baselines = [Baseline("eager", masked(attend)), Baseline("compile", masked(compiled(attend)), compiles=True)]
    if not problem.stats:
        baselines += [
            Baseline(name, masked(_held_to(backend, attend)), direct=_operator(problem, backend))
            for name, backend in _backends(problem)
        ]
    return tuple(baselines)


class _Spelling(Enum):
    """How torch is told a band."""

    NOTHING = auto()
    IS_CAUSAL = auto()
    LOWER_RIGHT = auto()
    TENSOR = auto()


def _spelling(band: Band) -> _Spelling:
    if band.pairs == band.seq_q * band.seq_kv:
        return _Spelling.NOTHING
    if band.first is None and band.last == 0:
        return _Spelling.IS_CAUSAL
    if band.first is None and band.last == band.seq_kv - band.seq_q:
        return _Spelling.LOWER_RIGHT
    return _Spelling.TENSOR


def _flash_serves(problem: SdpaProblem) -> bool:
    """Whether torch's flash attention takes the problem. Its own causal mask is aligned at the bottom right."""
    if problem.dtype is DType.FLOAT32 or problem.head_dim > FLASH_HEAD_DIM:
        return False
    spelling = _spelling(problem.band)
    if spelling is _Spelling.IS_CAUSAL:
        return problem.seq_q == problem.seq_kv
    return spelling is not _Spelling.TENSOR


def _backends(problem: SdpaProblem) -> list[tuple[str, str]]:
    """Names of the baselines, and of torch's backends, that can serve the problem on some GPU."""
    scores = problem.batch * problem.heads_q * problem.seq_q * problem.seq_kv
    serves = {
        ("sdpa-flash", "FLASH_ATTENTION"): _flash_serves(problem),
        ("sdpa-efficient", "EFFICIENT_ATTENTION"): problem.heads_q == problem.heads_kv,
        ("sdpa-cudnn", "CUDNN_ATTENTION"): problem.dtype is not DType.FLOAT32,
        ("sdpa-math", "MATH"): scores <= MATH_SCORES,
    }
    return [names for names, served in serves.items() if served]


def _mask(problem: SdpaProblem) -> Callable[[torch.device], torch.Tensor | None]:
    """The attention mask that torch needs beside `is_causal`, by device."""

    @lru_cache(maxsize=1)
    def on(device: torch.device) -> torch.Tensor | None:
        from torch.nn.attention.bias import causal_lower_right

        match _spelling(problem.band):
            case _Spelling.LOWER_RIGHT:
                bias: torch.Tensor = causal_lower_right(problem.seq_q, problem.seq_kv)
                return bias
            case _Spelling.TENSOR:
                return problem.band.seen(0, problem.seq_q, device)
        return None

    return on


def _attend(problem: SdpaProblem) -> Attend:
    is_causal = _spelling(problem.band) is _Spelling.IS_CAUSAL
    grouped = problem.heads_q != problem.heads_kv

    def attend(inputs: Tensors, mask: torch.Tensor | None) -> Tensors:
        from torch.nn import functional

        q, k, v = inputs["q"], inputs["k"], inputs["v"]
        o = functional.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal, enable_gqa=grouped)
        return {"o": o}

    return attend


def _held_to(backend: str, attend: Attend) -> Attend:
    def held(inputs: Tensors, mask: torch.Tensor | None) -> Tensors:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(getattr(SDPBackend, backend)):
            return attend(inputs, mask)

    return held


def _operator(problem: SdpaProblem, backend: str) -> Callable[[Tensors], Tensors] | None:
    """The operator that torch's function ends in when it is held to a backend; None where it ends in none.

    Holding it costs 22 us of host time on the way. Scale and the heads that share keys are the operators' own business.
    """
    spelling = _spelling(problem.band)
    if spelling not in {_Spelling.NOTHING, _Spelling.IS_CAUSAL}:
        return None
    causal, grouped = spelling is _Spelling.IS_CAUSAL, problem.heads_q != problem.heads_kv

    def direct(inputs: Tensors) -> Tensors:
        import torch

        q, k, v, aten = inputs["q"], inputs["k"], inputs["v"], torch.ops.aten
        match backend:
            case "FLASH_ATTENTION" if q.is_cuda:
                o, *_ = aten._scaled_dot_product_flash_attention.default(q, k, v, 0.0, causal)
            case "FLASH_ATTENTION":
                o, *_ = aten._scaled_dot_product_flash_attention_for_cpu.default(q, k, v, 0.0, causal)
            case "EFFICIENT_ATTENTION":
                o, *_ = aten._scaled_dot_product_efficient_attention.default(q, k, v, None, False, 0.0, causal)
            case "CUDNN_ATTENTION":
                o, *_ = aten._scaled_dot_product_cudnn_attention.default(q, k, v, None, False, 0.0, causal)
            case _:
                o, _ = aten._scaled_dot_product_attention_math.default(q, k, v, None, 0.0, causal, enable_gqa=grouped)
        return {"o": o}

    return direct


def _mask_for_stats(problem: SdpaProblem) -> Callable[[torch.device], torch.Tensor | None]:
    """A mask for plain math; flash attention needs none."""

    @lru_cache(maxsize=1)
    def on(device: torch.device) -> torch.Tensor | None:
        needed = problem.band.bounded and not (device.type == "cuda" and _flash_serves(problem))
        return problem.band.seen(0, problem.seq_q, device) if needed else None

    return on


def _attend_with_stats(problem: SdpaProblem) -> Attend:
    flash = _flash_serves(problem)
    is_causal = _spelling(problem.band) is not _Spelling.NOTHING
    group = problem.heads_q // problem.heads_kv

    def attend(inputs: Tensors, mask: torch.Tensor | None) -> Tensors:
        import torch

        q, k, v = inputs["q"], inputs["k"], inputs["v"]
        if flash and q.is_cuda:
            o, lse, *_ = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, is_causal=is_causal)
            return {"o": o, "stats": lse[..., None]}
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores = q.float() @ k.float().transpose(-1, -2) * problem.scale
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        stats = torch.logsumexp(scores, dim=-1, keepdim=True)
        weights = torch.exp(scores - stats)
        if mask is not None:
            weights = weights.masked_fill(~mask, 0.0)
        return {"o": (weights @ v.float()).to(q.dtype), "stats": stats}

    return attend
