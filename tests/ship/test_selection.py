import pytest

from tests.report.make import TARGET, cudnn, failed, torch, trial
from tests.ship.make import KEY, NOON, blob_of, planned, store_of
from tests.ship.make import header as header_of
from tunefarm.model.errors import StoreError, UsageError
from tunefarm.model.trial import Stage, Standing, Status
from tunefarm.runtime.bundle import Bundle
from tunefarm.ship.policy import Policy
from tunefarm.ship.selection import select
from tunefarm.ship.write import write_bundle
from tunefarm.store import Store

TRIALS = [
    planned(trial(cudnn("eng4_k24=3"), 18.8, n=8, standing=Standing.WON)),
    planned(trial(cudnn("eng4_k24=2", first=True), 21.7, n=8)),
    planned(trial(torch("eager"), 34.5, n=64, standing=Standing.WON)),
    failed(torch("eager"), Status.FAILED, Stage.REFERENCE, "out of memory", n=9),
]


@pytest.fixture
def store(tmp_path):
    return store_of(tmp_path / "store", TRIALS)


def test_winners_of_a_store_ship_with_the_bytes_that_were_verified(store, tmp_path):
    selection = select(store, Policy())
    assert [c.trial.name for c in selection.choices] == ["matmul-8", "matmul-64"]
    assert [r.name for r in selection.refusals] == ["matmul-9"]
    path = tmp_path / "b"
    path.write_bytes(write_bundle(selection.choices, store.targets(), header_of(), selection.plans.__getitem__, [KEY]))
    with Bundle.open(path, KEY.public_key()) as bundle:
        entries = {entry.name: entry for entry in bundle.manifest.entries}
        assert bundle.manifest.targets == (TARGET,)
        assert bundle.plan_bytes(entries["matmul-8"]) == blob_of(TRIALS[0])
        assert entries["matmul-64"].candidate.engine == "torch"
        entry = entries["matmul-8"]
    assert (entry.trial, entry.resolved_knobs) == (TRIALS[0].key, TRIALS[0].resolved_knobs)
    assert (entry.figures.time_us, entry.figures.default_us, entry.figures.torch_us) == (18.8, 21.7, None)
    assert bundle.manifest.created == NOON


def test_a_store_whose_bytes_are_not_the_plan_s_ships_nothing_of_it(store, monkeypatch):
    def damaged(_store, digest):
        raise StoreError(f"the bytes stored as plan {digest} are not that plan's; sweep its problem again")

    monkeypatch.setattr(Store, "plan", damaged)
    selection = select(store, Policy())
    assert not selection.choices
    assert "are not that plan's" in selection.refusals[0].why


def test_jobs_and_targets_can_be_picked(store):
    assert len(select(store, Policy(), jobs=["test"], targets=[TARGET.key]).choices) == 2
    with pytest.raises(UsageError, match="no job 'absent'; there are test"):
        select(store, Policy(), jobs=["absent"])
    with pytest.raises(UsageError, match="no target"):
        select(store, Policy(), targets=["absent"])


def test_a_target_that_the_store_has_lost_is_told(store):
    with pytest.raises(UsageError, match="nothing is known of target"):
        write_bundle(select(store, Policy()).choices, {}, header_of(), blob_of, [KEY])


def test_too_many_keys_are_told(store):
    selection = select(store, Policy())
    with pytest.raises(UsageError, match="9 keys are too many"):
        write_bundle(selection.choices, store.targets(), header_of(), selection.plans.__getitem__, [KEY] * 9)
