from __future__ import annotations

import math
from itertools import cycle
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cmdx import Stop, Task, clock, retriers, retry_on

settings.register_profile("retries", deadline=None, max_examples=100)
in_any_case = settings(settings.get_profile("retries"))

limits = st.integers(0, 12)
delays = st.one_of(st.just(0), st.integers(1, 100), st.floats(0, 1e6))
maximums = st.one_of(st.none(), delays)
draws = st.floats(0, 1, exclude_max=True)
names = st.sampled_from(sorted(retriers))
numbers = st.one_of(st.integers(-(10**6), 10**6), st.floats(allow_nan=True))
answers = st.one_of(numbers, st.none(), st.booleans(), st.text(max_size=3))


class VirtualClock(clock.Clock):
    """Remembers the pauses, does not sleep, and draws what it was given."""

    def __init__(self, drawn=(0.5,)) -> None:
        self.pauses: list[float] = []
        self.drawn = cycle(drawn)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)

    def random(self) -> float:
        return next(self.drawn)


class Failing(Task[int]):
    """Raises ``failures`` times, then returns the attempt."""

    def work(self) -> int:
        if self.attempt < self.context.failures:
            raise TimeoutError
        return self.attempt


class Planned(Task[None]):
    """Raises what it is told to, one error for each attempt, then returns."""

    def work(self) -> None:
        if self.attempt < len(self.context.plan):
            raise self.context.plan[self.attempt]


# -- calls and pauses -----------------------------------------------------------------


@in_any_case
@given(failures=st.integers(0, 15), limit=limits, delay=delays)
def test_work_is_called_once_more_than_it_is_retried(execute, failures, limit, delay):
    calls = []

    @retry_on(TimeoutError, limit=limit, delay=delay)
    class Charge(Failing):
        def work(self) -> int:
            calls.append(self.attempt)
            return super().work()

    with clock.use(VirtualClock()) as virtual:
        result = execute(Charge, failures=failures)

    retries = min(failures, limit)
    assert calls == list(range(retries + 1))
    assert result.retries == retries
    assert result.success == (failures <= limit)
    assert result.stopped is (Stop.SUCCESS if failures <= limit else Stop.EXHAUSTED)
    assert virtual.pauses == ([delay] * retries if delay > 0 else [])


@in_any_case
@given(
    limit=limits,
    seconds=st.fixed_dictionaries({"delay": delays, "max_delay": maximums}),
    jitter=st.one_of(st.none(), names, st.lists(answers, min_size=1)),
    drawn=st.lists(draws, min_size=1),
)
def test_pauses_stay_within_bounds(execute, limit, seconds, jitter, drawn):
    if isinstance(jitter, list):
        following = cycle(jitter)
        jitter = lambda: next(following)

    @retry_on(TimeoutError, limit=limit, jitter=jitter, **seconds)
    class Charge(Failing):
        pass

    with clock.use(VirtualClock(drawn)) as virtual:
        result = execute(Charge, failures=limit)

    assert (result.success, result.retries) == (True, limit)
    max_delay = seconds["max_delay"]
    highest = math.inf if max_delay is None else max_delay
    pauses = [attempt.pause for attempt in result.attempts[:-1]]
    assert len(pauses) == limit
    assert all(0 <= pause <= highest and math.isfinite(pause) for pause in pauses)
    assert virtual.pauses == [pause for pause in pauses if pause > 0]


@in_any_case
@given(
    said=st.lists(answers, min_size=1, max_size=12),
    delay=st.floats(0.001, 1000),
    max_delay=st.floats(0, 1000),
)
def test_each_jitter_is_told_the_pause_before(execute, said, delay, max_delay):
    seen = []

    def jitter(attempt, base, previous):
        seen.append((attempt, base, previous))
        return said[attempt]

    @retry_on(
        TimeoutError, limit=len(said), delay=delay, max_delay=max_delay, jitter=jitter
    )
    class Charge(Failing):
        pass

    with clock.use(VirtualClock()):
        execute(Charge, failures=len(said))

    pauses = []
    for answer in said:
        usable = type(answer) in (int, float) and math.isfinite(answer)
        pauses.append(sorted((0, answer if usable else delay, max_delay))[1])
    before = [None, *pauses[:-1]]
    assert seen == [(n, delay, pause) for n, pause in enumerate(before)]


