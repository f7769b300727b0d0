"""The plan book: a bundle opened in an inference process. Its calls are torch's, answered by the plans that fit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional

from tunefarm.engines import make_engine
from tunefarm.engines.engine import Engine
from tunefarm.model.errors import UsageError
from tunefarm.model.problem import Problem, Role
from tunefarm.model.target import Target
from tunefarm.ops.sdpa import Mask
from tunefarm.runtime import functions
from tunefarm.runtime.attention_call import AttentionCall, is_lower_right
from tunefarm.runtime.bundle import Bundle
from tunefarm.runtime.calls import ProblemCall
from tunefarm.runtime.chain import Chain
from tunefarm.runtime.conv_call import ConvCall
from tunefarm.runtime.eager import Pair
from tunefarm.runtime.explanation import Explanation
from tunefarm.runtime.facts import facts_of_all, facts_of_three, facts_of_two
from tunefarm.runtime.ledger import Cause, Counters, Ledger, Step
from tunefarm.runtime.lookup import Found, Hit
from tunefarm.runtime.machine import Machine, current_device
from tunefarm.runtime.misses import job_text
from tunefarm.runtime.product_calls import LinearCall, MatmulCall
from tunefarm.runtime.threads import Desk, OnMiss, Shared
from tunefarm.runtime.trust import Trust

_compiling = torch.compiler.is_compiling


def _cudnn_engine() -> Engine:
    return make_engine("cudnn")


class PlanBook:
    """Looks up, loads and runs the plans of a bundle; what no plan serves, torch does.

    A call runs on torch's current stream, may be captured in a CUDA graph, and may come from any thread: plans are
    loaded once in each thread that calls them. Results equal torch's within the dtype's rounding. Calls of which a
    tensor needs a gradient, and calls under autocast, are torch's.

    The chain of a call: the bundle's plan for this device and these libraries; a plan rebuilt from the engine and knobs
    of one that does not fit; the first choice of cuDNN's heuristic; torch. Each step is counted (`counters`), the first
    call of a problem that leaves the first step is logged as a warning, and `explain` tells the whole story.
    """

    def __init__(
        self,
        bundle: Bundle,
        *,
        on_miss: OnMiss = "torch",
        machine: Callable[[torch.device], Target] | None = None,
        engine: Callable[[], Engine] = _cudnn_engine,
    ) -> None:
        """A book of an opened bundle; `open` is the usual way.

        Args:
            bundle: verified, and kept open.
            on_miss: see `open`.
            machine: the target that a device is; None asks this process's libraries.
            engine: makes the engine that loads and builds plans, once in each thread.
        """
        self._bundle = bundle
        self._on_miss = on_miss
        self._ledger = Ledger()
        self._chain = Chain(bundle, machine or Machine())
        self._shared = Shared(self._chain, self._ledger, engine, on_miss)
        self._desk = Desk(self._shared)
        self._input_names: dict[str, tuple[str, ...]] = {}
        self._number = functions.register(self)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        trust: Trust | None = None,
        *,
        allow_unsigned: bool = False,
        on_miss: OnMiss = "torch",
    ) -> Self:
        """Open a bundle and verify its manifest. Plans are read and loaded when first called, or by `warm`.

        Args:
            path: of the bundle.
            trust: public keys or their files, one of which must have signed it.
            allow_unsigned: let in a bundle without a signature. Each use is logged as a warning.
            on_miss: what a call does that no shipped plan serves. `torch`, the default: torch answers at once, and only
                `warm` builds. `build`: the first such call builds a plan, which takes from milliseconds to seconds.

        Raises:
            BundleRefused: no trusted key signed it, or its format is of another version.
            BundleDamaged: it is no bundle, or not as it was written.
            UsageError: there is no such file, or nobody to trust.
        """
        return cls(Bundle.open(path, trust, allow_unsigned=allow_unsigned), on_miss=on_miss)

    @property
    def bundle(self) -> Bundle:
        """What the book was opened from."""
        return self._bundle

    @property
    def counters(self) -> Counters:
        """The calls up to now, by what answered them."""
        return self._ledger.counters()

    def linear(self, x: Tensor, w: Tensor, b: Tensor | None = None, activation: str = "none") -> Tensor:
        """activation(x @ w.T + b), as `torch.nn.functional.linear`.

        Args:
            x: [..., k].
            w: [n, k].
            b: [n].
            activation: `none`, `relu`, `gelu` (exact) or `swish`.

        Returns:
            [..., n], contiguous.
        """
        if _compiling():
            return functions.linear(self._number, x, w, b, activation)
        tensors = (x, w) if b is None else (x, w, b)
        key = ("linear", activation, facts_of_two(x, w) if b is None else facts_of_three(x, w, b))
        route = self._desk.routes.get(key)
        if route is None:
            route = self._desk.make_route(key, LinearCall(activation), tensors)
        result: Tensor = route(tensors)
        return result

    def matmul(
        self, a: Tensor, b: Tensor, bias: Tensor | None = None, activation: str = "none", alpha: float = 1.0
    ) -> Tensor:
        """activation(alpha * a @ b + bias), as `torch.matmul`.

        Args:
            a: [..., m, k].
            b: [..., k, n] or [k, n].
            bias: [n].
            activation: as for `linear`.
            alpha: finite and not 0.

        Returns:
            [..., m, n], contiguous.
        """
        if _compiling():
            return functions.matmul(self._number, a, b, bias, activation, alpha)
        tensors = (a, b) if bias is None else (a, b, bias)
        key = ("matmul", activation, alpha, facts_of_two(a, b) if bias is None else facts_of_three(a, b, bias))
        route = self._desk.routes.get(key)
        if route is None:
            route = self._desk.make_route(key, MatmulCall(activation, alpha), tensors)
        result: Tensor = route(tensors)
        return result

    def conv2d(  # noqa: PLR0917 - torch's own signature
        self,
        x: Tensor,
        w: Tensor,
        b: Tensor | None = None,
        stride: Pair = 1,
        padding: Pair | str = 0,
        dilation: Pair = 1,
        groups: int = 1,
        activation: str = "none",
    ) -> Tensor:
        """activation(conv2d(x, w, b)), as `torch.nn.functional.conv2d`.

        Args:
            x: [batch, channels, rows, columns]. Plans are for image and filter that are both contiguous, or both in
                channels-last order.
            w: [filters, channels / groups, rows, columns].
            b: [filters].
            stride: of the filter, over rows and columns.
            padding: zeros on each side, or `same` or `valid`.
            dilation: distance between the filter's rows and columns.
            groups: of channels that don't mix.
            activation: as for `linear`.
        """
        if _compiling():
            return functions.conv2d(
                self._number,
                x,
                w,
                b,
                stride=stride,
                padding=padding,
                dilation=dilation,
                groups=groups,
                activation=activation,
            )
        stride, padding, dilation = _hashable(stride), _hashable(padding), _hashable(dilation)
        tensors = (x, w) if b is None else (x, w, b)
        facts = facts_of_two(x, w) if b is None else facts_of_three(x, w, b)
        key = ("conv2d", stride, padding, dilation, groups, activation, facts)
        route = self._desk.routes.get(key)
        if route is None:
            route = self._desk.make_route(key, ConvCall(stride, padding, dilation, groups, activation), tensors)
        result: Tensor = route(tensors)
        return result

    def scaled_dot_product_attention(  # noqa: PLR0917 - torch's own signature
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """Attention, as `torch.nn.functional.scaled_dot_product_attention`, whose arguments these are.

        Plans are for queries, keys and values that are all contiguous, or all [batch, sequence, heads, head_dim] in
        memory; for `is_causal`, or `torch.nn.attention.bias.causal_lower_right` as the mask, or none. Dropout and other
        masks are torch's.
        """
        if attn_mask is None and not dropout_p:
            if _compiling():
                return functions.attention(
                    self._number, query, key, value, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
                )
            mask = Mask.CAUSAL if is_causal else Mask.NONE
        elif is_lower_right(attn_mask, query, key) and not dropout_p and not is_causal and not _compiling():
            mask = Mask.CAUSAL_BOTTOM_RIGHT
        else:
            if not _compiling():
                self._desk.leave_to_torch(AttentionCall.name, Cause.UNSERVED, "dropout, or a mask that no problem has")
            return functional.scaled_dot_product_attention(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        tensors = (query, key, value)
        asked = ("attention", mask, scale, enable_gqa, facts_of_three(query, key, value))
        route = self._desk.routes.get(asked)
        if route is None:
            route = self._desk.make_route(asked, AttentionCall(mask, scale, enable_gqa), tensors)
        result: Tensor = route(tensors)
        return result

    def run(self, problem: Problem, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Every output of a problem, by name.

        Args:
            problem: of any operation family.
            inputs: the problem's inputs by name. Host scalars may be left out: their values are the problem's own.

        Raises:
            UsageError: an input is missing, or has another shape or dtype than the problem says.
        """
        names = self._input_names.get(problem.key)
        if names is None:
            names = tuple(spec.name for spec in problem.inputs if spec.role is Role.INPUT)
            self._input_names[problem.key] = names
        try:
            tensors = tuple(inputs[name] for name in names)
        except KeyError as missing:
            raise UsageError(f"{problem.label} needs the input {missing}; its inputs are {', '.join(names)}") from None
        key = ("run", problem.key, facts_of_all(tensors))
        route = self._desk.routes.get(key)
        if route is None:
            route = self._desk.make_route(key, ProblemCall(problem), tensors)
        outputs: dict[str, Tensor] = route(tensors)
        return outputs

    def warm(self, problems: Iterable[Problem] | None = None, *, build: bool = False) -> dict[Problem, Step]:
        """Load plans now, on torch's current device and for the calling thread; each other thread loads as it calls.

        Args:
            problems: which; None for all that the bundle has an entry for.
            build: whether to build what no shipped plan serves, as `on_miss="build"` has calls do. Takes up to seconds
                a problem.

        Returns:
            The step of the chain that serves each problem from now on.
        """
        device = current_device()
        build = build or self._on_miss == "build"
        wanted = self._chain.problems() if problems is None else problems
        steps = {problem: self._desk.decide(problem, device, build=build)[0].step for problem in wanted}
        if build:
            self._shared.forget_routes()  # those to torch, of problems that have a plan now
        return steps

    def find(self, problem: Problem, device: torch.device | None = None) -> Found:
        """The bundle's plan for a problem on a device, or every entry of the problem with the reason it does not fit.

        Loads nothing.

        Args:
            problem: to look up.
            device: None for torch's current one.
        """
        return self._chain.find(problem, _indexed(device))

    def fitting(self, device: torch.device | None = None) -> tuple[Problem, ...]:
        """Every problem that the bundle has a plan for that fits a device; None for torch's current one."""
        return tuple(problem for problem in self._chain.problems() if isinstance(self.find(problem, device), Hit))

    def explain(self, problem: Problem, device: torch.device | None = None) -> Explanation:
        """What the bundle has for a problem, what was decided, and what answered its calls. Prints as text.

        Args:
            problem: to explain.
            device: None for torch's current one.
        """
        device = _indexed(device)
        return Explanation(
            problem,
            str(device),
            self._chain.find(problem, device),
            self._chain.decided(problem, device),
            self._ledger.calls_of(problem),
        )

    def misses(self, path: str | os.PathLike[str], name: str = "misses") -> int:
        """Write a job file with every problem that was called and had no shipped plan, most called first.

        Each problem's calls are its weight, by which the next sweep orders them. Writes nothing if there is none.

        Args:
            path: of the job file, which is overwritten.
            name: of the job.

        Returns:
            The number of problems.
        """
        missed = self._ledger.missed()
        if missed:
            Path(path).write_text(job_text(missed, name), encoding="utf-8")
        return len(missed)

    def __deepcopy__(self, _memo: object) -> Self:
        return self  # a copied model shares its book

    def __reduce__(self) -> str:
        raise UsageError(
            "a plan book can't be pickled: save the model's state dict, and apply the book after loading it"
        )


def _hashable(value: Pair | str) -> Any:
    """A list, which torch takes too, as a tuple."""
    return tuple(value) if isinstance(value, list) else value


def _indexed(device: torch.device | None) -> torch.device:
    """A device with its index, as tensors name theirs."""
    if device is None or (device.type == "cuda" and device.index is None):
        return current_device()
    return device
