"""`tunefarm doctor`."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from tunefarm import __version__
from tunefarm.cli import findings as judge
from tunefarm.cli.findings import Finding, State
from tunefarm.cli.options import json_option, store_option
from tunefarm.cli.output import print_json, print_report
from tunefarm.model.errors import StoreError
from tunefarm.model.places import is_uri, public

PROBE = (sys.executable, "-m", "tunefarm.engines.probe")
PROBE_DEADLINE_S = 120.0
"""The first import of torch from a slow disk may take a minute."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - its size is asked for, nothing is written
TEMPORARY = Path("/tmp")  # noqa: S108 - where Ray puts its logs and sockets, whatever TMPDIR says
WATCHED = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUDA_CACHE_DISABLE", "CUDA_CACHE_PATH")
STYLES = {State.OK: "green", State.ABSENT: "dim", State.WARNING: "yellow", State.PROBLEM: "bold red"}


@click.command()
@store_option
@click.option("--require-gpu", is_flag=True, help="Exit with 6 if no GPU can be used.")
@json_option
def doctor(store_path: str, require_gpu: bool, as_json: bool) -> int:
    """Tell whether this machine is ready to sweep, and what mends what is not.

    Exit code 0: ready, with a GPU or without. 1: a sweep would fail here. 6: --require-gpu, and none can be used.
    """
    found, gpus = examine(store_path)
    ready, line = judge.verdict(found, gpus)
    if as_json:
        print_json(
            {
                "version": 1,
                "ready": ready,
                "gpus": gpus,
                "verdict": line,
                "findings": [asdict(finding) for finding in found],
            }
        )
    else:
        _print(found, line)
    if require_gpu and not (ready and gpus):
        return 6
    return 0 if ready else 1


def examine(store_path: str) -> tuple[list[Finding], int]:
    """Every finding of this machine, and how many GPUs can be used."""
    with ThreadPoolExecutor() as threads:
        torch, driver, cudnn = threads.map(ask, ("torch", "driver", "cudnn"))
    gpus = len(torch.get("devices", ()))
    variables = {name: value for name, value in os.environ.items() if name in WATCHED or name.startswith("CUDNN_")}
    return [
        Finding("python", State.OK, f"{platform.python_version()}, tunefarm {__version__}, {platform.platform()}"),
        judge.judge_torch(torch),
        *judge.judge_gpu(driver, torch),
        judge.judge_cudnn(cudnn, has_gpu=gpus > 0),
        judge.judge_environment(variables),
        judge.judge_compiler(_compiler()),
        judge.judge_ray(_version("ray"), len(os.sched_getaffinity(0)), _memory()),
        _judge_store(store_path),
        judge.judge_space("tmp", str(TEMPORARY), _free(TEMPORARY), judge.LEAST_DISK, "free disk: Ray works there"),
        judge.judge_space(
            "shm",
            str(SHARED_MEMORY),
            _free(SHARED_MEMORY),
            judge.LEAST_SHARED_MEMORY,
            "Ray keeps plans there; start the container with --shm-size=2g",
        ),
    ], gpus


def ask(probe: str, command: Sequence[str] = PROBE, deadline_s: float = PROBE_DEADLINE_S) -> dict[str, Any]:
    """The facts of one probe. A probe that dies or hangs is a fact too."""
    try:
        done = subprocess.run(
            [*command, probe],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=deadline_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer in {deadline_s:g} s"}
    try:
        facts: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        words = done.stderr.strip().splitlines()
        return {"error": f"its process {_end(done.returncode)}" + (f": {words[-1]}" if words else "")}
    return facts


def _end(code: int) -> str:
    return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _compiler() -> str | None:
    """The C++ compiler that torch.compile would call."""
    named = os.environ.get("CXX")
    return next(
        (path for name in ([named] if named else ["g++", "clang++", "c++"]) if (path := shutil.which(name))), None
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _memory() -> int:
    import psutil

    total: int = psutil.virtual_memory().total
    return total


def _free(path: Path) -> int | None:
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return None


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a folder above it may not be looked into
        return False


def _judge_store(place: str) -> Finding:
    if is_uri(place):
        return judge.judge_store(public(place), None, _why_no_bucket(place))
    path = Path(place)
    existing = next(above for above in (path.absolute(), *path.absolute().parents) if _is_there(above))
    return judge.judge_store(str(existing), _free(existing), _why_no_store(path, existing))


def _why_no_bucket(place: str) -> str | None:
    """Why a sweep could not write its store in an object store, as far as can be told without making one."""
    from tunefarm.store import Store

    try:
        if Store.is_there(place):
            Store.open(place, create=True)
    except StoreError as error:
        return str(error)
    return None


def _why_no_store(path: Path, existing: Path) -> str | None:
    """Why a sweep could not write its store there, with the mend; None if it could. Makes no store."""
    from tunefarm.store import Store

    try:
        if existing == path.absolute() and not (existing.is_dir() and not any(existing.iterdir())):
            Store.open(path, create=True)  # as a sweep does: sees that it can be written
            return None
        with tempfile.TemporaryFile(dir=existing):
            return None
    except StoreError as error:
        return str(error)
    except OSError as error:
        return f"{existing}: {error.strerror}; make it a folder that you may write, or give another --store"


def _print(found: Sequence[Finding], line: str) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in found:
        what = finding.what if finding.mend is None else f"{finding.what}\nmend: {finding.mend}"
        table.add_row(Text(finding.state.value, style=STYLES[finding.state]), Text(finding.check), Text(what))
    print_report(table)
    print_report(Text(line, style="bold"))
