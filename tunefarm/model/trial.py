"""Trials: what happened to a candidate, as one row."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from json.encoder import encode_basestring_ascii
from typing import Self

from tunefarm.model.candidate import Candidate, Knobs
from tunefarm.model.job import Protocol
from tunefarm.model.keys import KEY_DIGITS, KEY_VERSION
from tunefarm.model.problem import Problem


class Stage(StrEnum):
    """The steps of a candidate's way, in order."""

    PROPOSE = "propose"
    BUILD = "build"
    LOAD = "load"
    REFERENCE = "reference"
    """The problem's own inputs and reference, before its first candidate is verified."""
    VERIFY = "verify"
    TIME = "time"


class Status(StrEnum):
    """How a trial ended."""

    MEASURED = "measured"
    """Verified right, and timed."""
    WRONG = "wrong"
    """Ran and gave wrong results: never timed, never ranked."""
    DECLINED = "declined"
    """The engine refused it, it breaks a bound that the job set, or it is the twin of another candidate."""
    FAILED = "failed"
    """Raised an error."""
    CRASHED = "crashed"
    """Its process died of a signal, or went away by itself."""
    TIMED_OUT = "timed_out"
    """It passed its deadline and its process was killed."""


class Standing(StrEnum):
    """Where a measured candidate ended among those of its problem."""

    WON = "won"
    TIED = "tied"
    """Not slower than the winner beyond the indifference margin; a tie rule put it second."""
    SLOWER = "slower"
    """Raced, and surely slower."""
    SCREENED = "screened"
    """Left out of the race: its first launches were far slower than the best."""


@dataclass(frozen=True)
class Failure:
    """Why a candidate has no measurement."""

    candidate: Candidate
    status: Status
    stage: Stage
    reason: str
    """One line for people."""
    signal: str | None = None
    """Name of the signal that ended its process, such as `SIGSEGV`."""


@dataclass(frozen=True)
class OutputError:
    """How far one output was from its reference. Definitions: `measure/verify.py`."""

    name: str
    l2: float
    """|y - r| / |r| over the whole tensor."""
    block: float
    """Largest root-mean-square error of a 32 x 32 block, relative to the block's own."""
    element: float
    """Largest error of an element in units of roundoff."""
    gain: float
    """<y, r> / <r, r> - 1."""


class Check(StrEnum):
    """What a candidate's results were held to. Every verified one has `random`; finalists are held to all that can be.

    A check is recorded once it was passed. What failed one is wrong, and its reason says which.
    """

    RANDOM = "random"
    """Normally distributed inputs, outputs filled with NaN before, margins and inputs unharmed; workspaces of garbage
    and of zeros."""
    AFTER_TIMING = "after_timing"
    """The outputs of its timed block, made anew after the block had been timed."""
    REPLAYED = "replayed"
    """The outputs of a CUDA graph's replay, after that had been timed."""
    FROM_BYTES = "from_bytes"
    """What ran was loaded from the very bytes that the plan's digest names."""
    SECOND_SEED = "second_seed"
    """As `random`, on inputs of another seed."""
    REPEATS = "repeats"
    """Launches again and again with other workspaces: each right, whether or not of equal bits."""
    INTEGER = "integer"
    """Inputs of small whole numbers, whose results are known to the last bit, at addresses that are barely aligned."""
    EXTREME = "extreme"
    """Inputs with large offsets, rows that are constant or zero, and magnitudes far apart."""


@dataclass(frozen=True)
class Verdict:
    """Whether a candidate's results are right, and by how much they are off."""

    right: bool
    reason: str
    """Empty if right; else the gate that it failed, with figure and bound."""
    outputs: tuple[OutputError, ...] = ()
    deterministic: bool | None = None
    """Whether launches on equal inputs gave equal bits. None where too few were compared to say that they do."""
    repeats: int | None = None
    """Launches whose bits were compared; None where nobody looked."""
    checks: tuple[Check, ...] = ()
    """What it passed, in the order of `Check`."""

    def passed(self, *checks: Check) -> Self:
        """The verdict with further checks passed."""
        done = {*self.checks, *checks}
        return replace(self, checks=tuple(check for check in Check if check in done))


