"""Engines on each broker, with a worker in this process."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest
from engine_tasks import JOURNAL
from places import ENVIRONMENT, PLACES, new_place, silence


@pytest.fixture(scope="session", autouse=True)
def _journal(tmp_path_factory):
    """A file that tasks write to."""
    path = tmp_path_factory.mktemp("engines") / "journal"
    path.touch()
    os.environ[JOURNAL] = ENVIRONMENT[JOURNAL] = str(path)
    yield
    del os.environ[JOURNAL]


@pytest.fixture(scope="module", params=PLACES)
def place(request):
    """An engine on a broker, with a worker."""
    silence()
    place = new_place(request.param)
    try:
        with place.working():
            yield place
    finally:
        place.close()


@pytest.fixture
def engine(place):
    return place.engine


@pytest.fixture
def new():
    """Return another place, without a worker; it is closed after the test."""
    silence()
    with ExitStack() as stack:

        def make(name, **options):
            place = new_place(name, **options)
            stack.callback(place.close)
            return place

        yield make
