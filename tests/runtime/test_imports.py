"""What an inference process pays for importing the runtime."""

import pytest

from tests.test_architecture import imported_by

FARMS_OWN = {"ray", "pyarrow", "duckdb", "click", "pydantic", "yaml", "rich", "psutil", "cel"}


@pytest.mark.parametrize(
    "names", ["PlanBook, apply", "Bundle", "Cause, Counters, Step, Hit, Miss, Coverage, Explanation"]
)
def test_the_runtime_needs_nothing_of_the_farms(names):
    assert not imported_by(f"from tunefarm.runtime import {names}") & FARMS_OWN


def test_a_bundle_is_checked_without_torch():
    assert not imported_by("from tunefarm.runtime import Bundle") & {"torch", "cudnn"}


def test_a_name_that_is_not_there_is_an_attribute_error():
    import tunefarm.runtime

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tunefarm.runtime.nothing  # noqa: B018 - the access is the test
