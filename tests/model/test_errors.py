import pickle

import pytest

from tunefarm.model import errors
from tunefarm.model.errors import InvalidProblem, JobError, Mistake, TunefarmError


def tree() -> list[type[TunefarmError]]:
    return [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, TunefarmError)]


@pytest.mark.parametrize("error", [e for e in tree() if e is not TunefarmError])
def test_every_error_stands_in_the_tree_that_the_module_draws(error: type[TunefarmError]) -> None:
    assert error.__name__ in (errors.__doc__ or "")


def test_a_job_error_tells_every_mistake_in_file_order_with_its_place() -> None:
    late = Mistake("job.yaml", 9, 3, "ops[1].m", "-1 is below 1")
    early = Mistake("job.yaml", 2, 1, "", "unknown key")
    assert str(JobError([late, early])).splitlines() == [
        "2 mistakes in the job file",
        "  job.yaml:2:1: unknown key",
        "  job.yaml:9:3: ops[1].m: -1 is below 1",
    ]


def test_an_invalid_problem_survives_the_way_between_processes() -> None:
    error = pickle.loads(pickle.dumps(InvalidProblem("groups", "3 does not divide 64")))
    assert (error.field, error.message) == ("groups", "3 does not divide 64")
