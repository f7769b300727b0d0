"""Work whose start no driver has outlived: met last and alone, and given up in the end. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tunefarm.farm.journal import MAX_STARTS, Start, StartJournal
from tunefarm.farm.lane import BuildCall, Call, Finished, Pending, ProposeCall
from tunefarm.model.candidate import Candidate, refused_candidate
from tunefarm.model.job import Task
from tunefarm.model.trial import Failure, Outcome, Stage, Status, trial_key


def call_starts(call: Call, target: str) -> list[Start]:
    """What a call starts. Anchors are not among it: they have a row, and were outlived before."""
    task = call.pending.task
    if isinstance(call, ProposeCall):
        return [(Stage.PROPOSE, _key(task, target, refused_candidate(engine))) for engine in call.pending.engines]
    wanted = set(call.pending.candidates)
    if isinstance(call, BuildCall):
        return [(Stage.BUILD, _key(task, target, c)) for c in call.candidates if c in wanted]
    return [(Stage.LOAD, _key(task, target, f.candidate)) for f in call.pending.facts.values() if f.candidate in wanted]


def withhold(pending: Sequence[Pending], target: str, suspects: set[str]) -> None:
    """Ask no suspect engine. Suspect candidates stay out of a lane that counts their trials as finished."""
    for p in pending:
        p.engines = tuple(e for e in p.engines if _key(p.task, target, refused_candidate(e)) not in suspects)


def alone(
    pending: Sequence[Pending], target: str, suspects: set[str], journal: StartJournal
) -> Iterator[tuple[str, Pending | Finished]]:
    """What is left of suspects: by trial key: each as a problem of its own, or as a row if started too often."""
    met: set[str] = set()
    for p in pending:
        asked = [(refused_candidate(engine), replace(p, engines=(engine,), candidates=())) for engine in p.engines]
        built = [(c, replace(p, engines=(), candidates=(c,))) for c in p.candidates]
        for candidate, part in (*asked, *built):
            key = _key(p.task, target, candidate)
            if key not in suspects or key in met:
                continue
            met.add(key)
            stage = max((Stage.PROPOSE, Stage.BUILD, Stage.LOAD), key=lambda stage: journal.starts((stage, key)))
            starts = journal.starts((stage, key))
            if starts < MAX_STARTS:
                yield key, part
                continue
            reason = (
                f"started {starts} times and never finished: its driver died each time, the last time under it alone"
            )
            yield key, Finished(p.task, (Outcome.of(Failure(candidate, Status.CRASHED, stage, reason)),), {})


def _key(task: Task, target: str, candidate: Candidate) -> str:
    return trial_key(task.problem.key, target, candidate.key, task.protocol.key)
