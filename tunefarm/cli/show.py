"""`tunefarm show`."""

import click

from tunefarm.cli.options import json_option, store_option, warn_of_damage
from tunefarm.cli.output import note, print_json, print_report
from tunefarm.model.errors import UsageError


@click.command()
@click.argument("problem")
@store_option
@json_option
def show(problem: str, store_path: str, as_json: bool) -> int:
    """Show every candidate of one problem, the winner first, and why each won, lost or failed.

    PROBLEM is its name in the job, its label, or its key or the beginning of it.
    """
    from tunefarm.report.candidates import CandidateReport
    from tunefarm.report.payload import VERSION, candidates_payload, summary_payload, targets_payload
    from tunefarm.report.summary import summarize
    from tunefarm.store import Store

    store = Store.open(store_path)
    try:
        key = store.resolve_problem(problem)
    except UsageError as error:
        if not store.damage:
            raise
        note(f"tunefarm: {error}")  # it may be in a part that is damaged
        return warn_of_damage(store)
    summaries = summarize(store.trials(problems={key}))
    targets = store.targets()
    if as_json:
        print_json(
            {
                "version": VERSION,
                "problem": key,
                "targets": targets_payload(targets, {summary.target for summary in summaries}),
                "results": [
                    {**summary_payload(summary), "candidates": candidates_payload(summary)} for summary in summaries
                ],
            }
        )
    else:
        for place, summary in enumerate(summaries):
            if place:
                print()
            print_report(CandidateReport(summary, targets))
    return warn_of_damage(store)