BOUNDS = {
    "exponential": lambda n, d, _: (d * 2 ** min(n, 30),) * 2,
    "linear": lambda n, d, _: (d * (n + 1),) * 2,
    "half_random": lambda _, d, __: (d / 2, d),
    "full_random": lambda _, d, __: (0, d),
    "bounded_random": lambda _, d, __: (d, 2 * d),
    "decorrelated_jitter": lambda _, d, before: (d, max(3 * before, d)),
    "full_jitter": lambda n, d, _: (0, d * 2 ** min(n, 30)),
    "equal_jitter": lambda n, d, _: (d * 2 ** min(n, 30) / 2, d * 2 ** min(n, 30)),
}


@in_any_case
@given(
    jitter=st.sampled_from(sorted(BOUNDS)),
    limit=st.integers(1, 40),
    delay=st.floats(0.001, 1000),
    drawn=st.lists(draws, min_size=1),
)
def test_strategies_draw_from_their_ranges(jitter, limit, delay, drawn):
    @retry_on(TimeoutError, limit=limit, delay=delay, jitter=jitter)
    class Charge(Failing):
        pass

    with clock.use(VirtualClock(drawn)):
        result = Charge.execute(failures=limit)

    before = delay
    for attempt, record in enumerate(result.attempts[:-1]):
        low, high = BOUNDS[jitter](attempt, delay, before)
        assert low * (1 - 1e-9) <= record.pause <= high * (1 + 1e-9)
        before = record.pause


@in_any_case
@given(
    attempts=st.integers(1, 60),
    base=st.floats(1e-6, 10),
    longer=st.floats(1, 1e6),
    drawn=st.lists(draws, min_size=1),
)
def test_calling_again_pauses_below_a_doubling_bound(attempts, base, longer, drawn):
    calls = []

    class Charge(Task[None]):
        def work(self) -> None:
            self.retry(
                self.call,
                max_attempts=attempts,
                base_delay=base,
                max_delay=base * longer,
            )

        def call(self, attempt):
            calls.append(attempt)
            raise TimeoutError

    with clock.use(VirtualClock(drawn)) as virtual:
        assert isinstance(Charge.execute().cause, TimeoutError)

    assert calls == list(range(1, attempts + 1))
    expected = [
        number * min(base * 2**attempt, base * longer)
        for attempt, number in zip(range(1, attempts), cycle(drawn), strict=False)
    ]
    assert virtual.pauses == pytest.approx([each for each in expected if each > 0])


# -- rules ----------------------------------------------------------------------------

ERRORS = (TimeoutError, ConnectionError, OSError, KeyError, LookupError)


@in_any_case
@given(
    rules=st.lists(
        st.tuples(st.sets(st.sampled_from(ERRORS), min_size=1), st.integers(0, 3)),
        min_size=1,
        max_size=4,
    ),
    plan=st.lists(st.sampled_from(ERRORS), max_size=15),
)
def test_the_first_rule_that_lists_an_error_counts_it(execute, rules, plan):
    class Charge(Planned):
        pass

    for number, (exceptions, limit) in reversed(list(enumerate(rules))):
        retry_on(exceptions, limit=limit, delay=0, rule=f"number {number}")(Charge)

    result = execute(Charge, plan=plan)

    left = [limit for _, limit in rules]
    deciding, stopped = [], Stop.SUCCESS
    for error in plan:
        listing = [
            n for n, (listed, _) in enumerate(rules) if listed & {*error.__mro__}
        ]
        if not listing:
            stopped = Stop.NOT_LISTED
        elif left[listing[0]] == 0:
            stopped = Stop.EXHAUSTED
        else:
            left[listing[0]] -= 1
            deciding.append(f"number {listing[0]}")
            continue
        break
    assert (result.stopped, result.retries) == (stopped, len(deciding))
    assert [each.rule for each in result.attempts[:-1]] == deciding


# -- declarations over any order of classes -------------------------------------------


class Line(NamedTuple):
    """What one line of retry_on says."""

    exceptions: tuple[type[Exception], ...]
    options: dict[str, Any]
    rule: str | None


DEFAULTS = {
    "limit": 3,
    "delay": 0.5,
    "max_delay": None,
    "jitter": None,
    "if_": None,
    "unless": None,
}

