"""Options that several verbs have."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tunefarm.cli.output import note

if TYPE_CHECKING:
    from tunefarm.store import Store

DEFAULT_STORE = "tunefarm-store"

store_option = click.option(
    "--store",
    "store_path",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    default=DEFAULT_STORE,
    show_default=True,
    envvar="TUNEFARM_STORE",
    show_envvar=True,
    help="Folder of the store.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")


def warn_of_damage(store: "Store") -> int:
    """Tell of parts that were set aside since they are damaged. Returns the exit code that this calls for."""
    for damage in store.damage:
        note(f"warning: left out of the store: {damage}")
    return 4 if store.damage else 0
