from __future__ import annotations

import functools
import gc
import math
import random
import statistics
import weakref
from fractions import Fraction
from itertools import cycle

import pytest

from cmdx import Stop, Task, UnknownEntryError, clock, retry_on


class Down(Task[None]):
    """Raises each time."""

    def work(self) -> None:
        raise TimeoutError("down")


class Sleepless(clock.Clock):
    """Must not be asked to sleep."""

    def sleep(self, seconds: float) -> None:
        message = f"slept {seconds} seconds"
        raise AssertionError(message)

    async def asleep(self, seconds: float) -> None:
        self.sleep(seconds)


# -- no sleeping for nothing ----------------------------------------------------------


@pytest.mark.parametrize("delay", [0, 0.0])
def test_without_a_delay_neither_sleep_nor_jitter_is_called(execute, delay):
    def jitter(*_):  # R-004-17
        raise AssertionError("jitter was called")

    @retry_on(TimeoutError, delay=delay, jitter=jitter)
    class Charge(Down):
        pass

    with clock.use(Sleepless()):
        result = execute(Charge)

    assert isinstance(result.cause, TimeoutError)
    assert (result.retries, result.stopped) == (3, Stop.EXHAUSTED)


@pytest.mark.parametrize(
    "options",
    [
        {"jitter": lambda: 0},
        {"jitter": lambda: 0.0},
        {"jitter": lambda: -1.0},
        {"jitter": lambda: -1.0, "max_delay": 2.0},
        {"max_delay": 0},
        {"max_delay": 0.0, "jitter": "exponential"},
    ],
    ids=["zero", "zero float", "negative", "negative clamped", "cap", "cap and jitter"],
)
def test_a_pause_of_nothing_is_not_slept(execute, options):  # R-004-20
    @retry_on(TimeoutError, **options)
    class Charge(Down):
        pass

    with clock.use(Sleepless()):
        result = execute(Charge)

    assert isinstance(result.cause, TimeoutError)
    assert [each.pause for each in result.attempts] == [0.0, 0.0, 0.0, None]


def test_the_first_success_sleeps_not_at_all(execute):
    @retry_on(TimeoutError)
    class Charge(Task[None]):
        def work(self) -> None:
            """Do nothing."""

    with clock.use(Sleepless()):
        assert execute(Charge).success


# -- how long -------------------------------------------------------------------------


def test_without_jitter_the_delay_is_constant(execute, instant):  # R-004-18
    @retry_on(TimeoutError, delay=0.25, limit=4)
    class Charge(Down):
        pass

    execute(Charge)

    assert instant.pauses == [0.25] * 4


DRAWS = (0.0, 0.25, 0.5, 0.999)


@pytest.mark.parametrize(
    ("jitter", "pauses"),
    [
        ("exponential", [0.5, 1, 2, 4, 8, 16]),
        ("linear", [0.5, 1, 1.5, 2, 2.5, 3]),
        ("fibonacci", [0.5, 0.5, 1, 1.5, 2.5, 4]),
    ],
)
def test_growing_strategies(execute, instant, jitter, pauses):  # R-004-19
    @retry_on(TimeoutError, limit=6, delay=0.5, jitter=jitter)
    class Charge(Down):
        pass

    execute(Charge)

    assert instant.pauses == pytest.approx(pauses)


@pytest.mark.parametrize(
    ("jitter", "low", "high"),
    [
        ("half_random", [2] * 4, [4] * 4),
        ("full_random", [0] * 4, [4] * 4),
        ("bounded_random", [4] * 4, [8] * 4),
        ("full_jitter", [0] * 4, [4, 8, 16, 32]),
        ("equal_jitter", [2, 4, 8, 16], [4, 8, 16, 32]),
    ],
)
@pytest.mark.parametrize("drawn", DRAWS)
def test_drawing_strategies(instant, jitter, low, high, drawn):  # R-004-19
    instant.randoms = cycle([drawn])

    @retry_on(TimeoutError, limit=4, delay=4, jitter=jitter)
    class Charge(Down):
        pass

    result = Charge.execute()

    expected = [a + drawn * (b - a) for a, b in zip(low, high, strict=True)]
    pauses = [each.pause for each in result.attempts[:-1]]
    assert pauses == pytest.approx(expected)


