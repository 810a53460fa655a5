"""Time and chance, faked in one place."""

from __future__ import annotations

import gc
import os

import pytest

from cmdx import testing


@pytest.fixture
def instant():
    with testing.instant() as clock:
        yield clock


def pytest_configure():
    """Let processes that tests start share compiled files; compiling takes longer."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_collection_finish():
    """Keep the tests themselves out of collections, which many tests ask for."""
    gc.collect()
    gc.freeze()
