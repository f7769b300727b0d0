import json
import threading
from datetime import timedelta

import pytest

from tests.ship.make import KEY, NOON, OTHER_KEY, bundle_of, choice
from tunefarm.model.errors import BundleDamaged, BundleRefused, UsageError
from tunefarm.runtime.bundle import Bundle
from tunefarm.ship import files
from tunefarm.ship.installed import Installed

TRUST = KEY.public_key()
ONE, TWO = choice(1), choice(2)


class Machine:
    """A folder of bundles, and a place from which they are pulled."""

    def __init__(self, root):
        self.place = root / "published.bundle"
        self.installed = Installed(root / "plans")

    def pull(self, data, now=NOON, trust=TRUST):
        self.place.write_bytes(data)
        return self.installed.pull(str(self.place), trust, now)

    @property
    def counter(self):
        with Bundle.open(self.installed.current, TRUST) as bundle:
            return bundle.manifest.counter


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def listed(machine):
    return sorted(path.name for path in (machine.installed.folder / "bundles").iterdir())


def test_a_pulled_bundle_is_the_current_one(machine):
    pulled = machine.pull(bundle_of([ONE]))
    assert pulled.is_new
    assert pulled.path == machine.installed.current
    assert machine.counter == 1


def test_pulling_again_changes_nothing(machine):
    machine.pull(bundle_of([ONE]))
    before = machine.installed.current.resolve()
    assert not machine.pull(bundle_of([ONE])).is_new
    assert machine.installed.current.resolve() == before


def test_the_previous_bundle_is_kept_and_older_ones_go(machine):
    for counter in (1, 2, 3):
        machine.pull(bundle_of([ONE], counter=counter))
    assert [name.partition("-")[0] for name in listed(machine)] == ["2", "3"]


