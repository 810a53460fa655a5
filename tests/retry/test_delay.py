from __future__ import annotations

import asyncio
import functools
import gc
import math
import random
import statistics
import weakref
from contextlib import nullcontext
from decimal import Decimal
from fractions import Fraction
from itertools import cycle

import pytest

from cmdx import Stop, Task, UnknownEntryError, clock, deadline, retriers, retry_on


class Down(Task[None]):
    """Raises each time."""

    def work(self) -> None:
        raise TimeoutError("down")


@pytest.fixture
def pauses(execute, instant):
    """Fail each time, and list the pauses; those of nothing must not be slept."""

    def list_pauses(task=Down, **options):
        @retry_on(TimeoutError, **options)
        class Charge(task):
            pass

        result = execute(Charge)

        assert isinstance(result.cause, TimeoutError)
        assert result.stopped == Stop.EXHAUSTED
        made = [attempt.pause for attempt in result.attempts]
        assert made.pop() is None  # after the last attempt
        assert instant.pauses == [pause for pause in made if pause]
        return made

    return list_pauses


# -- no sleeping for nothing ----------------------------------------------------------


def refuse(*_):
    raise AssertionError("jitter was called")


@pytest.mark.parametrize(
    "options",
    [
        {"delay": 0, "jitter": refuse},  # R-004-17
        {"delay": 0.0, "jitter": refuse},
        {"jitter": lambda: 0},
        {"jitter": lambda: 0.0},
        {"jitter": lambda: -1.0},
        {"jitter": lambda: -1.0, "max_delay": 2.0},
        {"max_delay": 0},
        {"max_delay": 0.0, "jitter": "exponential"},
    ],
    ids=[
        "no delay",
        "no delay float",
        "zero",
        "zero float",
        "negative",
        "negative clamped",
        "cap",
        "cap and jitter",
    ],
)
def test_a_pause_of_nothing_is_not_slept(pauses, options):  # R-004-20
    assert pauses(**options) == [0, 0, 0]


def test_the_first_success_sleeps_not_at_all(execute, instant):
    @retry_on(TimeoutError)
    class Charge(Task[None]):
        def work(self) -> None:
            """Do nothing."""

    assert execute(Charge).success
    assert instant.pauses == []


# -- how long -------------------------------------------------------------------------


def after_the_pause_before(drawn):
    previous = 4
    for _ in range(6):
        previous = 4 + drawn * (3 * previous - 4)
        yield previous


@pytest.mark.parametrize("drawn", [0.0, 0.25, 0.5, 0.999])
@pytest.mark.parametrize(
    ("jitter", "expected"),
    [
        (None, lambda _: [4, 4, 4, 4, 4, 4]),  # R-004-18
        ("linear", lambda _: [4, 8, 12, 16, 20, 24]),
        ("exponential", lambda _: [4, 8, 16, 32, 64, 128]),
        ("fibonacci", lambda _: [4, 4, 8, 12, 20, 32]),
        ("half_random", lambda drawn: [2 + 2 * drawn] * 6),
        ("full_random", lambda drawn: [4 * drawn] * 6),
        ("bounded_random", lambda drawn: [4 + 4 * drawn] * 6),
        ("full_jitter", lambda drawn: [4 * 2**n * drawn for n in range(6)]),
        ("equal_jitter", lambda drawn: [2 * 2**n * (1 + drawn) for n in range(6)]),
        ("decorrelated_jitter", after_the_pause_before),
    ],
)
def test_a_strategy_says_how_long_to_wait(pauses, instant, jitter, expected, drawn):
    instant.randoms = drawn  # R-004-19

    made = pauses(limit=6, delay=4, jitter=jitter)

    assert made == pytest.approx(list(expected(drawn)))


@pytest.mark.parametrize(
    ("max_delay", "drawn", "expected"),
    [
        (3, 0.5, [4, 5.5, 5.5]),  # halfway from 2 to 6, then from 2 to 3 * 3
        (0.5, 0.999, [2 + 0.999 * 4, 2, 2]),  # from 2 to 3 * 0.5 is below the delay
        (0, 0.5, [4, 2, 2]),  # a pause of zero is a pause
    ],
)
def test_decorrelated_jitter_goes_on_from_the_clamped_pause(
    pauses, instant, max_delay, drawn, expected
):  # R-004-20, R-004-21, R-004-22
    instant.randoms = drawn
    answers = []

    def spy(attempt, delay, previous):
        answers.append(retriers.lookup("decorrelated_jitter")(attempt, delay, previous))
        return answers[-1]

    made = pauses(limit=3, delay=2, max_delay=max_delay, jitter=spy)

    assert answers == pytest.approx(expected)
    assert made == [max_delay] * 3