@pytest.mark.parametrize("drawn", DRAWS)
def test_decorrelated_jitter_draws_up_to_three_times_the_pause_before(instant, drawn):
    instant.randoms = cycle([drawn])  # R-004-19

    @retry_on(TimeoutError, limit=4, delay=2, jitter="decorrelated_jitter")
    class Charge(Down):
        pass

    Charge.execute()

    previous, expected = 2, []
    for _ in range(4):
        previous = 2 + drawn * (3 * previous - 2)
        expected.append(previous)
    assert instant.pauses == pytest.approx(expected)


def test_decorrelated_jitter_goes_on_from_the_clamped_pause(instant):  # R-004-20
    instant.randoms = cycle([0.5])

    @retry_on(TimeoutError, limit=3, delay=2, max_delay=3, jitter="decorrelated_jitter")
    class Charge(Down):
        pass

    Charge.execute()

    # 4 clamped to 3, then halfway from 2 to 9, clamped again
    assert instant.pauses == [3, 3, 3]


def test_decorrelated_jitter_never_draws_below_the_delay(instant):  # R-004-22
    instant.randoms = cycle([0.999])
    taken = []

    @retry_on(TimeoutError, limit=2, delay=2, max_delay=0.5, jitter="spy")
    class Charge(Down):
        pass

    decorrelated = Charge.retriers.lookup("decorrelated_jitter")

    @Charge.retriers.register("spy")
    def spy(attempt, delay, previous):
        taken.append(decorrelated(attempt, delay, previous))
        return taken[-1]

    Charge.execute()

    # from 2 to 6, then from 2 to max(3 * 0.5, 2)
    assert taken == pytest.approx([2 + 0.999 * 4, 2])


def test_decorrelated_jitter_takes_a_pause_of_zero_for_a_pause(instant):  # R-004-21
    instant.randoms = cycle([0.5])
    taken = []

    @retry_on(TimeoutError, limit=2, delay=2, max_delay=0, jitter="spy")
    class Charge(Down):
        pass

    decorrelated = Charge.retriers.lookup("decorrelated_jitter")

    @Charge.retriers.register("spy")
    def spy(attempt, delay, previous):
        taken.append(decorrelated(attempt, delay, previous))
        return taken[-1]

    Charge.execute()

    # halfway from 2 to 6, then the delay, because three times zero is below it
    assert taken == [4, 2]


def test_exponential_growth_saturates(instant):  # R-004-22
    @retry_on(TimeoutError, limit=1100, delay=1, jitter="exponential")
    class Charge(Down):
        pass

    Charge.execute()

    assert instant.pauses[:32] == [2.0**n for n in range(31)] + [2.0**30]
    assert set(instant.pauses[30:]) == {2.0**30}


def test_fibonacci_growth_saturates(instant):  # R-004-22
    @retry_on(TimeoutError, limit=1500, delay=1, jitter="fibonacci")
    class Charge(Down):
        pass

    Charge.execute()

    numbers = [1, 1]
    while len(numbers) < 78:
        numbers.append(numbers[-1] + numbers[-2])
    assert instant.pauses[:78] == numbers
    assert set(instant.pauses[77:]) == {numbers[-1]}


@pytest.mark.parametrize(
    "jitter", ["exponential", "fibonacci", "linear", "full_jitter", "equal_jitter"]
)
def test_no_strategy_overflows(instant, jitter):
    @retry_on(TimeoutError, limit=1500, delay=1.0, max_delay=60, jitter=jitter)
    class Charge(Down):
        pass

    result = Charge.execute()

    assert (result.stopped, result.retries) == (Stop.EXHAUSTED, 1500)
    assert max(instant.pauses) <= 60


