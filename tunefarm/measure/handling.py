"""Every call into a candidate: announced before it begins, and whatever it raises is the candidate's outcome."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

from tunefarm.measure.bench import Bench
from tunefarm.measure.buffers import SetPool, set_bytes
from tunefarm.measure.choice import byte_count
from tunefarm.measure.entry import Entry, Prepared, Samples
from tunefarm.measure.examine import Examination
from tunefarm.measure.racing import block_launches
from tunefarm.measure.session import DevicePoisonedError, Entered, Report, Settled
from tunefarm.measure.timing import CaptureError, Method, Rotation, one_line, rotate
from tunefarm.measure.verify import refuted
from tunefarm.model.errors import Declined
from tunefarm.model.job import Protocol
from tunefarm.model.problem import Problem
from tunefarm.model.trial import Check, Stage, Status
from tunefarm.ops.operation import Operation

LOAD_DEADLINE_S = 30.0
COMPILE_DEADLINE_S = 180.0
REFERENCE_DEADLINE_S = 120.0
VERIFY_DEADLINE_S = 30.0
BLOCK_DEADLINE_S = 10.0
_LATE = 20
"""How many times its expected time a block may take, beside the deadline's constant part."""
_EAGER_LAUNCHES = 50
_EAGER_US = 50e3
_REPLAYS = 3
FINALIST_REPEATS = 10
_FINALIST_REPEATS_S = 0.05
WINNER_REPEATS = 100
_WINNER_REPEATS_S = 0.1
NOT_DETERMINISTIC = "gave other bits for equal inputs; the job asks for a deterministic winner"


