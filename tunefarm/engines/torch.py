"""The engine `torch`: what users have today. Its plans are recipes, and it runs on a CPU too."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from tunefarm.engines.engine import Engine, Executable, Launch
from tunefarm.model.candidate import Candidate, Plan, Proposal
from tunefarm.model.errors import Declined
from tunefarm.model.job import Search
from tunefarm.model.keys import canonical_json
from tunefarm.model.problem import Problem
from tunefarm.ops import operation_of
from tunefarm.ops.operation import Baseline

if TYPE_CHECKING:
    import torch

RECIPE_FORMAT = 1
"""Version of a recipe's JSON: `{"baseline": name, "format": 1, "torch": version}`."""
_LIMIT = 240
"""Characters of a reason that are kept."""
_ASIDE = re.compile(r" \(Triggered internally at .*|.*not used because:|.*has been runtime disabled\.", re.DOTALL)
"""What torch's warnings about a refused attention hold beside the reason: places in its source, backends not asked."""


def use_all_cores() -> None:
    """Give torch every core that this process may use; Ray limits its workers to the cores that they reserved."""
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))


class TorchEngine(Engine):
    """The baselines of a problem's operation as candidates, on torch's current device."""

    name: ClassVar[str] = "torch"

    def __init__(self) -> None:
        # Inductor would start a pool of compile processes and leave it running, beside measurements and after a kill.
        # It reads this when it loads, which is at the first torch.compile.
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

    def propose(self, problem: Problem, search: Search) -> Proposal:
        baselines = [b for b in operation_of(problem).baselines(problem) if search.compile or not b.compiles]
        return Proposal(
            self.name,
            tuple(
                Candidate(engine=self.name, name=baseline.name, proposed_by=self.name, rank=rank)
                for rank, baseline in enumerate(baselines)
            ),
        )

    def build(self, problem: Problem, candidate: Candidate) -> Plan:
        import torch

        _baseline(problem, candidate.name)
        recipe = {"format": RECIPE_FORMAT, "baseline": candidate.name, "torch": torch.__version__}
        return Plan(candidate, canonical_json(recipe).encode(), workspace_bytes=0, build_ms=0.0)

    def load(self, problem: Problem, plan: Plan) -> Executable:
        try:
            recipe = json.loads(plan.blob)
            wanted, format_ = str(recipe["baseline"]), recipe["format"]
        except (ValueError, KeyError, TypeError):
            raise Declined("its bytes are no recipe of the torch engine: damaged, or another engine's") from None
        if format_ != RECIPE_FORMAT:
            raise Declined(f"its recipe has format {format_}; this tunefarm reads format {RECIPE_FORMAT}")
        if wanted != plan.candidate.name:
            raise Declined(f"the recipe is for {wanted}, not {plan.candidate.name}")
        return TorchExecutable(_baseline(problem, wanted))


class TorchExecutable(Executable):
    """A baseline, ready to run."""

    workspace_bytes = 0

    def __init__(self, baseline: Baseline) -> None:
        self._baseline = baseline
        self._tried = False

    def bind(
        self,
        inputs: Mapping[str, torch.Tensor],
        outputs: dict[str, torch.Tensor],
        workspace: torch.Tensor | None,  # noqa: ARG002 - torch allocates what it needs
    ) -> Launch:
        """A launch over fixed inputs. The first one to be bound runs the baseline once.

        That is where torch compiles, and where it finds out what it doesn't support: neither can be had without inputs.

        Raises:
            Declined: torch refuses the problem this way, or can't compile it here.
        """
        run = self._baseline.run
        if not self._tried:
            with _declining(self._baseline):
                run(inputs)
            self._tried = True

        def launch() -> None:
            outputs.update(run(inputs))

        return launch


@contextmanager
def _declining(baseline: Baseline) -> Iterator[None]:
    """Turn torch's refusal into `Declined`. Memory that ran out and errors of the device are no refusals."""
    import torch

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")  # torch raises `No available kernel.` and warns of the reasons
        try:
            yield
        except (torch.OutOfMemoryError, torch.AcceleratorError):
            raise
        except (RuntimeError, ValueError) as refusal:
            reason = _reason(str(refusal), [str(warning.message) for warning in told])
            if baseline.compiles and re.search(r"C(\+\+)? compiler", reason):
                reason = f"torch.compile has no compiler to call; install g++, or set CC and CXX ({reason})"
            raise Declined(reason or type(refusal).__name__) from None


def _reason(error: str, told: list[str]) -> str:
    """One line: what torch warned of where its error tells nothing, else the error's first line."""
    text = next(iter(error.strip().splitlines()), "")
    if text.startswith("No available kernel"):
        told = [_ASIDE.sub("", warning).strip() for warning in told]
        text = "; ".join(dict.fromkeys(filter(None, told))) or text
    return text if len(text) <= _LIMIT else text[: _LIMIT - 1].rstrip() + "…"


def _baseline(problem: Problem, name: str) -> Baseline:
    for baseline in operation_of(problem).baselines(problem):
        if baseline.name == name:
            return baseline
    raise Declined(f"{problem.op} has no torch baseline named {name}")