CAP = 10.0
LIVELY = 10_000


@pytest.mark.parametrize(
    ("jitter", "lowest", "mean"),
    [("full_jitter", 0.0, CAP / 2), ("equal_jitter", CAP / 2, CAP * 3 / 4)],
)
def test_jitter_stays_alive_at_the_cap(instant, jitter, lowest, mean):
    instant.randoms = iter(random.Random(30).random, None)

    @retry_on(TimeoutError, limit=30 + LIVELY, max_delay=CAP, jitter=jitter)
    class Charge(Down):
        pass

    result = Charge.execute()

    pauses = [each.pause for each in result.attempts[30:-1]]
    assert len(pauses) == LIVELY
    assert lowest <= min(pauses) <= lowest + CAP / 100
    assert max(pauses) <= CAP
    assert sum(pause == CAP for pause in pauses) < LIVELY / 100
    assert statistics.fmean(pauses) == pytest.approx(mean, rel=0.02)


# -- clamping and nonsense ------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "pauses"),
    [
        ({"delay": 2.0, "max_delay": 0.75}, [0.75, 0.75, 0.75]),
        ({"jitter": "exponential", "max_delay": 1.5}, [0.5, 1.0, 1.5]),
        ({"jitter": lambda: 7, "max_delay": 4}, [4, 4, 4]),
        ({"jitter": lambda: 7}, [7, 7, 7]),
        ({"jitter": lambda: 1e-9, "max_delay": 4}, [1e-9, 1e-9, 1e-9]),
    ],
)
def test_a_pause_is_clamped_to_max_delay_after_jitter(
    execute, instant, options, pauses
):  # R-004-20
    @retry_on(TimeoutError, **options)
    class Charge(Down):
        pass

    result = execute(Charge)

    assert instant.pauses == pauses
    assert [each.pause for each in result.attempts[:-1]] == pauses


NO_PAUSES = [math.nan, math.inf, -math.inf, None, True, False, "1.0", 1j, [1.0]]


@pytest.mark.parametrize("answer", NO_PAUSES, ids=repr)
@pytest.mark.parametrize("max_delay", [None, 0.25])
def test_a_jitter_that_answers_no_finite_number_means_the_delay(
    execute, instant, answer, max_delay
):  # R-004-22
    @retry_on(TimeoutError, limit=2, max_delay=max_delay, jitter=lambda: answer)
    class Charge(Down):
        pass

    execute(Charge)

    assert instant.pauses == [max_delay or 0.5] * 2


@pytest.mark.parametrize(
    ("answer", "pause"), [(2, 2), (0.25, 0.25), (Fraction(1, 4), 0.25)], ids=repr
)
def test_any_finite_number_is_a_pause(execute, instant, answer, pause):  # R-004-22
    @retry_on(TimeoutError, limit=1, jitter=lambda: answer)
    class Charge(Down):
        pass

    execute(Charge)

    assert instant.pauses == [pause]


def test_a_pause_too_long_for_a_float_is_clamped_like_others(execute, instant):
    @retry_on(TimeoutError, limit=2, max_delay=4, jitter=lambda: 10**400)
    class Charge(Down):
        pass

    result = execute(Charge)

    assert isinstance(result.cause, TimeoutError)
    assert instant.pauses == [4, 4]


# -- previous -------------------------------------------------------------------------


def test_each_jitter_is_told_the_clamped_pause_before(execute, instant):  # R-004-20
    seen = []
    answers = iter([1.0, 9.0, -3.0, None, 0.25])

    def jitter(attempt, delay, previous):
        seen.append((attempt, delay, previous))
        return next(answers)

    @retry_on(TimeoutError, limit=5, delay=2, max_delay=4, jitter=jitter)
    class Charge(Down):
        pass

    execute(Charge)

    assert seen == [(0, 2, None), (1, 2, 1.0), (2, 2, 4), (3, 2, 0), (4, 2, 2)]
    assert instant.pauses == [1.0, 4, 2, 0.25]


