"""A kill or a power loss at any step of any change: no broken store, nothing lost that was acknowledged."""

from pathlib import Path

import pytest

from tests.store.losses import WORKS, Work, losses

SEEDS = 1
"""States of a disk without power that are tried after each step; `scripts/bench-store --power` tries more."""


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.__name__)
def test_nothing_is_broken_nothing_acknowledged_is_lost_and_the_work_can_be_done_anew(
    work: Work, tmp_path: Path
) -> None:
    met = set()
    for loss in losses(work, tmp_path, SEEDS):
        loss.check(work)
        met.add(loss.step)
    assert len(met) > 3
