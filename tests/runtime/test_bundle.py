import logging
import os
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from tests.report.make import TARGET
from tests.ship.make import KEY, OTHER_KEY, blob_of, bundle_of, choice, header, many_entries
from tunefarm.model.errors import BundleDamaged, BundleRefused, UsageError
from tunefarm.runtime.bundle import Bundle
from tunefarm.ship.write import write_bundle

CHOICES = [choice(1), choice(2), choice(3, name="eng9")]
DATA = bundle_of(CHOICES)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "plans.bundle"
    path.write_bytes(DATA)
    return path


def test_every_plan_comes_out_as_it_went_in(path):
    with Bundle.open(path, KEY.public_key()) as bundle:
        blobs = {entry.problem.key: bundle.plan_bytes(entry) for entry in bundle.manifest.entries}
        bundle.check_plans()
    assert blobs == {c.trial.problem.key: blob_of(c.trial) for c in CHOICES}


def test_equal_choices_give_equal_bytes_in_whatever_order():
    assert bundle_of(CHOICES[::-1]) == DATA


def test_problems_that_share_a_plan_share_its_bytes(tmp_path):
    one = choice(1)
    twin = replace(choice(2), trial=replace(choice(2).trial, plan_digest=one.trial.plan_digest))
    path = tmp_path / "twins"
    path.write_bytes(
        write_bundle(
            [one, twin], {TARGET.key: TARGET}, header(), {one.trial.plan_digest: blob_of(one.trial)}.get, [KEY]
        )
    )
    with Bundle.open(path, KEY.public_key()) as bundle:
        first, second = bundle.manifest.entries
        assert (first.offset, first.packed_bytes) == (second.offset, second.packed_bytes)
        assert bundle.plan_bytes(first) == bundle.plan_bytes(second) == blob_of(one.trial)


def test_any_one_trusted_key_is_enough(path, tmp_path):
    assert Bundle.open(path, [OTHER_KEY.public_key(), KEY.public_key()]).signed_by
    both = tmp_path / "both"
    both.write_bytes(bundle_of(CHOICES, keys=(OTHER_KEY, KEY)))
    assert Bundle.open(both, KEY.public_key()).signed_by
    assert Bundle.open(both, OTHER_KEY.public_key()).signed_by


def test_a_bundle_of_another_key_is_refused(path):
    with pytest.raises(BundleRefused, match="no trusted key signed this bundle"):
        Bundle.open(path, OTHER_KEY.public_key())


def test_nobody_to_trust_is_a_mistake_and_no_permission(path):
    for trust in (None, ()):
        with pytest.raises(UsageError, match="nobody to trust"):
            Bundle.open(path, trust)


def test_an_unsigned_bundle_is_let_in_only_when_asked_for_by_name_and_is_warned_of_each_time(tmp_path, caplog):
    path = tmp_path / "unsigned"
    path.write_bytes(bundle_of(CHOICES, keys=()))
    with pytest.raises(BundleRefused, match="has no signature"):
        Bundle.open(path, KEY.public_key())
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert Bundle.open(path, allow_unsigned=True).signed_by is None
    assert [str(path) in record.getMessage() for record in caplog.records] == [True, True]


def test_allowing_unsigned_ones_lets_no_wrong_signature_in(path):
    with pytest.raises(BundleRefused, match="no trusted key"):
        Bundle.open(path, OTHER_KEY.public_key(), allow_unsigned=True)


def test_a_file_that_is_changed_after_it_was_opened_hands_out_nothing_changed(path):
    bundle = Bundle.open(path, KEY.public_key())
    last = max(bundle.manifest.entries, key=lambda entry: entry.offset)
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(bytes([DATA[-1] ^ 1]))
    with pytest.raises(BundleDamaged, match="is not what was signed"):
        bundle.plan_bytes(last)
    with path.open("r+b") as file:
        file.truncate(len(DATA) - 10)
    with pytest.raises(BundleDamaged, match="is cut off"):
        bundle.plan_bytes(last)


def test_a_bundle_that_is_replaced_stays_what_it_was_for_who_opened_it(path, tmp_path):
    bundle = Bundle.open(path, KEY.public_key())
    newer = tmp_path / "newer"
    newer.write_bytes(bundle_of([choice(7)], counter=2))
    newer.replace(path)
    bundle.check_plans()
    assert Bundle.open(path, KEY.public_key()).manifest.counter == 2


def test_a_closed_bundle_says_so(path):
    bundle = Bundle.open(path, KEY.public_key())
    bundle.close()
    bundle.close()
    with pytest.raises(UsageError, match="was closed"):
        bundle.plan_bytes(bundle.manifest.entries[0])


def test_no_open_leaves_a_descriptor_behind(path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(BundleRefused):
            Bundle.open(path, OTHER_KEY.public_key())
        Bundle.open(path, KEY.public_key())
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("name", ["absent", "."])
def test_what_can_not_be_opened_is_told(name, tmp_path):
    with pytest.raises((UsageError, BundleDamaged), match=r"can't (open|read) the bundle"):
        Bundle.open(tmp_path / name, KEY.public_key())


def test_a_thousand_plans_are_opened_without_being_read(tmp_path):
    path = tmp_path / "large"
    path.write_bytes(many_entries(1000, raw_bytes=20_000))
    tracemalloc.start()
    bundle = Bundle.open(path, KEY.public_key())
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(bundle.manifest.entries) == 1000
    assert held < 10e6
    assert peak < 20e6


def test_what_opens_a_bundle_needs_cryptography_alone():
    code = "import sys, tunefarm.runtime.bundle; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not loaded & {"torch", "cudnn", "numpy", "pyarrow"}
    assert "cryptography" in loaded
