"""One problem's session, from built plans to outcomes: qualify, screen, race, confirm, decide.

Every call into a candidate is one step: it is announced before it begins, and whatever it raises is the candidate's
outcome. Whoever falls out after others were judged against it sets the contest back to the screen, without it.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from tunefarm.measure.bench import Bench
from tunefarm.measure.buffers import Bound, SetPool, set_bytes
from tunefarm.measure.choice import Traits, byte_count, choose, is_gain, stand, win
from tunefarm.measure.entry import Entry, Samples
from tunefarm.measure.examine import Examination
from tunefarm.measure.racing import (
    PATIENT_ENTRANTS,
    PATIENT_ROUNDS,
    PATIENT_US,
    RACE_CAP_S,
    Gap,
    Kind,
    Race,
    Screen,
    block_launches,
    gap,
)
from tunefarm.measure.session import DevicePoisoned, Entered, Report, Settled
from tunefarm.measure.timing import CaptureError, Method, Rotation, TimedBlock, one_line, rotate
from tunefarm.measure.verify import refuted
from tunefarm.model.candidate import Plan
from tunefarm.model.errors import Declined
from tunefarm.model.job import Protocol
from tunefarm.model.problem import Problem
from tunefarm.model.trial import Outcome, Stage, Status
from tunefarm.ops.operation import Operation

LOAD_DEADLINE_S = 30.0
COMPILE_DEADLINE_S = 180.0
REFERENCE_DEADLINE_S = 120.0
VERIFY_DEADLINE_S = 30.0
BLOCK_DEADLINE_S = 10.0
FRESH_ROUNDS = 10
LEAST_FRESH_ROUNDS = 3
"""Even of candidates so slow that more would take too long."""
FRESH_CAP_S = 2.0
EAGER_LAUNCHES = 50
EAGER_US = 50e3
REPLAYS = 3
NOT_CAPTURED = "can't be captured into a CUDA graph"