class Handling:
    """What can be done with a candidate of one problem.

    Args:
        problem: whose candidates they are.
        operation: its family.
        protocol: how to verify and time.
        bench: the device, with its timer and engines.
        report: told of each step before it begins, and of each candidate that falls out.
        workspaces: sizes in bytes of the workspaces of all candidates.
    """

    def __init__(
        self,
        *,
        problem: Problem,
        operation: Operation[Any],
        protocol: Protocol,
        bench: Bench,
        report: Report,
        workspaces: Iterable[int],
    ) -> None:
        self._problem = problem
        self._operation = operation
        self._protocol = protocol
        self._bench = bench
        self._report = report
        self._compiling = {b.name for b in operation.baselines(problem) if b.compiles}
        self._first = self._examination(protocol.seed)
        self._pool = SetPool(problem, self._first.inputs, bench.device, workspaces, bench.timer.rotation_bytes)

    def qualify(self, entry: Entry) -> bool:
        """Load and verify a candidate. False if it fell out."""
        plan, bound = entry.plan, self._protocol.max_workspace
        if bound is not None and plan.workspace_bytes > bound:
            needs = f"needs {byte_count(plan.workspace_bytes)} of workspace; the job allows {byte_count(bound)}"
            self._fall_out(entry, Status.DECLINED, Stage.LOAD, needs)
            return False
        compiles = plan.candidate.engine == "torch" and plan.candidate.name in self._compiling
        with self._step(entry, Stage.LOAD, COMPILE_DEADLINE_S if compiles else LOAD_DEADLINE_S):
            began = time.perf_counter()
            entry.executable = self._bench.load(self._problem, plan)
            specimen = self._first.bind(entry.executable, rounds_between=entry.rounds_between)
            entry.load_ms = (time.perf_counter() - began) * 1e3
        if entry.outcome:
            return False
        with self._step(entry, Stage.VERIFY, self._verify_deadline_s()):
            timer = self._bench.timer
            block = timer.block([specimen.bound.launch], timer.plain, sweep=True)
            findings = self._first.examine(specimen, lambda: min(block() for _ in range(timer.screen_samples)))
            entry.verdict, entry.first_call_ms = findings.verdict, findings.first_call_ms
            entry.early = Samples(timer.plain, 1, [findings.launch_us])
            if not findings.verdict.right:
                self._fall_out(entry, Status.WRONG, Stage.VERIFY, findings.verdict.reason)
            else:
                # What torch.compile runs was compiled here: its bytes only say how.
                entry.pass_checks(Check.RANDOM, *[Check.FROM_BYTES] * (not plan.candidate.is_compiled))
        return entry.outcome is None

    def rotation(self, us: float, *, screen: bool = False) -> Rotation:
        """The block of candidates whose fastest takes so long a launch."""
        timer = self._bench.timer
        launches = block_launches(us, screen=screen)
        return rotate(launches, set_bytes(self._problem), timer.l2_bytes, timer.rotation_bytes, timer.cache)

    def time_single(self, entry: Entry) -> bool:
        """Time one launch by itself, beside those timed before. False if the candidate fell out."""
        timer = self._bench.timer
        single = self.prepare(entry, Rotation(1, 1, sweep=timer.l2_bytes > 0), timer.plain)
        us = self.sample_to_screen(entry, single) if single else None
        if us is None:
            return False
        entry.single = entry.single or Samples(timer.plain, 1)
        entry.single.us.append(us)
        return True

    def prepare(self, entry: Entry, rotation: Rotation, method: Method) -> Prepared | None:
        """Bind a candidate to as many sets of tensors as a block has, and make the block. None if it fell out.

        A block that can't be captured into a graph is one of plain launches, and says so.
        """
        timer = self._bench.timer
        prepared = None
        with self._step(entry, Stage.TIME, self._deadline_s(entry, rotation)):
            assert entry.executable
            sets = [self._pool.bind(entry.executable, i) for i in range(rotation.sets)]
            launches = [sets[i % len(sets)].launch for i in range(rotation.launches)]
            try:
                prepared = Prepared(sets, rotation, method, timer.block(launches, method, sweep=rotation.sweep))
            except CaptureError as error:
                if self._bench.is_lost():
                    raise
                block = timer.block(launches, timer.plain, sweep=rotation.sweep)
                prepared = Prepared(sets, rotation, timer.plain, block, uncaptured=str(error))
        return prepared

    def sample(self, entry: Entry, prepared: Prepared) -> float | None:
        """Microseconds of one launch, from one block. None if the candidate fell out."""
        us = math.nan
        with self._step(entry, Stage.TIME, self._deadline_s(entry, prepared.rotation)):
            us = prepared.run()
        return None if entry.outcome else us

    def sample_to_screen(self, entry: Entry, prepared: Prepared) -> float | None:
        """The least of as many blocks as the screen needs, in microseconds of one launch. None if it fell out."""
        us = [self.sample(entry, prepared) for _ in range(self._bench.timer.screen_samples)]
        return None if entry.outcome else min(sample for sample in us if sample is not None)

    def recheck(self, entry: Entry, prepared: Prepared) -> bool:
        """Judge what a timed block leaves behind, and its time. False if the candidate fell out."""
        with self._step(entry, Stage.TIME, self._deadline_s(entry, prepared.rotation)):
            reason = self._first.after_timing(prepared.sets, prepared.run, rounds_between=entry.rounds_between)
            reason = reason or self._first.inputs_changed(self._pool.inputs(len(prepared.sets) - 1))
            ceilings = self._bench.ceilings
            if ceilings and not reason:
                reason = ceilings.objection(self._problem, prepared.rotation, entry.median_us)
            if reason:
                self._refute(entry, Stage.TIME, reason)
            else:
                entry.pass_checks(Check.AFTER_TIMING, *[Check.REPLAYED] * (prepared.method == "graph"))
        return entry.outcome is None

    def prove(self, finalists: Sequence[Entry]) -> bool:
        """Hold finalists to what costs too much for all. False if one fell out. Nobody is proven twice.

        One set of inputs at a time, and all finalists on it: making it costs more than running them.
        """
        unproven = [entry for entry in finalists if not entry.proven]
        if unproven:
            for entry in unproven:
                self._repeat(entry, FINALIST_REPEATS, _FINALIST_REPEATS_S)
            second = self._examination(self._protocol.seed + 1)
            for entry in unproven:
                self._prove_on(second, entry)
        for entry in unproven:
            entry.proven = True
        return all(entry.outcome is None for entry in finalists)

    def prove_winner(self, entry: Entry) -> bool:
        """Repeat who is to win more often; it must be as deterministic as the job asks. False if it fell out."""
        self._repeat(entry, WINNER_REPEATS, _WINNER_REPEATS_S)
        if entry.outcome is None and self._protocol.deterministic and not entry.is_deterministic:
            self._fall_out(entry, Status.DECLINED, Stage.VERIFY, NOT_DETERMINISTIC)
        return entry.outcome is None

    def _repeat(self, entry: Entry, launches: int, seconds: float) -> None:
        with self._step(entry, Stage.VERIFY, self._verify_deadline_s()):
            assert entry.executable
            assert entry.verdict
            specimen = self._first.bind(entry.executable, rounds_between=entry.rounds_between)
            entry.verdict = self._first.repeat(specimen, entry.verdict, launches, seconds)
            if entry.verdict.right:
                entry.pass_checks(Check.REPEATS)
            else:
                self._fall_out(entry, Status.WRONG, Stage.VERIFY, entry.verdict.reason)

    def _prove_on(self, second: Examination, entry: Entry) -> None:
        if entry.outcome:
            return
        with self._step(entry, Stage.VERIFY, self._verify_deadline_s()):
            assert entry.executable
            specimen = second.bind(entry.executable, rounds_between=entry.rounds_between)
            block = self._bench.timer.block([specimen.bound.launch], self._bench.timer.plain, sweep=True)
            verdict = second.examine(specimen, block).verdict
            if verdict.right:
                entry.pass_checks(Check.SECOND_SEED)
            else:
                self._refute(entry, Stage.VERIFY, f"on inputs of another seed: {verdict.reason}")

    def time_in_use(self, entry: Entry) -> bool:
        """Time plain launches from the host, and replays of a graph. False if the candidate fell out."""
        prepared, timer = entry.prepared, self._bench.timer
        us = entry.median_us
        with self._step(entry, Stage.TIME, BLOCK_DEADLINE_S + _LATE * _EAGER_LAUNCHES * us / 1e6):
            assert prepared
            count = max(1, min(_EAGER_LAUNCHES, int(_EAGER_US / us)))
            entry.eager_us = timer.eager([bound.launch for bound in prepared.sets], count)
        if entry.outcome or not timer.captures:
            return entry.outcome is None
        replayed = prepared if prepared.method == "graph" else self.prepare(entry, prepared.rotation, "graph")
        if replayed and not replayed.uncaptured:
            samples = [self.sample(entry, replayed) for _ in range(_REPLAYS)]
            entry.replay_us = median(us for us in samples if us is not None) if entry.outcome is None else None
            if entry.outcome is None and replayed is not prepared:
                self.recheck(entry, replayed)
        return entry.outcome is None

    def used_tf32(self, entry: Entry) -> bool:
        """Whether a candidate's float32 results are only as near as products in TF32 are."""
        return entry.verdict is not None and self._first.used_tf32(entry.verdict)

    def _examination(self, seed: int) -> Examination:
        deadline_s = REFERENCE_DEADLINE_S + _LATE * self._bench.patience_s(self._problem)
        self._report(Entered(Stage.REFERENCE, None, deadline_s))
        return Examination(self._problem, self._operation, self._bench.device, seed)

    def _verify_deadline_s(self) -> float:
        return VERIFY_DEADLINE_S + _LATE * self._bench.patience_s(self._problem)

    def _deadline_s(self, entry: Entry, rotation: Rotation) -> float:
        """Of a block, by the candidate's own earlier launches."""
        return BLOCK_DEADLINE_S + _LATE * rotation.launches * entry.median_us / 1e6

    @contextmanager
    def _step(self, entry: Entry, stage: Stage, deadline_s: float) -> Iterator[None]:
        self._report(Entered(stage, entry.key, deadline_s))
        try:
            yield
        except Declined as refusal:
            self._fall_out(entry, Status.DECLINED, stage, str(refusal))
        except Exception as error:  # whatever a candidate raises is its own failure
            reason = one_line(error)
            if self._bench.is_lost():
                raise DevicePoisonedError(entry.key, stage, reason) from error
            self._fall_out(entry, Status.FAILED, stage, reason)

    def _refute(self, entry: Entry, stage: Stage, reason: str) -> None:
        assert entry.verdict
        entry.verdict = refuted(entry.verdict, reason)
        self._fall_out(entry, Status.WRONG, stage, reason)

    def _fall_out(self, entry: Entry, status: Status, stage: Stage, reason: str) -> None:
        self._report(Settled(entry.fall_out(status, stage, reason)))
