"""
Lanes: jobs of which another package decides when they run and how they end.

``cmdx.delivery`` has its events in lanes: one for each courier.

A job with a lane waits by a rank above all others, so workers do not claim it with
them. The package puts a ``Lane`` beside a queue. Workers of this process visit it in
each round, inside their transaction, with how jobs of the lane have ended, and with how
many more they can take.

Keys of jobs with a lane begin with a text that other jobs cannot have.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import attrs

from cmdx.exceptions import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cmdx import Result
    from cmdx.queue.queue import Queue
    from cmdx.queue.table import JobRecord
    from cmdx.stores import Statements

IN_ORDER, OVERTAKING = "courier/", "courier-overtaking/"
"""What keys of jobs with a lane begin with: those that run in order, and those that may
overtake these."""


@attrs.define
class Visit:
    """What a lane is asked to do in a round, and what it has done."""

    queue: str
    owner: str
    keep: float
    ends: Sequence[tuple[JobRecord, Any]]
    """Its jobs that have ended, and the outcome of each."""
    room: int
    """How many jobs it may claim."""
    removes: bool
    """Whether what is over may be removed."""
    changed: list[JobRecord] = attrs.field(factory=list)
    """What has ended, or waits again, as it is stored now."""
    claimed: list[JobRecord] = attrs.field(factory=list)
    """What it has claimed."""
    notices: list[Any] = attrs.field(factory=list)
    """What is to be told after the commit."""
    next_due: float = math.inf
    """When there is something to do, unless somebody writes before."""


class Lane(Protocol):
    """What another package does with its jobs."""

    ranks: range
    """Those of its jobs; no other lane has them."""

    def visit(self, statements: Statements, visit: Visit) -> None:
        """Write ends, and claim jobs that may go."""

    def outcome_of(self, result: Result[Any], note: Any) -> Any:
        """Return the outcome of a leg: its result, and what its work has noted."""

    def tell(self, notice: Any) -> None:
        """Send the signals of a notice."""


L = TypeVar("L", bound=Lane)


def lane_beside(queue: Queue, kind: type[L], new_lane: Callable[[], L]) -> L:
    """Return the lane of a kind beside a queue; make it if there is none."""
    lanes = queue.store.companions
    found: Any = lanes.setdefault((queue.name, kind), new_lane())
    lane: L = found
    return lane


def lane_of(queue: Queue, rank: int) -> Lane | None:
    """Return the lane that has a rank; None if it is of another process."""
    return next((lane for lane in lanes_of(queue) if rank in lane.ranks), None)


def lanes_of(queue: Queue) -> list[Lane]:
    """Return the lanes beside a queue."""
    lanes = queue.store.companions
    return [lane for (name, _), lane in lanes.copy().items() if name == queue.name]


# -- keys ---------------------------------------------------------------------------


def require_free_key(where: str, key: str) -> str:
    """Return the key of a job without a lane; refuse one that only lanes have."""
    if not key.startswith((IN_ORDER, OVERTAKING)):
        return key
    message = (
        f"{where}: key must not begin with {IN_ORDER!r} or {OVERTAKING!r}, which are "
        f"for the events of couriers, got {key!r}. Choose another one."
    )
    raise DefinitionError(message)


def key_in_order(key: str | None) -> str | None:
    """Return the key that a job with a lane had before it overtook others."""
    if key is None or not key.startswith(OVERTAKING):
        return key
    return IN_ORDER + key.removeprefix(OVERTAKING)
