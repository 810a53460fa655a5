"""
The timeline of a chain: rows, bars and lanes, without pixels.

1. ``_places``: results are put below their parents, in order of their start
2. ``_result_row``: each becomes a row with a bar, ticks for attempts, and pauses
3. ``_assign_lanes``: siblings that ran at the same time get different lanes

All times are seconds from the start of the root, or of the earliest result while the
root still runs.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from cmdx.pictures.text import class_name, one_line
from cmdx.report import monotonic_start, tree_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cmdx.outcome import Attempt, Status
    from cmdx.result import Result

ROUNDING = 1e-9
"""Seconds; times that differ by less count as equal."""


class Span(NamedTuple):
    """A part of the time."""

    start: float
    width: float

    @property
    def end(self) -> float:
        """The end of the span."""
        return self.start + self.width


class Tick(NamedTuple):
    """One attempt."""

    span: Span
    error: str | None
    """The class of the exception; its message could show values."""


class ResultRow(NamedTuple):
    """The row of a result: its place in the tree, its times, its outcome."""

    name: str
    workflow: bool
    status: Status
    reason: str | None
    retries: int
    bar: Span
    ticks: tuple[Tick, ...]
    pauses: tuple[Span, ...]
    depth: int
    parent: int | None
    """The number of the row of the parent, if it is in the picture."""
    last: int
    """The number of the last row below this one; its own number if there is none."""
    lane: int
    """The lane among its siblings; 0 if it ran alone."""
    thrown: bool
    origin: int | None
    """The number of the row that the failure was thrown from, if in the picture."""
    origin_name: str | None
    rolled_back: bool
    rollback_error: str | None
    conflicts: tuple[str, ...]
    """The keys that parallel steps wrote with different values."""


class Lanes(NamedTuple):
    """Siblings that ran at the same time."""

    first: int
    last: int
    """The number of the last row of the siblings and everything below them."""
    span: Span
    at_once: int
    """The highest number of siblings at the same time."""


class Timeline(NamedTuple):
    """The rows of a chain in tree order."""

    rows: tuple[ResultRow, ...]
    lanes: tuple[Lanes, ...]
    duration: float
    root: ResultRow | None
    """The row of the root; None while it still runs."""

    def first_rows(self, most: int) -> Timeline:
        """Return the timeline with at most *most* rows."""
        rows = tuple(
            row._replace(
                last=min(row.last, most - 1),
                origin=None if (row.origin or 0) >= most else row.origin,
            )
            for row in self.rows[:most]
        )
        lanes = tuple(
            lanes._replace(last=min(lanes.last, most - 1))
            for lanes in self.lanes
            if lanes.first < most
        )
        return self._replace(rows=rows, lanes=lanes)


class Place(NamedTuple):
    """The place of a result in the tree."""

    result: Result[Any]
    depth: int
    parent: int | None


def timeline(results: Iterable[Result[Any]]) -> Timeline:
    """Return the timeline of *results*."""
    results = tuple(results)
    if not results:
        return Timeline((), (), 0.0, None)
    places = _places(results)
    zero = min(monotonic_start(result) for result in results)
    bars = [
        Span(monotonic_start(place.result) - zero, max(place.result.duration, 0.0))
        for place in places
    ]
    last = _last_rows_below(places)
    numbers, lanes = _assign_lanes(places, bars, last)
    index = {place.result.tid: number for number, place in enumerate(places)}
    rows = tuple(
        _result_row(place, bars[number], last[number], numbers[number], index)
        for number, place in enumerate(places)
    )
    ended = zip(places, rows, strict=True)
    root = next((row for place, row in ended if place.result.root), None)
    return Timeline(rows, lanes, max(bar.end for bar in bars), root)


def _places(results: Sequence[Result[Any]]) -> list[Place]:
    """Return the places of *results* in tree order."""
    places: list[Place] = []
    parents: list[int] = []  # the rows from the root down to the current one
    for number, (depth, _, result) in enumerate(tree_order(results)):
        del parents[depth:]
        places.append(Place(result, depth, parents[-1] if parents else None))
        parents.append(number)
    return places


def _last_rows_below(places: Sequence[Place]) -> list[int]:
    last = list(range(len(places)))
    for number in range(len(places) - 1, -1, -1):
        parent = places[number].parent
        if parent is not None:
            last[parent] = max(last[parent], last[number])
    return last


def _result_row(
    place: Place, bar: Span, last: int, lane: int, index: dict[str, int]
) -> ResultRow:
    result = place.result
    attempts = result.attempts
    origin = result.origin
    rollback_error = result.rollback_error
    return ResultRow(
        class_name(result.task),
        result.type == "Workflow",
        result.status,
        None if result.reason is None else one_line(result.reason),
        result.retries,
        bar,
        _attempt_ticks(bar.start, attempts),
        _pause_spans(bar.start, attempts),
        place.depth,
        place.parent,
        last,
        lane,
        result.is_thrown_failure,
        None if origin is None else index.get(origin.tid),
        None if origin is None else class_name(origin.task),
        result.rolled_back,
        None if rollback_error is None else class_name(type(rollback_error)),
        tuple(one_line(conflict.key) for conflict in result.conflicts),
    )


def _attempt_ticks(start: float, attempts: Sequence[Attempt]) -> tuple[Tick, ...]:
    return tuple(
        Tick(
            Span(start + attempt.start, attempt.duration),
            None if attempt.error is None else class_name(type(attempt.error)),
        )
        for attempt in attempts
    )


def _pause_spans(start: float, attempts: Sequence[Attempt]) -> tuple[Span, ...]:
    """Return the pauses as they were, which may be longer than was decided."""
    pauses = []
    for before, after in pairwise(attempts):
        end = before.start + before.duration
        if before.pause and after.start > end:
            pauses.append(Span(start + end, after.start - end))
    return tuple(pauses)


# -- lanes ---------------------------------------------------------------------------


def _assign_lanes(
    places: Sequence[Place], bars: Sequence[Span], last: Sequence[int]
) -> tuple[list[int], tuple[Lanes, ...]]:
    """Return the lane of each row, and the groups of siblings that overlap."""
    siblings: dict[int | None, list[int]] = {}
    for number, place in enumerate(places):
        siblings.setdefault(place.parent, []).append(number)
    numbers = [0] * len(places)
    groups = []
    for family in siblings.values():
        for together in _overlapping_groups(family, bars):
            at_once = _take_lanes(together, bars, numbers)
            start = bars[together[0]].start
            end = max(bars[number].end for number in together)
            rows = together[0], last[together[-1]]
            groups.append(Lanes(*rows, Span(start, end - start), at_once))
    return numbers, tuple(sorted(groups))


def _overlapping_groups(family: Sequence[int], bars: Sequence[Span]) -> list[list[int]]:
    """Split siblings into groups that overlap in time, and drop groups of one."""
    groups: list[list[int]] = []
    busy_until = float("-inf")
    for number in family:
        if bars[number].start >= busy_until - ROUNDING:
            groups.append([])
        groups[-1].append(number)
        busy_until = max(busy_until, bars[number].end)
    return [group for group in groups if len(group) > 1]


def _take_lanes(
    together: Sequence[int], bars: Sequence[Span], numbers: list[int]
) -> int:
    """Write the lane of each row into *numbers*; return how many lanes there are."""
    free: list[int] = []
    taken: list[tuple[float, int]] = []
    count = 0
    for number in together:
        while taken and taken[0][0] <= bars[number].start + ROUNDING:
            heappush(free, heappop(taken)[1])
        if not free:
            heappush(free, count)
            count += 1
        lane = numbers[number] = heappop(free)
        heappush(taken, (bars[number].end, lane))
    return count
