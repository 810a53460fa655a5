"""A chain whose times are known, and a clock to make others with."""

from __future__ import annotations

import pytest
from pictured_shop import StillClock, visit

from cmdx import clock


@pytest.fixture
def still():
    with clock.use(StillClock()) as replacement:
        yield replacement


@pytest.fixture(scope="session")
def chain():
    return visit()