@dataclass(frozen=True)
class Block:
    """One timed sample: n back-to-back launches between two marks."""

    round: int
    """0 and up in the race; -1 in the screen; from `FIRST_FRESH_ROUND` in the rounds after the choice."""
    launches: int
    us: float
    """Microseconds of one launch: the block's time over its launches."""


FIRST_FRESH_ROUND = 1000
"""Rounds from here on had no part in the choice."""


@dataclass(frozen=True)
class Measurement:
    """A candidate's times. All are microseconds of one launch unless named otherwise."""

    time_us: float
    """Median: of the fresh rounds if it had any, else of the race, else of the screen. Never a minimum."""
    low_us: float
    high_us: float
    """Distribution-free 95 % interval of that median; the sample's range where blocks are too few for one."""
    method: str
    """`graph` (one CUDA graph of n unrolled launches), `events`, or `wall` (a CPU's clock). Never mixed in a race."""
    blocks: tuple[Block, ...] = field(repr=False)
    load_ms: float = 0.0
    """From bytes to something that can be launched; for torch.compile the compiling."""
    first_call_ms: float = 0.0
    eager_us: float | None = None
    """Host launches back to back, host time included where it binds. Finalists only."""
    replay_us: float | None = None
    """Replayed from a CUDA graph of unrolled launches. Finalists on a GPU only."""

    @property
    def is_confirmed(self) -> bool:
        """Whether it was timed in the rounds after the choice, beside the winner."""
        return any(block.round >= FIRST_FRESH_ROUND for block in self.blocks)


@dataclass(frozen=True)
class Outcome:
    """What a measuring worker found out about one plan."""

    candidate: Candidate
    status: Status
    stage: Stage
    reason: str = ""
    signal: str | None = None
    verdict: Verdict | None = None
    measurement: Measurement | None = None
    standing: Standing | None = None
    why: str = ""
    """Why it stands there, in words: `12.3 % slower than cudnn:eng4_k24=3`."""

    @classmethod
    def of(cls, failure: Failure) -> Self:
        """The outcome of a candidate that failed."""
        return cls(failure.candidate, failure.status, failure.stage, failure.reason, failure.signal)


@dataclass(frozen=True)
class Trial:
    """What happened to a candidate of a problem on a target under a protocol."""

    sweep: str
    """Id of the sweep that made it."""
    job: str
    name: str
    """The problem's name in the job."""
    problem: Problem
    target: str
    """The target's key."""
    protocol: Protocol
    outcome: Outcome
    finished_at: datetime
    """UTC."""
    worker: str = ""
    """Who measured: the GPU's UUID, or host and CPU. Times of two workers are never compared."""
    plan_digest: str | None = None
    plan_bytes: int | None = None
    workspace_bytes: int | None = None
    build_ms: float | None = None
    resolved_knobs: Knobs = ()

    @property
    def key(self) -> str:
        """What the store holds exactly one current row of: (problem, target, candidate, protocol)."""
        return trial_key(self.problem.key, self.target, self.outcome.candidate.key, self.protocol.key)


def trial_key(problem: str, target: str, candidate: str, protocol: str) -> str:
    """The key of a trial, from the keys of its parts."""
    return trial_keys(problem, target, protocol)(candidate)


def trial_keys(problem: str, target: str, protocol: str) -> Callable[[str], str]:
    """Makes the keys of trials that differ in their candidate alone, from the candidate's key."""
    # What `content_key` makes of the four, spelt out: who resumes a sweep needs millions.
    quoted = encode_basestring_ascii
    rest = f',"problem":{quoted(problem)},"protocol":{quoted(protocol)},"target":{quoted(target)}}},"v":{KEY_VERSION}}}'

    def key_of(candidate: str) -> str:
        text = f'{{"kind":"trial","payload":{{"candidate":{quoted(candidate)}{rest}'
        return hashlib.sha256(text.encode()).hexdigest()[:KEY_DIGITS]

    return key_of
