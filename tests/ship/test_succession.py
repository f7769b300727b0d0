from datetime import timedelta

import pytest

from tests.ship.make import KEY, NOON, bundle_of, choice
from tunefarm.model.errors import UsageError
from tunefarm.runtime.bundle import Bundle
from tunefarm.ship.diff import Kind, diff_manifests
from tunefarm.ship.succession import next_header, withdraw

ONE, TWO, THREE = choice(1), choice(2), choice(3)
LATER = NOON + timedelta(days=1, microseconds=7)


@pytest.fixture
def opened(tmp_path):
    def open_bytes(data):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.bundle"
        path.write_bytes(data)
        return Bundle.open(path, KEY.public_key())

    return open_bytes


def test_a_first_bundle_begins_a_channel():
    header = next_header(None, LATER)
    assert (header.channel, header.counter, header.withdrawn, header.expires) == ("default", 1, (), None)
    assert header.created == LATER.replace(microsecond=0)


def test_the_next_bundle_counts_up_and_hands_withdrawals_on(opened):
    before = opened(bundle_of([ONE], counter=4, withdrawn=("a" * 64,))).manifest
    header = next_header(before, LATER, valid_for=timedelta(days=30))
    assert (header.channel, header.counter, header.withdrawn) == ("test", 5, ("a" * 64,))
    assert header.expires == header.created + timedelta(days=30)
    assert next_header(before, LATER, counter=9).counter == 9


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"counter": 4}, "counter 4 is not above the previous bundle's 4"),
        ({"channel": "other"}, "of channel test, not other"),
    ],
)
def test_the_next_bundle_can_not_go_back(fields, told, opened):
    before = opened(bundle_of([ONE], counter=4)).manifest
    with pytest.raises(UsageError, match=told):
        next_header(before, LATER, **fields)


def test_a_channel_needs_a_name_that_is_one():
    with pytest.raises(UsageError, match="is no channel"):
        next_header(None, LATER, channel="../prod")


def test_withdrawing_leaves_the_rest_as_it_was(opened):
    before = opened(bundle_of([ONE, TWO, THREE], counter=4, withdrawn=("a" * 64,)))
    bad = TWO.trial.plan_digest
    after = opened(withdraw(before, [bad[:10]], [KEY], LATER))
    assert after.manifest.counter == 5
    assert after.manifest.withdrawn == tuple(sorted(["a" * 64, bad]))
    after.check_plans()
    kinds = {c.entry.name: c.kind for c in diff_manifests(before.manifest, after.manifest)}
    assert kinds == {"matmul-1": Kind.SAME, "matmul-2": Kind.WITHDRAWN, "matmul-3": Kind.SAME}


def test_a_plan_that_the_bundle_has_not_is_withdrawn_by_its_whole_digest(opened):
    before = opened(bundle_of([ONE]))
    assert opened(withdraw(before, ["c" * 64], [KEY], LATER)).manifest.withdrawn == ("c" * 64,)


def test_the_last_plan_can_be_withdrawn(opened):
    after = opened(withdraw(opened(bundle_of([ONE])), [ONE.trial.plan_digest], [KEY], LATER))
    assert (after.manifest.entries, after.manifest.targets) == ((), ())


@pytest.mark.parametrize("text", ["", "0", "zzzzzzzzzz", "c" * 63])
def test_what_names_no_plan_is_told(text, opened):
    with pytest.raises(UsageError, match="the bundle has no plan"):
        withdraw(opened(bundle_of([ONE])), [text], [KEY], LATER)


def test_a_diff_tells_each_kind_of_change(opened):
    faster = choice(2, name="eng9", us=5.0)
    before = opened(bundle_of([ONE, TWO])).manifest
    after = opened(bundle_of([faster, THREE], counter=2)).manifest
    changes = {c.entry.name: c for c in diff_manifests(before, after)}
    assert {name: c.kind for name, c in changes.items()} == {
        "matmul-1": Kind.REMOVED,
        "matmul-2": Kind.CHANGED,
        "matmul-3": Kind.ADDED,
    }
    assert changes["matmul-2"].ratio == pytest.approx(2.0)
    assert changes["matmul-1"].ratio is None