options = st.fixed_dictionaries(
    {},
    optional={
        "limit": st.none() | st.integers(0, 5),
        "delay": st.none() | st.integers(0, 5),
        "max_delay": st.none() | st.integers(0, 5),
        "jitter": st.none() | names,
        "if_": st.none() | st.just(True),
        "unless": st.none() | st.just(False),
    },
)
lines = st.builds(
    Line,
    st.lists(st.sampled_from(ERRORS), max_size=3).map(tuple),
    options,
    st.sampled_from([None, None, "a", "b", "c"]),
)
families = st.lists(st.sets(st.integers(0, 5), max_size=3), min_size=1, max_size=7)


def classes_of(family):
    """Make one class for each set of earlier classes it derives from."""
    classes: list[type[Planned]] = []
    for ancestors in family:
        bases = [classes[each] for each in sorted(ancestors) if each < len(classes)]
        try:
            made = type("Made", (*reversed(bases), Planned), {})
        except TypeError:  # no consistent order of these bases
            made = type("Made", (*bases[:1], Planned), {})
        classes.append(made)
    return classes


def expected_rule(rule, nearest_first):
    own = [line for line in nearest_first if line.rule == rule]
    listed = [error for line in reversed(own) for error in line.exceptions]
    said = {
        name: next((line.options[name] for line in own if name in line.options), None)
        for name in DEFAULTS
    }
    effective = {
        name: DEFAULTS[name] if value is None else value for name, value in said.items()
    }
    return {"name": rule, "exceptions": tuple(dict.fromkeys(listed)), **effective}


def expected_rules(cls, spoken):
    """Ask the nearest class first, and of its lines the outermost first."""
    nearest_first = [
        line for each in cls.__mro__ for line in reversed(spoken.get(each, []))
    ]
    named = dict.fromkeys(line.rule for line in nearest_first if line.rule is not None)
    return [expected_rule(rule, nearest_first) for rule in (*named, None)]


def expected_retries(rules, error):
    for rule in rules:
        if set(rule["exceptions"]) & {*error.__mro__}:
            return rule["limit"]
    return 0


@pytest.mark.filterwarnings("ignore:.*lists no exceptions")
@in_any_case
@given(
    family=families,
    said=st.lists(st.tuples(st.integers(0, 6), lines), max_size=12),
    error=st.sampled_from(ERRORS),
)
def test_declarations_merge_over_any_order_of_classes(family, said, error):
    classes = classes_of(family)
    spoken: dict[type, list[Line]] = {}

    for place, line in said:
        cls = classes[place % len(classes)]
        retry_on(line.exceptions, rule=line.rule, **line.options)(cls)
        spoken.setdefault(cls, []).append(line)

        for each in classes:
            rules = expected_rules(each, spoken)
            read = [
                {
                    name: getattr(rule, name)
                    for name in ("name", "exceptions", *DEFAULTS)
                }
                for rule in each.retry_policy.rules
            ]
            assert read == rules
            with clock.use(VirtualClock()):
                result = each.execute(plan=[error] * 9)
            assert result.retries == expected_retries(rules, error)


@in_any_case
@given(
    family=families,
    said=st.lists(
        st.tuples(st.integers(0, 6), st.sampled_from("xyz"), st.booleans()), max_size=12
    ),
)
def test_retriers_are_found_over_any_order_of_classes(family, said):
    classes = classes_of(family)
    entries: dict[tuple[type, str], Any] = {}

    def expected(cls, name):
        nearest = (
            entries[each, name] for each in cls.__mro__ if (each, name) in entries
        )
        return next(nearest, None)

    for place, name, register in said:
        cls = classes[place % len(classes)]
        if register:
            entries[cls, name] = entry = lambda: 1.0
            cls.retriers.register(name, entry)
        else:
            assume(expected(cls, name) is not None)
            cls.retriers.deregister(name)
            if any(expected(ancestor, name) for ancestor in cls.__mro__[1:]):
                entries[cls, name] = None
            else:
                del entries[cls, name]

        for each in classes:
            for known in "xyz":
                found = expected(each, known)
                assert (known in each.retriers) == (found is not None)
                assert (known in list(each.retriers)) == (found is not None)
                if found is not None:
                    assert each.retriers.lookup(known) is found
