"""Time and chance, faked in one place."""

from __future__ import annotations

import pytest

from cmdx import testing


@pytest.fixture
def instant():
    with testing.instant() as clock:
        yield clock
