"""A plan's place in a list names another plan tomorrow (flashinfer pull 3449): nothing may keep one."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import tunefarm

SOURCES = sorted(Path(tunefarm.__file__).parent.rglob("*.py"))
PLACE = re.compile(r"(^|_)(index|indices|idx|place|position|tactic)(_|$)")


def fields_and_columns(source: Path) -> Iterator[str]:
    """Fields that classes declare, attributes that they keep, and names of columns."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            yield from (
                n.target.id for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
            )
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif source.parent.name == "store" and isinstance(node, ast.Constant) and str(node.value).isidentifier():
            yield str(node.value)


def test_no_field_attribute_or_column_is_a_place_in_a_list() -> None:
    kept = {(source.name, name) for source in SOURCES for name in fields_and_columns(source) if PLACE.search(name)}
    assert kept == set()


def test_the_search_above_would_find_one(tmp_path: Path) -> None:
    culprit = tmp_path / "store" / "plans.py"
    culprit.parent.mkdir()
    culprit.write_text("class Plan:\n  plan_index: int\n  def f(self): self._idx = 1\nCOLUMN = 'position'\n")
    assert {name for name in fields_and_columns(culprit) if PLACE.search(name)} == {"plan_index", "_idx", "position"}
