"""Damage and kills by the dozen; `scripts/bench-store` does them by the thousand."""

from pathlib import Path

from tests.store import harm


def test_damaged_files_give_no_wrong_row_and_are_named(tmp_path: Path) -> None:
    path = tmp_path / "store"
    harm.make(path)
    whole, named = harm.read(path)
    assert named == set()
    kinds = {harm.damage_round(path, whole, seed) for seed in range(60)}
    assert len(kinds) > 5


def test_a_killed_writer_costs_no_other_a_row(tmp_path: Path) -> None:
    for seed in range(2):
        harm.kill_round(tmp_path / str(seed), seed, writing=6)