REFUSALS = {
    "older": (bundle_of([ONE], counter=4), "has counter 4, and 5 was here already"),
    "same counter, other content": (bundle_of([TWO], counter=5), "has counter 5, and 5 was here already"),
    "expired": (bundle_of([ONE], counter=6, expires=NOON + timedelta(seconds=1)), "expired at 2030-01-01 12:00 UTC"),
    "other channel": (bundle_of([ONE], counter=6, channel="other"), "is of channel other; this folder follows test"),
    "other key": (bundle_of([ONE], counter=6, keys=[OTHER_KEY]), "no trusted key signed"),
    "unsigned": (bundle_of([ONE], counter=6, keys=()), "has no signature"),
    "withdrawn": (bundle_of([TWO], counter=6), "which was withdrawn"),
    "damaged plan": (bundle_of([ONE], counter=6)[:-1] + b"\0", "is not what was signed"),
    "cut off": (bundle_of([ONE], counter=6)[:-1], "fetch it anew"),
    "no bundle": (b"<html>not found</html>", "no bundle"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused_leaves_the_current_bundle_in_place(name, machine):
    data, told = REFUSALS[name]
    machine.pull(bundle_of([ONE], counter=5, withdrawn=(TWO.trial.plan_digest,)))
    before = listed(machine), (machine.installed.folder / "state.json").read_bytes()
    with pytest.raises((BundleRefused, BundleDamaged), match=told) as caught:
        machine.pull(data, now=NOON + timedelta(seconds=1))
    assert ".draft" not in str(caught.value)
    assert (listed(machine), (machine.installed.folder / "state.json").read_bytes()) == before
    assert machine.counter == 5


def test_a_withdrawal_is_remembered_when_a_later_bundle_forgets_it(machine):
    machine.pull(bundle_of([ONE], counter=1, withdrawn=(TWO.trial.plan_digest,)))
    machine.pull(bundle_of([ONE], counter=2))
    with pytest.raises(BundleRefused, match="which was withdrawn"):
        machine.pull(bundle_of([TWO], counter=3))


def test_a_rollback_brings_the_previous_bundle_back_and_the_bad_one_does_not_return(machine):
    machine.pull(bundle_of([ONE], counter=1))
    machine.pull(bundle_of([TWO], counter=2))
    assert machine.installed.roll_back(TRUST).manifest.counter == 1
    assert machine.counter == 1
    with pytest.raises(BundleRefused, match="2 was here already"):
        machine.pull(bundle_of([TWO], counter=2))
    with pytest.raises(UsageError, match="no previous bundle"):
        machine.installed.roll_back(TRUST)
    machine.pull(bundle_of([TWO], counter=3))
    assert machine.counter == 3


def test_a_rollback_brings_no_withdrawn_plan_back(machine):
    machine.pull(bundle_of([ONE, TWO], counter=1))
    machine.pull(bundle_of([ONE], counter=2, withdrawn=(TWO.trial.plan_digest,)))
    with pytest.raises(BundleRefused, match="which was withdrawn"):
        machine.installed.roll_back(TRUST)
    assert machine.counter == 2


def test_there_is_nothing_to_roll_back_in_an_empty_folder(machine):
    with pytest.raises(UsageError, match="no previous bundle"):
        machine.installed.roll_back(TRUST)


@pytest.mark.parametrize("step", range(1, 10))
def test_a_pull_that_is_cut_anywhere_leaves_a_whole_bundle_and_the_next_pull_ends_it(step, machine, monkeypatch):
    machine.pull(bundle_of([ONE], counter=1))
    done = 0

    def interrupted(path, name, real):
        nonlocal done
        done += 1
        if done == step:
            raise KeyboardInterrupt
        return real(path, name)

    replaced, linked, synced = files.Path.replace, files.Path.symlink_to, files.os.fsync
    monkeypatch.setattr(files.Path, "replace", lambda path, name: interrupted(path, name, replaced))
    monkeypatch.setattr(files.Path, "symlink_to", lambda path, name: interrupted(path, name, linked))
    monkeypatch.setattr(files.os, "fsync", lambda handle: interrupted(handle, None, lambda h, _: synced(h)))
    with pytest.raises(KeyboardInterrupt):
        machine.pull(bundle_of([TWO], counter=2))
    monkeypatch.undo()
    assert machine.counter in (1, 2)
    assert machine.pull(bundle_of([TWO], counter=2)).manifest.counter == 2
    assert machine.counter == 2
    assert not [name for name in listed(machine) if name.endswith(".draft")]


def test_pulls_at_one_time_wait_for_each_other(machine, tmp_path):
    places = []
    for counter in range(1, 6):
        place = tmp_path / f"{counter}.bundle"
        place.write_bytes(bundle_of([ONE], counter=counter))
        places.append(place)
    errors = []

    def pull(place):
        try:
            Installed(machine.installed.folder).pull(str(place), TRUST, NOON)
        except BundleRefused as error:
            errors.append(error)

    threads = [threading.Thread(target=pull, args=(place,)) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert machine.counter == 5
    assert all("was here already" in str(error) for error in errors)


@pytest.mark.parametrize("text", ["", "{}", '{"version":1}', "null"])
def test_a_damaged_state_is_told_and_never_taken_for_a_fresh_folder(text, machine):
    machine.pull(bundle_of([ONE]))
    (machine.installed.folder / "state.json").write_text(text)
    with pytest.raises(BundleDamaged, match=r"state\.json is damaged"):
        machine.pull(bundle_of([ONE], counter=2))


def test_a_state_can_not_name_a_file_elsewhere(machine):
    machine.pull(bundle_of([ONE]))
    path = machine.installed.folder / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "previous": "../../etc/passwd"}))
    with pytest.raises(BundleDamaged, match="previous must be the name of a pulled bundle"):
        machine.installed.roll_back(TRUST)


def test_a_folder_that_can_not_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="can't write"):
        Installed(tmp_path / "file").pull("x", TRUST, NOON)


def test_a_place_that_has_nothing_is_told(machine):
    with pytest.raises(UsageError, match=r"can't read .*absent: there is no such file"):
        machine.installed.pull(str(machine.place.with_name("absent")), TRUST, NOON)
