"""The JSON Schema for editors says what the reader says."""

from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.jobfile.problems import PROBLEM_TYPES, Grid
from tunefarm.jobfile import job_schema
from tunefarm.jobfile.fields import fields_of
from tunefarm.model.job import Protocol, Search
from tunefarm.ops import OPERATIONS

JOBS = sorted((Path(__file__).parents[2] / "jobs").glob("*.yaml"))


def complaints(content: str) -> list[str]:
    """What a validator finds wrong with a job file by the schema alone."""
    validator = jsonschema.Draft202012Validator(job_schema(PROBLEM_TYPES))
    return [error.message for error in validator.iter_errors(yaml.safe_load(content))]


def test_it_is_a_valid_schema():
    jsonschema.Draft202012Validator.check_schema(job_schema())


def test_it_documents_every_field_of_every_operation():
    definitions = job_schema()["$defs"]
    for name, operation in OPERATIONS.items():
        for field in fields_of(operation.problem_type).values():
            assert definitions[name]["properties"][field.name]["description"] == field.doc


@pytest.mark.parametrize(("name", "record"), [("search", Search), ("measure", Protocol)])
def test_it_documents_every_setting(name, record):
    properties = job_schema()["$defs"][name]["properties"]
    assert {key: value["description"] for key, value in properties.items()} == {
        field.name: field.doc for field in fields_of(record).values()
    }


def test_it_shows_defaults_as_a_job_would_write_them():
    properties = job_schema(PROBLEM_TYPES)["$defs"]["grid"]["properties"]
    shown = {name: properties[name]["default"] for name, field in fields_of(Grid).items() if not field.required}
    assert shown == {
        "cols": 0,
        "tile": 1,
        "scale": 1.0,
        "edge": "none",
        "dtype": "bfloat16",
        "packed": False,
        "limit": None,
    }
    assert "default" not in properties["rows"]


@pytest.mark.parametrize(
    "content",
    [
        "ops: [{op: grid, rows: 1}]",
        "include: a.yaml",
        "include: [a.yaml, b.yaml]",
        "ops: [{op: grid, rows: [1, 4k], edge: [none, wrap], limit: [null, 3], scale: 2}]",
        "ops: [{op: grid, zip: {rows: [1, 2], cols: [3, 4]}, where: rows > 1}]",
        "ops: [{op: grid, zip: [{rows: [1, 2]}], where: [rows > 1], search: {engines: torch}}]",
        "ops: [{op: grid, rows: 1}]\nmeasure: {cache: hot, max_workspace: 256MiB}",
    ],
)
def test_it_accepts_what_the_reader_accepts(content):
    assert complaints(content) == []


@pytest.mark.parametrize(
    "content",
    [
        "job: x",
        "ops: []",
        "opps: [{op: grid, rows: 1}]",
        "ops: [{op: gird, rows: 1}]",
        "ops: [{op: grid, rows: 0}]",
        "ops: [{op: grid, rows: []}]",
        "ops: [{op: grid, rows: 4kb}]",
        "ops: [{op: grid, rows: 1, edge: wrapp}]",
        "ops: [{op: grid, rows: 1, packed: 'yes'}]",
        "ops: [{op: grid, zip: {rows: 4}}]",
        "ops: [{op: grid, rows: 1, where: 4}]",
        "ops: [{op: grid, rows: 1}]\nmeasure: {cache: warm}",
        "ops: [{op: grid, rows: 1}]\nmeasure: {version: 1}",
    ],
)
def test_it_refuses_what_the_reader_refuses(content):
    assert complaints(content)


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_it_accepts_every_job_that_ships(path):
    jsonschema.validate(yaml.safe_load(path.read_text()), job_schema())
