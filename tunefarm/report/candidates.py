"""Every candidate of one problem: where it stands, its figures, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.text import Text

from tunefarm.model.target import Target
from tunefarm.model.trial import Standing, Trial
from tunefarm.report.figures import ABSENT, duration, microseconds, plural, printable, ratio, relative_error, size
from tunefarm.report.summary import ProblemSummary, error_of, time_ratio


@dataclass(frozen=True)
class CandidateReport:
    """Something that rich can print: for each candidate one line in columns, and below it what explains it."""

    summary: ProblemSummary
    targets: Mapping[str, Target]
    """By key."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        summary = self.summary
        label = self.targets[summary.target].label if summary.target in self.targets else summary.target
        yield Text(printable(f"{summary.name}: {summary.problem.label}"), style="bold")
        yield Text(printable(f"problem {summary.problem.key}"))
        yield Text(printable(f"on {label}, {summary.protocol.cache.value} cache, {_count(summary)}"))
        rows = [_columns(trial, summary) for trial in summary.trials]
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
        for trial, row in zip(summary.trials, rows, strict=True):
            cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
            line = f"{row[0].ljust(widths[0])}  {'  '.join(cells)}  {trial.outcome.candidate.label}".rstrip()
            yield ""
            yield Text(printable(line), style="bold" if trial is summary.winner else "", overflow="fold")
            for detail in _details(trial):
                yield Padding(Text(printable(detail), style="dim", overflow="fold"), (0, 0, 0, 2))
        for trial in summary.refusals:
            yield ""
            yield Text(printable(f"{trial.outcome.candidate.engine} has no candidate: {trial.outcome.reason}"))


def _count(summary: ProblemSummary) -> str:
    return f"{plural(len(summary.trials), 'candidate')}" + ("" if summary.winner else ", no winner")


def _columns(trial: Trial, summary: ProblemSummary) -> tuple[str, str, str, str]:
    """Standing or status, time, its interval, ratio to the winner's."""
    outcome, measured = trial.outcome, trial.outcome.measurement
    if measured is None:
        return outcome.status.value.replace("_", " "), "", "", ""
    standing = outcome.standing.value if outcome.standing else outcome.status.value
    interval = f"[{microseconds(measured.low_us)}, {microseconds(measured.high_us)}]"
    against = ratio(time_ratio(trial, summary.winner)) if summary.winner else ABSENT
    return standing, f"{microseconds(measured.time_us)} us", interval, against


def _details(trial: Trial) -> Iterator[str]:
    outcome, measured = trial.outcome, trial.outcome.measurement
    figures = {
        "error": relative_error(error_of(trial)),
        "workspace": size(trial.workspace_bytes),
        "plan": size(trial.plan_bytes),
        "build": duration(trial.build_ms),
        "load": duration(measured.load_ms) if measured else ABSENT,
        "eager": f"{microseconds(measured.eager_us)} us" if measured and measured.eager_us is not None else ABSENT,
        "replayed": f"{microseconds(measured.replay_us)} us" if measured and measured.replay_us is not None else ABSENT,
    }
    known = ", ".join(f"{name} {text}" for name, text in figures.items() if text != ABSENT)
    if known:
        yield known
    knobs = trial.resolved_knobs or outcome.candidate.knobs
    if knobs:
        yield "knobs " + ", ".join(f"{name}={value}" for name, value in knobs)
    if measured is None:
        signal = f" ({outcome.signal})" if outcome.signal and outcome.signal not in outcome.reason else ""
        yield f"at stage {outcome.stage.value}: {outcome.reason}{signal}"
    elif outcome.why and outcome.standing is not Standing.WON:
        yield outcome.why
    if outcome.candidate.is_default:
        yield "what cuDNN's heuristic puts first"
