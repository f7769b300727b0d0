"""`tunefarm store`: every verb from outside."""

import json
import shutil
from pathlib import Path

from tests import s3


def parts(store: Path) -> list[Path]:
    return sorted((store / "trials" / "v1").iterdir())


def rows(cli, store) -> list[dict[str, object]]:
    found = cli("query", "--all", "--format", "json", "--store", store)
    assert found.code == 0, found.err
    return json.loads(found.out)


def test_compact_merge_check_and_prune(cli, store_path, tmp_path):
    before = rows(cli, store_path)
    shutil.copytree(store_path, tmp_path / "other")
    done = cli("store", "compact", store_path, "--grace", "0")
    assert done.code == 0, done.err
    assert "trials: " in done.err
    assert rows(cli, store_path) == before
    merged = cli("store", "merge", tmp_path / "new", store_path, tmp_path / "other")
    assert merged.code == 0, merged.err
    assert f"{len(before)} rows of trials" in merged.err
    assert "other: 0 rows of trials" in merged.err
    assert rows(cli, tmp_path / "new") == before
    assert cli("store", "check", store_path).code == 0
    pruned = cli("store", "prune", store_path, "--older-than", "0", "--dry-run")
    assert pruned.code == 0
    assert "would drop" in pruned.err
    assert rows(cli, store_path) == before


def test_check_names_what_is_damaged_and_sets_it_aside(cli, store_path):
    part = parts(store_path)[0]
    part.write_bytes(b"PAR1")
    checked = cli("store", "check", store_path)
    assert checked.code == 4
    assert f"damaged: {part}: it holds 4 bytes" in checked.err
    refused = cli("store", "prune", store_path, "--older-than", "0")
    assert refused.code == 4
    assert "check and mend it first" in refused.err
    assert cli("store", "check", store_path, "--set-aside").code == 4
    assert cli("store", "check", store_path).code == 0
    assert (store_path / "damaged" / "trials" / "v1" / part.name).exists()


def test_a_store_in_a_bucket_serves_every_verb(cli, store_path):
    with s3.served() as server:
        place = s3.new_bucket(server, "farm")("a/store")
        assert cli("store", "merge", place, store_path).code == 0
        assert rows(cli, place) == rows(cli, store_path)
        shown = cli("show", "llama-3-8b.mlp.up", "--store", place)
        assert shown.out == cli("show", "llama-3-8b.mlp.up", "--store", store_path).out
        assert cli("store", "compact", place).code == 0
        missing = cli("query", "--store", place.replace("a/store", "b/store"))
        assert missing.code == 4
        assert "is no tunefarm store" in missing.err
        assert "SECRET" not in missing.err


def test_an_empty_place_is_refused(cli):
    assert cli("query", "--store", "").code == 2
    assert cli("store", "check", "").code == 2


def test_a_path_that_is_no_utf_8_is_refused_with_a_mend(cli, tmp_path):
    place = str(tmp_path / "caf\udce9")
    for args in (("query", "--store", place), ("store", "check", place)):
        told = cli(*args)
        assert told.code == 4
        assert "is not UTF-8" in told.err
        assert "name it through a link" in told.err
