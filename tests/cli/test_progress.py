import io
from dataclasses import replace

import pytest
from rich.console import Console

from tunefarm.cli.progress import PlainProgress, line_of, picture_of, shown_progress, span
from tunefarm.farm.progress import SweepState

STATE = SweepState(
    problems_total=24,
    problems_done=12,
    candidates_proposed=201,
    built=134,
    build_failed=3,
    verified=98,
    wrong=2,
    crashed=1,
    failed=0,
    measured=98,
    best=("mlp.up cudnn:eng4_k24=3 1.21x", "mlp.down torch:eager 1.00x"),
    elapsed_s=72.0,
    eta_s=70.0,
    phase="measure",
)


def test_a_line_tells_phase_counts_failures_and_time_left():
    assert line_of(STATE) == (
        "[1 min 12 s] measure: 12/24 problems, 134 of 201 candidates built, 98 verified, "
        "3 not buildable, 2 wrong, 1 crashed, 1 min 10 s left"
    )


def test_before_the_problems_are_counted_a_line_tells_the_phase_alone():
    assert (
        line_of(replace(STATE, problems_total=0, elapsed_s=1.0, phase="starting workers")) == "[1 s] starting workers"
    )


def test_plain_progress_prints_every_half_minute_and_at_changes_of_phase(capsys):
    moments = [(0, "a"), (0.1, "a"), (1, "b"), (6, "b"), (7, "b"), (12, "a"), (20, "a"), (41, "a"), (43, "a")]
    clock = iter([moment for moment, _ in moments])
    progress = PlainProgress(clock=lambda: now)
    printed = []
    for _, phase in moments:
        now = next(clock)
        progress.update(replace(STATE, phase=phase))
        printed.append(bool(capsys.readouterr().err))
    assert printed == [True, False, False, True, False, True, False, False, True]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_live_picture_fits_any_terminal(width):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    starting = replace(STATE, problems_total=0, problems_done=0, eta_s=None, best=(), phase="starting workers")
    for state, words in ((STATE, ("12/24 problems", "2 wrong", "1 min 10 s left")), (starting, ("starting workers",))):
        with console.capture() as capture:
            console.print(picture_of(state))
        lines = capture.get().splitlines()
        assert max(map(len, lines)) <= width
        assert all(word in " ".join(" ".join(lines).split()) for word in words)


def test_without_a_terminal_progress_is_plain(capsys):
    with shown_progress() as progress:
        progress.update(STATE)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == line_of(STATE) + "\n"


class Unread(io.StringIO):
    """A stderr that nobody reads any more."""

    def __init__(self, terminal):
        super().__init__()
        self._terminal = terminal

    def write(self, _text):
        raise BrokenPipeError

    def flush(self):
        raise BrokenPipeError

    def isatty(self):
        return self._terminal


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_that_nobody_reads_ends_no_sweep(terminal, monkeypatch):
    monkeypatch.setattr("sys.stderr", Unread(terminal))
    monkeypatch.setenv("TERM", "xterm")
    done = []
    with shown_progress() as progress:
        progress.update(STATE)
        done.append("all")
    assert done == ["all"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (125, "2 min 5 s"), (11_520, "3 h 12 min")]
)
def test_spans_are_for_people(seconds, text):
    assert span(seconds) == text
