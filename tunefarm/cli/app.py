"""The group of all verbs, and what becomes of their errors."""

from __future__ import annotations

import os
import platform
import traceback
from difflib import get_close_matches
from importlib import import_module
from io import StringIO

import click

from tunefarm import __version__
from tunefarm.cli import FARM_EXTRA
from tunefarm.cli.output import ReaderGone, note, results
from tunefarm.model.errors import TunefarmError

VERBS = {
    "sweep": "Find the fastest right plan of every problem of a job.",
    "status": "What the sweeps of a store do now, from any terminal or machine.",
    "query": "Read the store: by filters or by SQL.",
    "show": "Every candidate of one problem, and why it won, lost or failed.",
    "store": "Keep a store small, whole and together: compact, merge, prune, check.",
    "ship": "Winners of the store into a signed bundle of plans.",
    "verify": "Check all of a bundle.",
    "push": "Copy a bundle to where machines pull it from.",
    "pull": "Fetch a bundle, check it, make it the current one; or roll back.",
    "diff": "What changes from one bundle to another.",
    "withdraw": "The next bundle without plans that proved bad.",
    "keygen": "Make the keys that sign bundles.",
    "doctor": "Is this machine ready, and if not, what mends it.",
    "schema": "The JSON Schema of job files, for editors.",
}
"""Each verb and its line of help. The verb's module is imported when it is asked for: help must come at once."""

EXIT_CODES = {
    0: "done",
    1: "internal error: a bug, or the farm itself failed",
    2: "wrong usage, or a mistake in the job file",
    3: "finished, but some problems have no winner, or nothing that ships",
    4: "the store is damaged, or can't be read or written (what could be read was printed); or a bundle is damaged",
    5: "a bundle or key is refused: signature, age, expiry, a withdrawn plan, who may write the key",
    6: "a GPU is required and there is none that serves",
    130: "interrupted by Ctrl-C; the last line tells how to resume",
    143: "interrupted by SIGTERM; the last line tells how to resume",
}
"""What a command's exit code means."""


HELP = {"-h", "--help", "--version"}


class Verbs(click.Group):
    """The verbs, one module each, imported late."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Names of all verbs, in the order of a user's first day."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """The verb's command, which its module holds under the verb's name."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = getattr(import_module(f"tunefarm.cli.{cmd_name}"), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that is asked for, or what may have been meant."""
        if args[0] not in VERBS and not args[0].startswith("-"):
            close = get_close_matches(args[0], VERBS, n=1)
            guess = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(VERBS)}"
            ctx.fail(f"no command {args[0]!r}{guess}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """The list of verbs, made without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """The exit codes."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in EXIT_CODES.items()])


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message=f"tunefarm {__version__}, Python {platform.python_version()}")
@click.option("--debug", is_flag=True, envvar="TUNEFARM_DEBUG", help="Print the traceback of an error.")
def app(debug: bool) -> None:
    """Find the fastest right cuDNN plan for every problem, on a farm of GPUs.

    Results go to stdout, everything else to stderr.
    """


def run(args: list[str]) -> int:
    """Run one command and return its exit code."""
    debug = "--debug" in args or bool(os.environ.get("TUNEFARM_DEBUG"))
    try:
        code = _invoke(args)
        with results():
            pass  # flushes what verbs printed
    except TunefarmError as error:
        _explain(error, str(error), debug=debug)
        return error.exit_code
    except ReaderGone:
        return 0
    except KeyboardInterrupt:
        note("interrupted")
        return 130
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in FARM_EXTRA:
            raise
        text = " ".join(str(error).split())
        what = f"{type(error).__name__}: {text}" if text else type(error).__name__
        message = f"internal error: {what}. Please report it, with what `tunefarm --debug ...` prints"
        _explain(error, message, debug=debug)
        return 1
    return code


def _invoke(args: list[str]) -> int:
    """Let click parse and call; its own errors are shown by itself."""
    try:
        if HELP & set(args):  # nothing runs, and what is printed is a result
            with results():
                return _called(args)
        return _called(args)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        told = StringIO()
        error.show(told)
        note(told.getvalue().removesuffix("\n"))  # which makes visible what the arguments would do to a terminal
        return error.exit_code


def _called(args: list[str]) -> int:
    with app.make_context("tunefarm", list(args), obj=tuple(args)) as context:
        code: int | None = app.invoke(context)
    return code or 0


def _explain(error: BaseException, message: str, *, debug: bool) -> None:
    if debug:
        note("".join(traceback.format_exception(error)).rstrip())
    note(f"tunefarm: {message}")
