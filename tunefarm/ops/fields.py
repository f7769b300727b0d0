"""Fields whose default is another field's value."""

from tunefarm.model.problem import Problem


def default_to_fields(problem: Problem, unset: int, **sources: str) -> None:
    """Give each named field that holds `unset` the value of the field that it defaults to.

    Called before a problem's checks, so that the two ways to write one problem are equal and have one key. `unset` is
    the value just below the field's smallest meaningful one: 0 for sizes, -1 for a padding.
    """
    for name, source in sources.items():
        if getattr(problem, name) == unset:
            object.__setattr__(problem, name, getattr(problem, source))
