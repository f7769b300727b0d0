"""What the runtime logs is part of what it promises."""

import logging

import pytest


@pytest.fixture(autouse=True)
def loggers_that_speak(monkeypatch):
    """Undo what import-linter does when it runs in this process: its logging set-up silences every logger there is."""
    for name, logger in logging.Logger.manager.loggerDict.items():
        if name.startswith("tunefarm") and isinstance(logger, logging.Logger):
            monkeypatch.setattr(logger, "disabled", False)
