"""Counting over threads, those that ended among them."""

import threading

from tunefarm.ops.matmul import MatmulProblem
from tunefarm.runtime.ledger import Cause, Ledger, Step

PROBLEM = MatmulProblem(m=1, n=1, k=1)


def test_what_ended_threads_counted_is_kept_and_their_pages_are_not():
    ledger = Ledger()

    def work():
        page = ledger.open_page()
        page.tally(PROBLEM, Step.SHIPPED).calls += 2
        page.tally(PROBLEM, Step.TORCH, Cause.MISS).calls += 1

    for _ in range(10):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(ledger._pages) == 1
    assert ledger.counters().steps[Step.SHIPPED] == 20
    assert ledger.calls_of(PROBLEM) == {(Step.SHIPPED, None): 20, (Step.TORCH, Cause.MISS): 10}
    assert ledger.missed() == {PROBLEM: 10}


def test_detours_are_no_misses():
    ledger = Ledger()
    page = ledger.open_page()
    for cause in set(Cause) - {Cause.MISS, Cause.FAILED}:
        page.tally(PROBLEM, Step.TORCH, cause).calls += 1
    assert ledger.missed() == {}
    assert ledger.counters().calls == len(Cause) - 2
