"""
The pytest fixtures ``instant``, ``recorded`` and ``stub``.

pytest imports this module in every run, even of suites that do not use cmdx. It is
therefore installed outside the package, and imports cmdx only when a fixture is used.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cmdx.testing import InstantClock, Recording, Stub


@pytest.fixture
def instant() -> Iterator[InstantClock]:
    """Replace the clock, so that no retry waits; ``instant.pauses`` has the pauses."""
    from cmdx import testing

    with testing.instant() as clock:
        yield clock


@pytest.fixture
def recorded() -> Iterator[Recording]:
    """Record the signals and results of the tasks that the test runs."""
    from cmdx import testing

    with testing.recorded() as recording:
        yield recording


@pytest.fixture
def stub() -> Iterator[Callable[..., Stub]]:
    """Stub tasks until the end of the test, with ``stub(Task, outcome)``."""
    from cmdx import testing

    with ExitStack() as stack:

        def begin(*arguments: Any, **options: Any) -> Stub:
            return stack.enter_context(testing.stub(*arguments, **options))

        yield begin
