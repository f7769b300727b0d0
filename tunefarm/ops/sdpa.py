"""Attention, forward: scaled dot products under a mask, softmax, and the weighted sum of values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from tunefarm.model.dtypes import DType
from tunefarm.model.errors import InvalidProblem
from tunefarm.model.problem import Problem, Role, TensorSpec, option
from tunefarm.ops.band import Band
from tunefarm.ops.fields import default_to_fields
from tunefarm.ops.graphs import add_input, mark_output
from tunefarm.ops.inputs import normal_tensors
from tunefarm.ops.layouts import packed_strides
from tunefarm.ops.operation import Baseline, Operation, Tensors
from tunefarm.ops.sdpa_baselines import sdpa_baselines

if TYPE_CHECKING:
    import cudnn
    import torch

REFERENCE_SCORES = 2**24
"""Scores that the reference holds at a time: 128 MiB in float64."""


class Mask(StrEnum):
    """Which keys a query may see. Query i stands on the diagonal at key i + shift."""

    NONE = "none"
    """All keys. The diagonal, for a window, starts at the top left: shift 0."""
    CAUSAL = "causal"
    """Keys up to the diagonal, which starts at the top left: shift 0. torch's `is_causal`, cuDNN's TOP_LEFT."""
    CAUSAL_BOTTOM_RIGHT = "causal_bottom_right"
    """Keys up to the diagonal, which ends at the bottom right: shift seq_kv - seq_q. The last query sees all keys, as
    in decoding with a cache. torch's `causal_lower_right`, cuDNN's BOTTOM_RIGHT."""


class SdpaLayout(StrEnum):
    """Order in memory of Q, K, V and O. Shapes are [batch, heads, sequence, head_dim] in both."""

    BHSD = "bhsd"
    BSHD = "bshd"
    """As a linear projection leaves it."""

    @property
    def order(self) -> tuple[int, ...]:
        """The axes, slowest first."""
        return (0, 1, 2, 3) if self is SdpaLayout.BHSD else (0, 2, 1, 3)


@dataclass(frozen=True, kw_only=True)
class SdpaProblem(Problem):
    """O = softmax(scale * Q @ K^T, masked) @ V with scale 1 / sqrt(head_dim), and the softmax's statistics.

    A window of w leaves a query the last w keys up to the diagonal, the diagonal's own among them: j > i + shift - w,
    as cuDNN's left bound. Without a causal mask it leaves the keys after the diagonal too. A query that sees no key
    gets O = 0 and stats = -inf.

    Each key and value head serves heads_q / heads_kv query heads in a row.

    Tensors (uid, name):

    - 1 `q` [batch, heads_q, seq_q, head_dim]
    - 2 `k` [batch, heads_kv, seq_kv, head_dim]
    - 3 `v` [batch, heads_kv, seq_kv, head_dim]
    - 4 `o` [batch, heads_q, seq_q, head_dim]
    - 5 `stats` [batch, heads_q, seq_q, 1] float32; only with stats: the natural logarithm of the sum over seen keys of
      exp(scale * q . k)
    """

    op: ClassVar[str] = "sdpa"

    batch: int = option("sequences", default=1, low=1)
    heads_q: int = option("heads of the queries", low=1)
    heads_kv: int = option("heads of keys and values, a divisor of heads_q; 0: as heads_q", default=0, low=0)
    seq_q: int = option("queries", low=1)
    seq_kv: int = option("keys; 0: as seq_q", default=0, low=0)
    head_dim: int = option("length of one query, key and value: a multiple of 8", low=8)
    dtype: DType = option("element type of Q, K, V and O", default=DType.BFLOAT16)
    layout: SdpaLayout = option("order in memory of Q, K, V and O", default=SdpaLayout.BHSD)
    mask: Mask = option("which keys a query may see", default=Mask.NONE)
    window: int = option("keys up to the diagonal, its own included, that a query may see; 0: all", default=0, low=0)
    stats: bool = option("also return the softmax's log-sum-exp", default=False)

    def __post_init__(self) -> None:
        default_to_fields(self, 0, heads_kv="heads_q", seq_kv="seq_q")
        super().__post_init__()

    def check(self) -> None:
        if self.heads_q % self.heads_kv:
            raise InvalidProblem("heads_kv", f"{self.heads_kv} does not divide heads_q, which is {self.heads_q}")
        if self.head_dim % 8:
            raise InvalidProblem("head_dim", f"{self.head_dim} is not a multiple of 8")
        if self.mask is Mask.CAUSAL_BOTTOM_RIGHT and self.seq_q > self.seq_kv:
            raise InvalidProblem(
                "seq_q",
                f"{self.seq_q} is above seq_kv, which is {self.seq_kv}: with this mask, queries would see no key",
            )

    @property
    def scale(self) -> float:
        """Factor of the scores."""
        return float(self.head_dim**-0.5)

    @property
    def band(self) -> Band:
        """Which keys each query sees."""
        shift = self.seq_kv - self.seq_q if self.mask is Mask.CAUSAL_BOTTOM_RIGHT else 0
        return Band(
            seq_q=self.seq_q,
            seq_kv=self.seq_kv,
            first=shift - self.window + 1 if self.window else None,
            last=None if self.mask is Mask.NONE else shift,
        )

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        def spec(uid: int, name: str, role: Role, heads: int, sequence: int) -> TensorSpec:
            shape = (self.batch, heads, sequence, self.head_dim)
            return TensorSpec(uid, name, role, shape, packed_strides(shape, self.layout.order), self.dtype)

        q = spec(1, "q", Role.INPUT, self.heads_q, self.seq_q)
        k = spec(2, "k", Role.INPUT, self.heads_kv, self.seq_kv)
        v = spec(3, "v", Role.INPUT, self.heads_kv, self.seq_kv)
        o = spec(4, "o", Role.OUTPUT, self.heads_q, self.seq_q)
        rows = (self.batch, self.heads_q, self.seq_q, 1)
        stats = TensorSpec(5, "stats", Role.OUTPUT, rows, packed_strides(rows, (0, 1, 2, 3)), DType.FLOAT32)
        return (q, k, v, o, *[stats] * self.stats)

    @property
    def _options(self) -> str:
        words: list[str] = [self.dtype, self.layout]
        words += [self.mask] * (self.mask is not Mask.NONE)
        words += [f"window{self.window}"] * bool(self.window)
        words += ["stats"] * self.stats
        return " ".join(words)

    @property
    def label(self) -> str:
        heads = str(self.heads_q) if self.heads_q == self.heads_kv else f"{self.heads_q}/{self.heads_kv}"
        return f"sdpa {self.batch}x{heads}x{self.seq_q}x{self.seq_kv}x{self.head_dim} {self._options}"

    @property
    def structure(self) -> str:
        return f"sdpa {self._options}"

    @property
    def bytes_moved(self) -> int:
        """As for every problem, less the keys and values that no query sees."""
        unseen = self.batch * self.heads_kv * (self.seq_kv - self.band.keys) * self.head_dim
        return super().bytes_moved - 2 * unseen * self.dtype.size

    @property
    def flops(self) -> int:
        return 4 * self.batch * self.heads_q * self.head_dim * self.band.pairs


class Sdpa(Operation[SdpaProblem]):
    """The family of attention forwards."""

    name = "sdpa"
    problem_type = SdpaProblem
    is_attention = True

    def build_graph(self, problem: SdpaProblem, graph: cudnn.pygraph) -> None:
        import cudnn

        specs = {t.name: t for t in problem.tensors}
        bottom_right = problem.mask is Mask.CAUSAL_BOTTOM_RIGHT
        alignment = cudnn.diagonal_alignment
        bounds: dict[str, Any] = {"diagonal_alignment": alignment.BOTTOM_RIGHT if bottom_right else alignment.TOP_LEFT}
        if problem.mask is not Mask.NONE:
            bounds["diagonal_band_right_bound"] = 0
        if problem.window:
            bounds["diagonal_band_left_bound"] = problem.window
        o, stats = graph.sdpa(
            q=add_input(graph, specs["q"]),
            k=add_input(graph, specs["k"]),
            v=add_input(graph, specs["v"]),
            attn_scale=problem.scale,
            generate_stats=problem.stats,
            **bounds,
        )
        mark_output(o, specs["o"])
        if problem.stats:
            mark_output(stats, specs["stats"])

    def make_inputs(self, problem: SdpaProblem, device: torch.device, seed: int) -> dict[str, torch.Tensor]:
        """Q, K and V are N(0, 1), and so the scaled scores are."""
        return normal_tensors(problem.inputs, device, seed, {})

    def reference(self, problem: SdpaProblem, inputs: Tensors) -> dict[str, torch.Tensor]:
        """In float64, some rows of one key head at a time, since all scores would not fit any memory."""
        import torch

        q, k, v = inputs["q"], inputs["k"], inputs["v"]
        group = problem.heads_q // problem.heads_kv
        band = problem.band
        o = torch.empty(q.shape, dtype=torch.float64, device=q.device)
        stats = torch.empty((*q.shape[:3], 1), dtype=torch.float64, device=q.device)
        step = max(1, REFERENCE_SCORES // (group * problem.seq_kv))
        for start in range(0, problem.seq_q, step):
            rows = slice(start, min(start + step, problem.seq_q))
            unseen = ~band.seen(rows.start, rows.stop, q.device) if band.bounded else None
            for b in range(problem.batch):
                for head in range(problem.heads_kv):
                    served = slice(head * group, (head + 1) * group)
                    scores = q[b, served, rows].double() @ k[b, head].double().T * problem.scale
                    if unseen is not None:
                        scores.masked_fill_(unseen, -torch.inf)
                    lse = torch.logsumexp(scores, dim=-1, keepdim=True)
                    weights = scores.sub_(lse).exp_()
                    if unseen is not None:  # a row without keys is NaN by now: -inf less -inf
                        weights.masked_fill_(unseen, 0.0)
                    o[b, served, rows] = weights @ v[b, head].double()
                    stats[b, served, rows] = lse
        return {"o": o, "stats": stats} if problem.stats else {"o": o}

    def baselines(self, problem: SdpaProblem) -> tuple[Baseline, ...]:
        """See `sdpa_baselines`."""
        return sdpa_baselines(problem)
