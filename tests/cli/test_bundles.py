"""The verbs that make, check and move bundles."""

import json
import stat
from dataclasses import replace

import pytest

from tests.report.make import TARGET, cudnn, small_sweep, trial
from tests.ship.make import planned, store_of
from tunefarm.model.trial import Standing

SWEEP = [planned(t) if t.outcome.measurement else t for t in small_sweep()]


@pytest.fixture
def store_path(tmp_path):
    store_of(tmp_path / "store", SWEEP)
    return tmp_path / "store"


@pytest.fixture
def solved_path(tmp_path):
    """A store in which every problem has a winner."""
    store_of(tmp_path / "solved", [t for t in SWEEP if t.name != "huge"])
    return tmp_path / "solved"


@pytest.fixture
def key(cli, tmp_path):
    path = tmp_path / "signing.key"
    result = cli("keygen", path)
    assert (result.code, result.out) == (0, f"{path}.pub\n")
    return path


def public_of(key):
    return key.with_name(f"{key.name}.pub")


@pytest.fixture
def public(key):
    return public_of(key)


@pytest.fixture
def bundle(cli, solved_path, key, tmp_path):
    path = tmp_path / "one.bundle"
    assert cli("ship", "--store", solved_path, "--key", key, "--output", path).code == 0
    return path


def test_a_new_key_is_secret_and_never_overwritten(cli, key):
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    again = cli("keygen", key)
    assert again.code == 2
    assert "never overwritten" in again.err


def test_ship_explains_each_choice_and_refusal_and_ends_with_3_where_something_is_refused(
    cli, store_path, key, tmp_path
):
    result = cli("ship", "--store", store_path, "--key", key, "--output", tmp_path / "b")
    assert result.code == 3
    lines = result.out.splitlines()
    assert any("llama-3-8b.mlp.up" in line and "cudnn:eng4_k24=3" in line for line in lines)
    assert any("llama-3-8b.mlp.down" in line and "torch:eager" in line for line in lines)
    assert any("huge" in line and "nothing" in line and "OutOfMemoryError" in line for line in lines)
    assert "wrote" in result.err
    assert (tmp_path / "b").exists()


def test_a_dry_run_writes_nothing_and_needs_no_key(cli, store_path, tmp_path):
    result = cli("ship", "--store", store_path, "--dry-run", "--output", tmp_path / "b", "--json")
    assert result.code == 3
    decisions = json.loads(result.out)["decisions"]
    assert [d["ships"] for d in decisions] == ["cudnn:eng4_k24=3", "torch:eager", None]
    assert not (tmp_path / "b").exists()


def test_ship_takes_bounds_on_how_plans_compute_and_says_whom_they_bar(cli, tmp_path, key, public):
    reduced = replace(cudnn("eng9"), notes=("reduced_precision_reduction",))
    trials = [planned(trial(reduced, 9.0, standing=Standing.WON)), planned(trial(cudnn("eng7"), 12.0))]
    verdict = replace(trials[1].outcome.verdict, deterministic=True)
    trials[1] = replace(trials[1], outcome=replace(trials[1].outcome, verdict=verdict))
    store_of(tmp_path / "store", trials)
    path = tmp_path / "b"
    for bound, told in (
        (("--deterministic-only",), "not known to be deterministic; sweep its problem again"),
        (("--forbid", "reduced_precision_reduction"), "cuDNN notes reduced_precision_reduction of it"),
    ):
        result = cli("ship", "--store", tmp_path / "store", "--key", key, "--output", path, "--json", *bound)
        (decision,) = json.loads(result.out)["decisions"]
        assert (decision["ships"], decision["deterministic"]) == ("cudnn:eng7", True)
        assert told in decision["why"]
        (entry,) = json.loads(cli("verify", path, "--trust", public, "--json").out)["entries"]
        assert (entry["candidate"], entry["deterministic"], entry["notes"]) == ("cudnn:eng7", True, [])
    assert cli("ship", "--store", tmp_path / "store", "--key", key, "--output", path).code == 0
    (entry,) = json.loads(cli("verify", path, "--trust", public, "--json").out)["entries"]
    assert (entry["deterministic"], entry["notes"]) == (None, ["reduced_precision_reduction"])
    assert cli("ship", "--store", tmp_path / "store", "--dry-run", "--forbid", "reduced_precision").code == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--output", "b"], "give --key FILE to sign with"),
        (["--output", "b", "--unsigned", "--key", "k"], "or else --unsigned"),
        (["--unsigned"], "give --output FILE, or --dry-run"),
        (["--dry-run", "--job", "absent"], "no job 'absent'"),
        (["--dry-run", "--channel", "A/B"], "is no channel"),
    ],
)
def test_what_ship_can_not_do_is_told(arguments, told, cli, store_path):
    result = cli("ship", "--store", store_path, *arguments)
    assert result.code == 2
    assert told in result.err


def test_a_store_with_nothing_to_ship_writes_no_bundle(cli, solved_path, key, tmp_path):
    result = cli("ship", "--store", solved_path, "--key", key, "--output", tmp_path / "b", "--cache", "hot")
    assert result.code == 3
    assert "no bundle was written" in result.err
    assert not (tmp_path / "b").exists()