def fibonacci_numbers(count):
    numbers = [1, 1]
    while len(numbers) < count:
        numbers.append(numbers[-1] + numbers[-2])
    return numbers


@pytest.mark.parametrize(
    ("jitter", "growth"),
    [
        ("exponential", [2.0**n for n in range(31)]),
        ("fibonacci", fibonacci_numbers(78)),
    ],
    ids=["exponential", "fibonacci"],
)
def test_growth_saturates(pauses, jitter, growth):  # R-004-22
    made = pauses(limit=1500, delay=1, jitter=jitter)

    assert made[: len(growth)] == growth
    assert set(made[len(growth) :]) == {growth[-1]}


@pytest.mark.parametrize(
    "jitter", ["exponential", "fibonacci", "linear", "full_jitter", "equal_jitter"]
)
def test_no_strategy_overflows(pauses, jitter):
    made = pauses(limit=1500, delay=1.0, max_delay=60, jitter=jitter)

    assert len(made) == 1500
    assert max(made) <= 60


CAP = 10.0
LIVELY = 10_000


@pytest.mark.parametrize(
    ("jitter", "lowest", "mean"),
    [("full_jitter", 0.0, CAP / 2), ("equal_jitter", CAP / 2, CAP * 3 / 4)],
)
def test_jitter_stays_alive_at_the_cap(pauses, instant, jitter, lowest, mean):
    instant.randoms = iter(random.Random(30).random, None)

    made = pauses(limit=30 + LIVELY, max_delay=CAP, jitter=jitter)[30:]

    assert len(made) == LIVELY
    assert lowest <= min(made) <= lowest + CAP / 100
    assert max(made) <= CAP
    assert sum(pause == CAP for pause in made) < LIVELY / 100
    assert statistics.fmean(made) == pytest.approx(mean, rel=0.02)


# -- clamping and nonsense ------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"delay": 2.0, "max_delay": 0.75}, [0.75, 0.75, 0.75]),
        ({"jitter": "exponential", "max_delay": 1.5}, [0.5, 1.0, 1.5]),
        ({"jitter": lambda: 7, "max_delay": 4}, [4, 4, 4]),
        ({"jitter": lambda: 7}, [7, 7, 7]),
        ({"jitter": lambda: 10**400, "max_delay": 4}, [4, 4, 4]),
        ({"jitter": lambda: 1e-9, "max_delay": 4}, [1e-9, 1e-9, 1e-9]),
    ],
)
def test_a_pause_is_clamped_to_max_delay_after_jitter(pauses, options, expected):
    assert pauses(**options) == expected  # R-004-20


class Whole(int):
    """A number of another library, as numpy has them."""


@pytest.mark.parametrize(
    ("answer", "pause"),
    [
        (2, 2),
        (0.25, 0.25),
        (Fraction(1, 4), 0.25),
        (Decimal("2.5"), 2.5),
        (Whole(3), 3),
    ],
    ids=["int", "float", "Fraction", "Decimal", "Real"],
)
def test_any_finite_number_is_a_pause(pauses, answer, pause):  # R-004-22
    assert pauses(limit=1, jitter=lambda: answer) == [pause]


NO_PAUSES = [math.nan, math.inf, -math.inf, None, True, False, "1.0", 1j, [1.0]]
NO_PAUSES += [Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), Decimal("1e999")]


@pytest.mark.parametrize("answer", NO_PAUSES, ids=repr)
@pytest.mark.parametrize(("max_delay", "pause"), [(None, 0.5), (0.25, 0.25)])
def test_a_jitter_that_answers_no_finite_number_means_the_delay(
    pauses, answer, max_delay, pause
):  # R-004-22
    assert pauses(limit=2, max_delay=max_delay, jitter=lambda: answer) == [pause] * 2


# -- previous -------------------------------------------------------------------------


@pytest.fixture
def told():
    """A jitter that answers what it is given, and keeps what it was told."""

    class Telling(list):
        def answering(self, *answers):
            remaining = cycle(answers)

            def jitter(attempt, delay, previous):
                self.append((attempt, delay, previous))
                return next(remaining)

            return jitter

    return Telling()


