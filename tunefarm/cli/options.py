"""Options that several verbs have."""

import os
from typing import TYPE_CHECKING

import click

from tunefarm.cli.output import note
from tunefarm.report.figures import printable

if TYPE_CHECKING:
    from tunefarm.store import Damage, Store

DEFAULT_STORE = "tunefarm-store"


class _Place(click.ParamType[str]):
    """A folder, or a URI."""

    name = "place"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        place = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
        if not place:
            self.fail("it is empty; name a folder, or s3://bucket/path", param, ctx)
        return str(place)


STORE = _Place()
store_option = click.option(
    "--store",
    "store_path",
    type=STORE,
    metavar="STORE",
    default=DEFAULT_STORE,
    show_default=True,
    envvar="TUNEFARM_STORE",
    show_envvar=True,
    help="Folder of the store, or s3://bucket/path.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")


def warn_of_damage(store: "Store") -> int:
    """Tell of parts that were set aside since they are damaged. Returns the exit code that this calls for."""
    for damage in store.damage:
        note(f"warning: left out of the store: {printable(str(damage))}; {_mend(damage)}")
    return 4 if store.damage else 0


def _mend(damage: "Damage") -> str:
    if damage.path.endswith(".json"):
        return "a sweep on that target writes it anew"
    return f"run the sweep again to re-measure what it held, then delete {printable(damage.path)}"