def test_verify_says_who_signed_what(cli, bundle, public):
    result = cli("verify", bundle, "--trust", public)
    assert result.code == 0
    assert "channel default, counter 1" in result.out
    assert "2 problems, 2 plans, 1 targets" in result.out
    assert "signed by key" in result.err
    payload = json.loads(cli("verify", bundle, "--trust", public, "--json").out)
    assert {entry["candidate"] for entry in payload["entries"]} == {"cudnn:eng4_k24=3", "torch:eager"}
    assert payload["targets"] == {TARGET.key: TARGET.label}


def test_verify_refuses_with_5_and_finds_damage_with_4(cli, bundle, public, tmp_path):
    cli("keygen", tmp_path / "other")
    refused = cli("verify", bundle, "--trust", tmp_path / "other.pub")
    assert (refused.code, refused.out) == (5, "")
    assert "no trusted key signed" in refused.err
    bundle.write_bytes(bundle.read_bytes()[:-1])
    damaged = cli("verify", bundle, "--trust", public)
    assert (damaged.code, damaged.out) == (4, "")
    assert cli("verify", bundle).code == 2
    assert cli("verify", tmp_path / "absent", "--trust", public).code == 2


def test_a_key_that_others_may_write_is_refused_with_5(cli, bundle, public):
    public.chmod(0o666)
    assert cli("verify", bundle, "--trust", public).code == 5


def test_unsigned_bundles_need_to_be_asked_for_on_both_sides(cli, solved_path, public, tmp_path):
    path = tmp_path / "unsigned"
    assert cli("ship", "--store", solved_path, "--unsigned", "--output", path).code == 0
    assert cli("verify", path, "--trust", public).code == 5
    allowed = cli("verify", path, "--allow-unsigned")
    assert allowed.code == 0
    assert "nobody vouches for" in allowed.err


def test_a_bundle_goes_from_push_to_pull_and_back(cli, bundle, key, solved_path, tmp_path):
    public = public_of(key)
    place, folder, second = tmp_path / "place.bundle", tmp_path / "plans", tmp_path / "two.bundle"
    assert cli("push", bundle, place, "--trust", public).out == f"{place}\n"
    pulled = cli("pull", place, "--to", folder, "--trust", public)
    assert (pulled.code, pulled.out) == (0, f"{folder / 'current'}\n")
    assert "already current" in cli("pull", place, "--to", folder, "--trust", public).err

    assert cli("ship", "--store", solved_path, "--key", key, "--previous", bundle, "--output", second).code == 0
    assert "counter 2" in cli("verify", second, "--trust", public).out
    assert cli("pull", second, "--to", folder, "--trust", public).code == 0
    assert cli("pull", bundle, "--to", folder, "--trust", public).code == 5

    back = cli("pull", "--rollback", "--to", folder, "--trust", public)
    assert back.code == 0
    assert "counter 1" in back.err
    assert (folder / "current").read_bytes() == bundle.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "give a PLACE to pull from, or --rollback"),
        (["x", "--rollback"], "give a PLACE to pull from, or --rollback"),
        (["x"], "nobody to trust"),
        (["x", "--trust", "absent"], "can't read the key"),
    ],
)
def test_what_pull_can_not_do_is_told(arguments, told, cli, tmp_path):
    (tmp_path / "x").write_bytes(b"")
    result = cli("pull", *arguments, "--to", tmp_path / "plans")
    assert result.code == 2
    assert told in result.err


def test_a_withdrawn_plan_leaves_and_does_not_come_back(cli, bundle, key, solved_path, tmp_path):
    public = public_of(key)
    entries = json.loads(cli("verify", bundle, "--trust", public, "--json").out)["entries"]
    bad = next(entry["plan"] for entry in entries if entry["candidate"] == "cudnn:eng4_k24=3")
    second, third = tmp_path / "two", tmp_path / "three"
    assert cli("withdraw", bundle, bad[:12], "--key", key, "--output", second).code == 0
    told = json.loads(cli("diff", bundle, second, "--trust", public, "--json").out)["changes"]
    assert [change["change"] for change in told] == ["withdrawn"]
    assert cli("ship", "--store", solved_path, "--key", key, "--previous", second, "--output", third).code == 0
    payload = json.loads(cli("verify", third, "--trust", public, "--json").out)
    assert payload["withdrawn"] == [bad]
    assert bad not in {entry["plan"] for entry in payload["entries"]}
    assert cli("withdraw", bundle, "nonsense", "--key", key, "--output", second).code == 2


def test_diff_tells_what_changes_for_whom(cli, bundle, key, public, tmp_path):
    faster = planned(replace(trial(cudnn("eng9"), 9.4, n=8, name="llama-3-8b.mlp.up", standing=Standing.WON, minute=9)))
    store_of(tmp_path / "newer", [faster])
    second = tmp_path / "two"
    cli("ship", "--store", tmp_path / "newer", "--key", key, "--previous", bundle, "--output", second)
    result = cli("diff", bundle, second, "--trust", public)
    assert result.code == 0
    changed, removed = sorted(line.split() for line in result.out.splitlines()[1:])
    assert changed[0] == "changed"
    assert changed[-1] == "2.00x"
    assert removed[0] == "removed"
    assert "2 of 2 choices differ" in result.err
    same = cli("diff", bundle, bundle, "--trust", public)
    assert (same.out, "0 of 2 choices differ" in same.err) == ("", True)