def test_each_jitter_is_told_the_clamped_pause_before(pauses, told):  # R-004-20
    jitter = told.answering(1.0, 9.0, -3.0, None, 0.25)

    made = pauses(limit=5, delay=2, max_delay=4, jitter=jitter)

    assert told == [(0, 2, None), (1, 2, 1.0), (2, 2, 4), (3, 2, 0), (4, 2, 2)]
    assert made == [1.0, 4, 0, 2, 0.25]


def test_a_previous_pause_of_zero_is_not_absent(pauses, told):  # R-004-21
    pauses(limit=2, jitter=told.answering(0.0))

    assert [previous for _, _, previous in told] == [None, 0.0]


@pytest.mark.usefixtures("instant")
def test_previous_belongs_to_one_run(execute, told):  # R-004-21
    @retry_on(TimeoutError, limit=2, jitter=told.answering(0.25))
    class Charge(Down):
        pass

    execute(Charge)
    execute(Charge)

    assert [previous for _, _, previous in told] == [None, 0.25] * 2


@pytest.mark.usefixtures("instant")
def test_previous_belongs_to_one_of_nested_runs(execute, told):  # R-004-21
    jitter = told.answering(0.25)

    @retry_on(TimeoutError, limit=1, jitter=jitter)
    class Inner(Down):
        pass

    @retry_on(TimeoutError, limit=1, jitter=jitter)
    class Outer(Task[None]):
        def work(self) -> None:
            Inner.execute_or_raise()

    execute(Outer)

    assert [previous for _, _, previous in told] == [None, None, None]


# -- what a jitter may be -------------------------------------------------------------

GIVEN = (0, 0.5, None)


class Answering:
    """A callable object."""

    def __call__(self, attempt, delay):
        return record((attempt, delay))


class Unhashable(Answering):
    __hash__ = None


taken = []


def record(arguments):
    taken.append(arguments)
    return 0.125


def three(attempt, delay, previous):
    return record((attempt, delay, previous))


@pytest.mark.parametrize(
    ("jitter", "expected"),
    [
        (lambda: record(()), GIVEN[:0]),
        (lambda attempt: record((attempt,)), GIVEN[:1]),
        (lambda attempt, delay: record((attempt, delay)), GIVEN[:2]),
        (lambda attempt, delay, previous: record((attempt, delay, previous)), GIVEN),
        (lambda attempt, delay=9: record((attempt, delay)), GIVEN[:2]),
        (lambda *arguments: record(arguments), GIVEN),
        (lambda attempt, *others: record((attempt, *others)), GIVEN),
        (lambda attempt, **_: record((attempt,)), GIVEN[:1]),
        (lambda attempt, *, scale=3: record((attempt, scale)), (0, 3)),
        (functools.partial(lambda scale, attempt: record((scale, attempt)), 3), (3, 0)),
        (Answering(), GIVEN[:2]),
        (Unhashable(), GIVEN[:2]),
        (Answering().__call__, GIVEN[:2]),
        (three, GIVEN),
    ],
    ids=[
        "none",
        "one",
        "two",
        "three",
        "default",
        "any",
        "one and any",
        "keywords",
        "keyword only",
        "partial",
        "object",
        "unhashable object",
        "bound method",
        "function",
    ],
)
def test_a_jitter_is_given_as_much_as_it_takes(pauses, jitter, expected):  # R-004-24
    taken.clear()

    assert pauses(limit=1, jitter=jitter) == [0.125]
    assert taken == [expected]


class Methods(Down):
    """Offers methods of every arity."""

    def nothing(self):
        return record((self,))

    def one(self, attempt):
        return record((self, attempt))

    def two(self, attempt, delay):
        return record((self, attempt, delay))

    def three(self, attempt, delay, previous):
        return record((self, attempt, delay, previous))

    def _private(self, attempt):
        return record((self, attempt))

    @staticmethod
    def static(attempt, delay):
        return record(("static", attempt, delay))

    @classmethod
    def of_class(cls, attempt):
        return record(("class", attempt))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nothing", GIVEN[:0]),
        ("one", GIVEN[:1]),
        ("two", GIVEN[:2]),
        ("three", GIVEN),
        ("_private", GIVEN[:1]),
        ("static", GIVEN[:2]),
        ("of_class", GIVEN[:1]),
    ],
)
def test_a_method_is_a_jitter_by_its_name(pauses, name, expected):  # R-004-24
    taken.clear()

    assert pauses(Methods, limit=1, jitter=name) == [0.125]
    [(owner, *arguments)] = taken
    assert tuple(arguments) == expected
    assert owner in ("static", "class") or isinstance(owner, Methods)


