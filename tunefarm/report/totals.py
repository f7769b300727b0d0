"""What a whole job's summaries add up to. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tunefarm.model.trial import Status, Trial
from tunefarm.report.summary import ProblemSummary


@dataclass(frozen=True)
class Gain:
    """How much faster the winners are than something else."""

    mean: float
    """Geometric mean of the ratios."""
    problems: int
    """How many problems have such a ratio."""


@dataclass(frozen=True)
class Totals:
    """A job's summaries, added up."""

    problems: int
    without_winner: int
    over_default: Gain | None
    over_torch: Gain | None
    over_eager: Gain | None
    counts: Mapping[Status, int]
    """How many candidates ended how."""


def add_up(summaries: Sequence[ProblemSummary]) -> Totals:
    """The totals of some summaries."""
    counts: Counter[Status] = Counter()
    for summary in summaries:
        counts.update(summary.counts)
    return Totals(
        problems=len(summaries),
        without_winner=sum(summary.winner is None for summary in summaries),
        over_default=_gain(summary.gain_over(summary.default) for summary in summaries),
        over_torch=_gain(summary.gain_over(summary.torch) for summary in summaries),
        over_eager=_gain(summary.gain_over(summary.eager) for summary in summaries),
        counts=counts,
    )


def _gain(ratios: Iterable[float | None]) -> Gain | None:
    known = [math.log(ratio) for ratio in ratios if ratio is not None]
    return Gain(math.exp(sum(known) / len(known)), len(known)) if known else None


@dataclass(frozen=True)
class KernelCacheUse:
    """What one dynamic candidate's builds cost over several problems of one structure."""

    target: str
    structure: str
    candidate: str
    """The candidate's label."""
    first_ms: float
    """The build of the first problem, which compiles."""
    later_ms: float | None
    """Median build of the later problems, which may find the kernel in the cache; None if there was no other."""
    static_ms: float | None
    """Median build of the same engine and knobs with static shapes, over the same problems; None if there was none."""
    problems: int


def kernel_cache_uses(summaries: Iterable[ProblemSummary]) -> tuple[KernelCacheUse, ...]:
    """What the kernel cache saved, one entry for each dynamic candidate of a structure. Empty without dynamic ones."""
    dynamic: dict[tuple[str, str, str], list[Trial]] = {}
    static: dict[tuple[str, str, str], list[float]] = {}
    for summary in summaries:
        for trial in summary.trials:
            if trial.build_ms is None:
                continue
            candidate = trial.outcome.candidate
            key = summary.target, summary.problem.structure, f"{candidate.engine}:{candidate.name}"
            if candidate.dynamic:
                dynamic.setdefault(key, []).append(trial)
            else:
                static.setdefault(key, []).append(trial.build_ms)
    uses = []
    for key, trials in dynamic.items():
        target, structure, _ = key
        first, *later = (trial.build_ms or 0.0 for trial in sorted(trials, key=lambda trial: trial.finished_at))
        uses.append(
            KernelCacheUse(
                target=target,
                structure=structure,
                candidate=trials[0].outcome.candidate.label,
                first_ms=first,
                later_ms=median(later) if later else None,
                static_ms=median(static[key]) if key in static else None,
                problems=len(trials),
            )
        )
    return tuple(uses)
