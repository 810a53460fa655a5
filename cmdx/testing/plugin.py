"""
The pytest fixtures ``instant``, ``recorded`` and ``stub``.

pytest imports this at every start, of suites too that never heard of cmdx. So it is
installed as a module of its own, outside the package, and imports cmdx only when a
fixture is used.
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
    """Have no retry wait; see ``instant.pauses``, set ``instant.randoms``."""
    from cmdx import testing

    with testing.instant() as clock:
        yield clock


@pytest.fixture
def recorded() -> Iterator[Recording]:
    """Record the signals and results of tasks that are run in the test."""
    from cmdx import testing

    with testing.recorded() as recording:
        yield recording


@pytest.fixture
def stub() -> Iterator[Callable[..., Stub]]:
    """Let ``stub(Task, outcome)`` take the place of its runs until the test ends."""
    from cmdx import testing

    with ExitStack() as stack:

        def begin(*arguments: Any, **options: Any) -> Stub:
            return stack.enter_context(testing.stub(*arguments, **options))

        yield begin