def test_a_jitter_may_ask_for_max_delay_by_keyword(pauses):
    def quarter(*, max_delay):
        return max_delay / 4

    assert pauses(limit=1, max_delay=8, jitter=quarter) == [2]


def test_a_method_as_a_jitter_does_not_keep_its_task_alive(instant):
    @retry_on(TimeoutError, limit=1, jitter="spread")
    class Charge(Down):
        def spread(self, attempt):
            return attempt + 0.25

    invocation = Charge()
    invocation.run()
    watched = weakref.ref(invocation)
    del invocation
    gc.collect()

    assert instant.pauses == [0.25]
    assert watched() is None


def test_an_unknown_jitter_is_refused_before_any_run(execute):
    calls = []

    @retry_on(TimeoutError, jitter="exponentail")  # R-004-25
    class Charge(Task[None]):
        def work(self) -> None:
            calls.append(self.attempt)

    with pytest.raises(UnknownEntryError) as refused:
        execute(Charge)

    message = str(refused.value)
    assert "'exponentail'; did you mean 'exponential'?" in message
    assert "decorrelated_jitter, equal_jitter, exponential" in message
    assert "retriers.register('exponentail', ...)" in message
    assert calls == []


def test_a_jitter_that_names_no_callable_is_unknown(execute):  # R-004-25
    @retry_on(TimeoutError, jitter="spread")
    class Charge(Down):
        spread = 0.25

    with pytest.raises(UnknownEntryError, match="'spread'"):
        execute(Charge)


def test_an_unknown_jitter_fails_the_task_that_runs_such_a_task(execute):
    @retry_on(TimeoutError, jitter="exponentail")
    class Charge(Down):
        pass

    class Parent(Task[None]):
        def work(self) -> None:
            Charge.execute()

    assert isinstance(execute(Parent).cause, UnknownEntryError)


@pytest.mark.parametrize("named", [False, True], ids=["callable", "method"])
def test_an_error_of_a_jitter_replaces_the_error_and_is_not_retried(
    execute, instant, named
):  # R-004-14
    raised = TimeoutError("of the jitter")

    def spread(*_):
        raise raised

    @retry_on(TimeoutError, jitter="spread" if named else spread)
    class Charge(Down):
        pass

    if named:
        Charge.spread = spread

    result = execute(Charge)

    assert result.cause is raised
    assert raised.__context__ is result.attempts[-1].error
    assert result.replaced.cause is result.attempts[-1].error
    assert (result.reason, result.stopped) == ("[TimeoutError] of the jitter", "gate")
    assert (result.retries, instant.pauses) == (0, [])
    assert [str(each.error) for each in result.attempts] == ["down"]


def test_a_jitter_may_halt_the_task(execute, instant):
    @retry_on(TimeoutError, jitter="spread")
    class Charge(Down):
        def spread(self):
            self.skip("not worth waiting for", code=7)

    result = execute(Charge)

    assert (result.skipped, result.reason) == (True, "not worth waiting for")
    assert (result.stopped, result.metadata["code"]) == (Stop.HALTED, 7)
    assert (result.retries, instant.pauses) == (0, [])


# -- longer than anybody waits --------------------------------------------------------


@pytest.fixture
def slept(monkeypatch):
    """List what the system is asked to sleep, and do not sleep."""
    seconds = []

    async def note(number):
        seconds.append(number)

    monkeypatch.setattr(clock, "sleep", seconds.append)
    monkeypatch.setattr(asyncio, "sleep", note)
    return seconds


@pytest.mark.parametrize(
    "options",
    [{"delay": 10**400}, {"delay": 1e300}, {"delay": 1, "jitter": lambda: 10**400}],
    ids=["a delay that is no float", "a delay", "a jitter"],
)
@pytest.mark.parametrize("around", [False, True], ids=["no deadline", "a deadline"])
@pytest.mark.parametrize(
    "run",
    [lambda task: task.execute(), lambda task: asyncio.run(task.aexecute())],
    ids=["sync", "async"],
)
def test_a_pause_is_never_longer_than_systems_can_sleep(run, slept, options, around):
    @retry_on(TimeoutError, limit=1, **options)
    class Endless(Down):
        pass

    with deadline(10**400) if around else nullcontext():
        result = run(Endless)

    assert isinstance(result.cause, TimeoutError)
    assert slept == ([] if around else [1e9])
