import pytest
from rich.console import Console

from tests.report.make import TARGET, cudnn, failed, refused, small_sweep, torch, trial
from tunefarm.model.trial import Stage, Standing, Status
from tunefarm.report.candidates import CandidateReport
from tunefarm.report.figures import UNBOUND, duration, microseconds, printable, size
from tunefarm.report.job import JobReport
from tunefarm.report.rows import rows_table
from tunefarm.report.summary import summarize

TARGETS = {TARGET.key: TARGET}


def printed(report, width=UNBOUND):
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(report)
    return [line.rstrip() for line in capture.get().splitlines()]


def job_report(rows, width=UNBOUND):
    return printed(JobReport(summarize(rows), TARGETS), width)


def test_a_wide_output_has_one_line_a_problem_in_each_of_two_tables():
    lines = job_report(small_sweep(), 120)
    assert lines[1].split() == ["problem", "winner", "us", "cuDNN", "default", "torch", "eager", "torch", "spread"]
    assert lines[2].split() == [
        *("llama-3-8b.mlp.up", "cudnn:eng4_k24=3", "18.80"),
        *("21.70", "1.15x", "27.30", "1.45x", "30.20", "1.61x", "13.99x"),
    ]
    assert lines[7].split()[:8] == ["llama-3-8b.mlp.up", "1.66e-03", "0", "48.2", "KiB", "450", "ms", "5.1"]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_at_every_width_nothing_is_cut_off(width):
    lines = job_report(small_sweep(), width)
    text = " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= width
    assert "…" not in text
    for fact in ("cudnn:eng4_k24=3", "18.80", "21.70 1.15x", "1.66e-03", "48.2 KiB", "450 ms", "5.1 ms", "13.99x"):
        assert fact in text


def test_the_last_lines_tell_mean_gains_and_what_became_of_the_candidates():
    assert job_report(small_sweep())[-3:] == [
        (
            "winner against cuDNN's default 1.15x, against torch 1.21x, against eager torch 1.27x over 2 problems"
            " (geometric means)"
        ),
        "1 of 3 problems without a winner",
        "10 candidates: 7 measured, 1 wrong, 1 failed, 1 crashed",
    ]


def test_gains_over_different_numbers_of_problems_say_so():
    rows = [
        trial(cudnn("a", first=True), 10.0, n=1, standing=Standing.WON),
        trial(torch("eager"), 20.0, n=1),
        trial(torch("eager"), 20.0, n=2, standing=Standing.WON),
    ]
    assert job_report(rows)[-2] == (
        "winner against cuDNN's default 1.00x over 1 problem, against torch 1.41x over 2 problems (geometric means)"
    )


def test_a_figure_that_no_problem_has_gets_no_column():
    header = job_report([trial(torch("eager"), 20.0, standing=Standing.WON)])[1]
    assert "cuDNN" not in header
    assert "spread" not in header


def test_eager_torch_is_told_only_where_another_variant_is_faster():
    rows = [trial(torch("eager"), 20.0, n=1, standing=Standing.WON)]
    assert "eager torch" not in "\n".join(job_report(rows))
    rows.append(trial(torch("compile"), 19.0, n=2, standing=Standing.WON))
    rows.append(trial(torch("eager"), 20.0, n=2))
    assert "eager torch" in job_report(rows)[1]
    assert job_report(rows)[-2].count("against") == 2


def test_an_engine_without_candidates_is_told_with_its_reason_once():
    rows = [refused("cudnn", "rank 7", n=n, name=f"p{n}") for n in range(1, 6)]
    told = [line for line in job_report(rows) if line.startswith("cudnn has no candidate")]
    assert told == ["cudnn has no candidate for p1, p2, p3 and 2 more: rank 7"]


def test_dynamic_candidates_get_a_table_of_builds():
    rows = [trial(cudnn("eng7", dynamic=True), 9.0, n=n, build_ms=ms, minute=n) for n, ms in ((1, 466), (2, 6))]
    lines = job_report(rows)
    place = lines.index("Builds with the kernel cache: problems of one structure, dynamic shapes")
    assert lines[place + 2].split()[-6:] == ["2", "466", "ms", "6.0", "ms", "-"]


def test_an_empty_job_report_says_that_nothing_was_tried():
    assert job_report([]) == ["no candidates"]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_show_tells_of_every_candidate_where_it_stands_and_why(width):
    summary = summarize(small_sweep())[0]
    lines = printed(CandidateReport(summary, TARGETS), width)
    text = " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= width
    for fact in (
        "won 18.80 us [18.61, 18.99] 1.00x cudnn:eng4_k24=3",
        "slower 21.70 us [21.48, 21.92] 1.15x cudnn:eng4_k24=2",
        "12.3 % slower than the winner",
        "what cuDNN's heuristic puts first",
        "knobs KERNEL_CFG=3, SPLIT_K_SLC=1",
        "cudnn:eng32_k2=2_k6=0_k13=2_k14=0_k22=2",
        "crashed cudnn:eng9",
        "at stage load: its process died of SIGSEGV",
        f"problem {summary.problem.key}",
    ):
        assert fact in text


def test_text_from_files_and_libraries_can_not_drive_the_terminal():
    evil = "\x1b[2J[red]\nname"
    rows = [
        trial(cudnn("a"), 1.0, name=evil, standing=Standing.WON),
        failed(cudnn("b"), Status.FAILED, Stage.LOAD, evil, name=evil),
    ]
    summary = summarize(rows)[0]
    for report in (
        JobReport([summary], TARGETS),
        CandidateReport(summary, TARGETS),
        rows_table([evil], [{evil: evil}]),
    ):
        lines = printed(report)
        assert not any("\x1b" in line for line in lines)
        assert any("\\x1b[2J[red]\\nname" in line for line in lines)


def test_rows_of_a_query_show_nulls_lists_and_truth():
    lines = printed(rows_table(["a", "b", "c", "d"], [{"a": None, "b": [1, 2], "c": True, "d": 1 / 3}]))
    assert lines[1].split(maxsplit=1) == ["-", "[1, 2]  yes  0.333333"]


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (9.5131, "9.513"), (18.8, "18.80"), (179.68, "179.7"), (120_041.3, "120041")]
)
def test_microseconds_have_four_digits(value, text):
    assert microseconds(value) == text


def test_sizes_and_durations_carry_their_units():
    assert [size(n) for n in (None, 0, 512, 49_356, 1 << 30)] == ["-", "0", "512 B", "48.2 KiB", "1.0 GiB"]
    assert [duration(ms) for ms in (None, 0.04, 5.12, 450.4, 12_500)] == ["-", "0.0 ms", "5.1 ms", "450 ms", "12.5 s"]


def test_printable_text_stays_as_it_is():
    assert printable("Größe 模型 a=1") == "Größe 模型 a=1"
