"""
When everything in a chain happened, as plain values.

1. results are put under their parents, in the order they started   ``_in_tree_order``
2. each becomes a row: a bar, ticks for attempts, pauses between    ``_row``
3. siblings that ran at the same time are given lanes               ``_in_lanes``

All times are seconds from the start of the root, or of the earliest result while the
root still runs. Nothing here knows about pixels.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from cmdx.pictures.words import name_of, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cmdx.outcome import Status
    from cmdx.result import Attempt, Result

ROUNDING = 1e-9
"""Seconds; times that differ by less are the same but for the arithmetic."""


class Span(NamedTuple):
    """A stretch of time."""

    start: float
    width: float

    @property
    def end(self) -> float:
        """When it is over."""
        return self.start + self.width


class Tick(NamedTuple):
    """One attempt."""

    span: Span
    error: str | None
    """The class of what it raised; the message may tell too much."""


class Row(NamedTuple):
    """One result: where it stands in the tree, when it ran, what became of it."""

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
    """The row of the parent, if it is in the picture."""
    last: int
    """The last row below this one; its own when there is none."""
    lane: int
    """Which of the lanes of its siblings it took; 0 when it ran alone."""
    thrown: bool
    origin: int | None
    """The row the failure was thrown from, if it is in the picture."""
    origin_name: str | None
    rolled_back: bool
    rollback_error: str | None


class Lanes(NamedTuple):
    """Siblings that ran at the same time."""

    first: int
    last: int
    """The rows they and everything below them take."""
    span: Span
    at_once: int
    """How many there were at most."""


class Timeline(NamedTuple):
    """The rows of a chain in the order of its tree."""

    rows: tuple[Row, ...]
    lanes: tuple[Lanes, ...]
    duration: float
    root: Row | None
    """The row of the root; None while it still runs."""

    def clipped(self, most: int) -> Timeline:
        """Return the first *most* rows, and what is left of the rest."""
        rows = tuple(
            row._replace(
                last=min(row.last, most - 1),
                origin=None if (row.origin or 0) >= most else row.origin,
            )
            for row in self.rows[:most]
        )
        lanes = tuple(
            each._replace(last=min(each.last, most - 1))
            for each in self.lanes
            if each.first < most
        )
        return self._replace(rows=rows, lanes=lanes)


class Place(NamedTuple):
    """Where a result stands in the tree."""

    result: Result[Any]
    depth: int
    parent: int | None


def timeline(results: Iterable[Result[Any]]) -> Timeline:
    """Return when everything in *results* happened."""
    results = tuple(results)
    if not results:
        return Timeline((), (), 0.0, None)
    places = _in_tree_order(results)
    zero = min(started(result) for result in results)
    bars = [
        Span(started(place.result) - zero, max(place.result.duration, 0.0))
        for place in places
    ]
    last = _last_below(places)
    numbers, lanes = _in_lanes(places, bars, last)
    index = {place.result.tid: number for number, place in enumerate(places)}
    rows = tuple(
        _row(place, bars[number], last[number], numbers[number], index)
        for number, place in enumerate(places)
    )
    ended = zip(places, rows, strict=True)
    root = next((row for place, row in ended if place.result.root), None)
    return Timeline(rows, lanes, max(bar.end for bar in bars), root)


def started(result: Result[Any]) -> float:
    """Return when *result* began, in the seconds of its clock."""
    return result._record.task._started_


def _in_tree_order(results: Sequence[Result[Any]]) -> list[Place]:
    """Put children under their parents, in order of start."""
    children: dict[str | None, list[Result[Any]]] = {}
    known = {result.tid for result in results}
    for result in sorted(results, key=started):
        parent = result.parent_tid if result.parent_tid in known else None
        children.setdefault(parent, []).append(result)

    places: list[Place] = []
    stack = [Place(result, 0, None) for result in reversed(children.get(None, []))]
    while stack:
        place = stack.pop()
        number = len(places)
        places.append(place)
        below = children.get(place.result.tid, ())
        stack += [Place(child, place.depth + 1, number) for child in reversed(below)]
    return places


def _last_below(places: Sequence[Place]) -> list[int]:
    last = list(range(len(places)))
    for number in range(len(places) - 1, -1, -1):
        parent = places[number].parent
        if parent is not None:
            last[parent] = max(last[parent], last[number])
    return last


def _row(place: Place, bar: Span, last: int, lane: int, index: dict[str, int]) -> Row:
    result = place.result
    attempts = result.attempts
    origin = result.origin
    undone = result.rollback_error
    return Row(
        name_of(result.task),
        result.type == "Workflow",
        result.status,
        None if result.reason is None else plain(result.reason),
        result.retries,
        bar,
        _ticks(bar.start, attempts),
        _pauses(bar.start, attempts),
        place.depth,
        place.parent,
        last,
        lane,
        result.is_thrown_failure,
        None if origin is None else index.get(origin.tid),
        None if origin is None else name_of(origin.task),
        result.rolled_back,
        None if undone is None else name_of(type(undone)),
    )


def _ticks(start: float, attempts: Sequence[Attempt]) -> tuple[Tick, ...]:
    return tuple(
        Tick(
            Span(start + each.start, each.duration),
            None if each.error is None else name_of(type(each.error)),
        )
        for each in attempts
    )


def _pauses(start: float, attempts: Sequence[Attempt]) -> tuple[Span, ...]:
    """Return what lies between attempts: what was waited, not what was decided."""
    pauses = []
    for before, after in pairwise(attempts):
        end = before.start + before.duration
        if before.pause and after.start > end:
            pauses.append(Span(start + end, after.start - end))
    return tuple(pauses)


# -- lanes ---------------------------------------------------------------------------


def _in_lanes(
    places: Sequence[Place], bars: Sequence[Span], last: Sequence[int]
) -> tuple[list[int], tuple[Lanes, ...]]:
    """Give each row the first lane that is free, and gather rows that overlap."""
    siblings: dict[int | None, list[int]] = {}
    for number, place in enumerate(places):
        siblings.setdefault(place.parent, []).append(number)
    numbers = [0] * len(places)
    gathered = []
    for family in siblings.values():
        for together in _overlapping(family, bars):
            at_once = _take_lanes(together, bars, numbers)
            start = bars[together[0]].start
            end = max(bars[number].end for number in together)
            rows = together[0], last[together[-1]]
            gathered.append(Lanes(*rows, Span(start, end - start), at_once))
    return numbers, tuple(sorted(gathered))


def _overlapping(family: Sequence[int], bars: Sequence[Span]) -> list[list[int]]:
    """Split siblings, in order of start, where nobody runs; keep what is no single."""
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
    """Note the lane of each row in *numbers*; return how many lanes there are."""
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