@pytest.mark.usefixtures("instant")
def test_a_previous_pause_of_zero_is_not_absent(execute):  # R-004-21
    seen = []

    def jitter(_attempt, _delay, previous):
        seen.append(previous)
        return 0.0

    @retry_on(TimeoutError, limit=2, jitter=jitter)
    class Charge(Down):
        pass

    execute(Charge)

    assert seen == [None, 0.0]


@pytest.mark.usefixtures("instant")
def test_previous_belongs_to_one_run(execute):  # R-004-21
    seen = []

    def jitter(_attempt, _delay, previous):
        seen.append(previous)
        return 0.25

    @retry_on(TimeoutError, limit=2, jitter=jitter)
    class Charge(Down):
        pass

    execute(Charge)
    execute(Charge)

    assert seen == [None, 0.25] * 2


@pytest.mark.usefixtures("instant")
def test_previous_belongs_to_one_of_nested_runs(execute):  # R-004-21
    seen = []

    def jitter(_attempt, _delay, previous):
        seen.append(previous)
        return 0.25

    @retry_on(TimeoutError, limit=1, jitter=jitter)
    class Inner(Down):
        pass

    @retry_on(TimeoutError, limit=1, jitter=jitter)
    class Outer(Task[None]):
        def work(self) -> None:
            Inner.execute_or_raise()

    execute(Outer)

    assert seen == [None, None, None]


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


@pytest.mark.usefixtures("instant")
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
def test_a_jitter_is_given_as_much_as_it_takes(execute, jitter, expected):  # R-004-24
    taken.clear()

    @retry_on(TimeoutError, limit=1, jitter=jitter)
    class Charge(Down):
        pass

    result = execute(Charge)

    assert taken == [expected]
    assert result.attempts[0].pause == 0.125


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


@pytest.mark.usefixtures("instant")
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
def test_a_method_is_a_jitter_by_its_name(execute, name, expected):  # R-004-24
    taken.clear()

    @retry_on(TimeoutError, limit=1, jitter=name)
    class Charge(Methods):
        pass

    result = execute(Charge)

    [(owner, *arguments)] = taken
    assert tuple(arguments) == expected
    assert owner in ("static", "class") or isinstance(owner, Charge)
    assert result.attempts[0].pause == 0.125


@pytest.mark.usefixtures("instant")
def test_a_jitter_may_ask_for_max_delay_by_keyword(execute):
    @retry_on(
        TimeoutError, limit=1, max_delay=8, jitter=lambda *, max_delay: max_delay / 4
    )
    class Charge(Down):
        pass

    assert execute(Charge).attempts[0].pause == 2


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


def test_an_unknown_jitter_fails_the_run_with_the_known_names(execute, instant):
    @retry_on(TimeoutError, jitter="exponentail")  # R-004-25
    class Charge(Down):
        pass

    result = execute(Charge)

    assert isinstance(result.cause, UnknownEntryError)
    assert "'exponentail'; did you mean 'exponential'?" in str(result.cause)
    assert "decorrelated_jitter, equal_jitter, exponential" in str(result.cause)
    assert "retriers.register('exponentail', ...)" in str(result.cause)
    assert (result.retries, instant.pauses) == (0, [])


def test_a_jitter_that_names_no_callable_is_unknown(execute):  # R-004-25
    @retry_on(TimeoutError, jitter="spread")
    class Charge(Down):
        spread = 0.25

    assert isinstance(execute(Charge).cause, UnknownEntryError)


def test_an_unknown_jitter_does_not_matter_until_it_is_needed(execute):
    @retry_on(TimeoutError, jitter="exponentail")
    class Charge(Task[int]):
        def work(self) -> int:
            return 7

    assert execute(Charge).value == 7


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
    assert raised.__context__ is None
    assert result.reason == "[TimeoutError] of the jitter"
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
