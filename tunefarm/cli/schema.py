"""`tunefarm schema`."""

import click

from tunefarm.cli.output import print_json


@click.command()
def schema() -> None:
    """Print the JSON Schema of job files.

    Editors use it to complete and check: save it, and begin a job file with
    `# yaml-language-server: $schema=FILE`.
    """
    from tunefarm.jobfile import job_schema

    print_json(job_schema())
