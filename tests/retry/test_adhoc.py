from __future__ import annotations

import asyncio
import functools
import gc
import math
import operator
import weakref
from decimal import Decimal
from fractions import Fraction
from itertools import cycle

import attrs
import pytest

from cmdx import (
    DefinitionError,
    Fault,
    RetryOptions,
    Task,
    UnknownContextKey,
    clock,
    retry_on,
)

pytestmark = pytest.mark.usefixtures("instant")


def call_plainly(function, *, keywords, options):
    class Charge(Task[object], **keywords):
        def work(self) -> object:
            return self.retry(function, **options)

    return Charge.execute_or_raise().value


def call_awaiting(function, *, keywords, options):
    @functools.wraps(function)
    async def awaited(*arguments):
        await asyncio.sleep(0)
        return function(*arguments)

    class Charge(Task[object], **keywords):
        async def work(self) -> object:
            return await self.aretry(awaited, **options)

    return asyncio.run(Charge.aexecute_or_raise()).value


@pytest.fixture(params=[call_plainly, call_awaiting], ids=["retry", "aretry"])
def again(request):
    """Call a function again inside ``work`` of a task, and return what it returns."""

    def call(function, *, defaults=None, **options):
        keywords = {} if defaults is None else {"retry": defaults}
        return request.param(function, keywords=keywords, options=options)

    return call


class Down:
    """Raises each time and remembers the errors."""

    def __init__(self, error=TimeoutError) -> None:
        self.error = error
        self.raised = []

    def __call__(self, attempt):
        self.raised.append(self.error(f"number {attempt}"))
        raise self.raised[-1]


# -- the loop -------------------------------------------------------------------------


def test_by_default_a_function_is_called_three_times(again, instant):  # R-000-1
    down = Down()

    with pytest.raises(TimeoutError):
        again(down)

    assert len(down.raised) == 3
    assert instant.pauses == pytest.approx([0.1, 0.2])


@pytest.mark.parametrize("attempts", [1, 2, 7])
def test_attempts_are_counted_in_total(again, instant, attempts):  # R-000-1
    down = Down()

    with pytest.raises(TimeoutError):
        again(down, max_attempts=attempts)

    assert len(down.raised) == attempts
    assert len(instant.pauses) == attempts - 1


def test_the_function_is_given_the_attempt_counted_from_one(again):  # R-000-13
    def function(attempt):
        if attempt < 3:
            raise TimeoutError
        return attempt

    assert again(function) == 3


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (lambda: "none", "none"),
        (lambda attempt: attempt, 1),
        (lambda attempt=7: attempt, 1),
        (lambda *arguments: arguments, (1,)),
        (lambda *, attempt=7: attempt, 7),
    ],
    ids=["none", "one", "default", "any", "keyword only"],
)
def test_the_function_is_given_the_attempt_if_it_takes_one(again, function, value):
    assert again(function) == value  # R-000-13


@pytest.mark.parametrize("value", [None, False, 0, "", []], ids=repr)
def test_whatever_is_returned_ends_the_loop(again, instant, value):  # R-000-13
    assert again(lambda: value) is value
    assert instant.pauses == []


def test_the_last_error_is_raised_as_it_is(again):  # R-000-13
    down = Down()

    with pytest.raises(TimeoutError) as caught:
        again(down)

    assert caught.value is down.raised[-1]
    assert str(caught.value) == "number 3"


def test_errors_of_earlier_attempts_are_not_chained_to_the_last(again):
    down = Down()

    with pytest.raises(TimeoutError) as caught:
        again(down)

    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


def test_an_exhausted_iterator_is_an_error_like_others():  # R-000-13
    class Charge(Task[None]):
        def work(self) -> None:
            self.retry(lambda: next(iter(())))

    assert isinstance(Charge.execute().cause, StopIteration)


def test_without_a_predicate_every_error_is_tried_again(again):  # R-000-15
    errors = iter([KeyError, ValueError, TimeoutError])

    def function(attempt):
        if attempt < 4:
            raise next(errors)
        return attempt

    assert again(function, max_attempts=4) == 4


def test_a_fault_is_tried_again(again):
    class Refusing(Task[None]):
        def work(self) -> None:
            self.fail("refused")

    calls = []

    def function(attempt):
        calls.append(attempt)
        Refusing.execute_or_raise()

    with pytest.raises(Fault):
        again(function)

    assert calls == [1, 2, 3]


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt,
        SystemExit,
        GeneratorExit,
        asyncio.CancelledError,
        BaseException,
    ],
)
def test_interruptions_are_not_tried_again(again, instant, error):
    calls = []

    def function(attempt):
        calls.append(attempt)
        raise error

    with pytest.raises(error):
        again(function)

    assert (calls, instant.pauses) == ([1], [])


def test_misuse_of_the_framework_is_not_tried_again(instant):
    calls = []

    class Charge(Task[None]):
        def work(self) -> None:
            self.retry(self.misuse)

        def misuse(self):
            calls.append(self.attempt)
            return self.context.nowhere

    result = Charge.execute()

    assert isinstance(result.cause, UnknownContextKey)
    assert (calls, instant.pauses) == ([0], [])


def test_a_halt_inside_the_function_halts_the_task(instant):
    class Charge(Task[None]):
        def work(self) -> None:
            self.retry(lambda: self.skip("nothing to do"))

    class Awaiting(Task[None]):
        async def work(self) -> None:
            await self.aretry(self.stop)

        async def stop(self):
            self.skip("nothing to do")

    for result in (Charge.execute(), asyncio.run(Awaiting.aexecute())):
        assert (result.skipped, result.reason) == (True, "nothing to do")
    assert instant.pauses == []


def test_calling_again_is_no_retry_of_the_task(retried):
    class Charge(Task[int]):
        def work(self) -> int:
            return self.retry(self.flaky)

        def flaky(self, attempt):
            if attempt < 3:
                raise TimeoutError
            return attempt

    result = Charge.execute()

    assert (result.value, result.retries, result.attempts) == (3, 0, ())
    assert retried == []


def test_calling_again_multiplies_with_the_retries_of_the_task():
    down = Down()

    @retry_on(TimeoutError, limit=1)
    class Charge(Task[None]):
        def work(self) -> None:
            self.retry(down, max_attempts=2)

    assert Charge.execute().retries == 1
    assert [str(error) for error in down.raised] == ["number 1", "number 2"] * 2


def test_the_function_does_not_keep_the_task_alive():
    class Charge(Task[None]):
        def work(self) -> None:
            self.retry(lambda: self.context)

    invocation = Charge()
    invocation.run()
    watched = weakref.ref(invocation)
    del invocation
    gc.collect()

    assert watched() is None


# -- pauses ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "bounds"),
    [
        ({}, [0.2, 0.4]),
        ({"max_attempts": 5, "base_delay": 0.5}, [1, 2, 3, 3]),
        ({"max_attempts": 4, "max_delay": 0.3}, [0.2, 0.3, 0.3]),
        ({"base_delay": 0.0005}, [0.001, 0.002]),
        ({"base_delay": 2, "max_delay": 2}, [2, 2]),
    ],
)
@pytest.mark.parametrize("drawn", [0.25, 0.5, 0.999])
def test_pauses_are_drawn_below_bounds_that_double(
    again, instant, options, bounds, drawn
):  # R-000-11
    instant.randoms = cycle([drawn])

    with pytest.raises(TimeoutError):
        again(Down(), **options)

    assert instant.pauses == pytest.approx([drawn * bound for bound in bounds])


def test_a_pause_of_nothing_is_not_slept(again, instant):
    instant.randoms = cycle([0.0])

    with pytest.raises(TimeoutError):
        again(Down())

    assert instant.pauses == []


@pytest.mark.parametrize("base_delay", [0.1, 1, 1e-12], ids=repr)
def test_growth_ends_at_the_maximum_and_never_overflows(again, instant, base_delay):
    with pytest.raises(TimeoutError):  # R-000-12
        again(Down(), max_attempts=2000, base_delay=base_delay, max_delay=3.0)

    assert len(instant.pauses) == 1999
    assert max(instant.pauses) == instant.pauses[-1] == 1.5


def test_a_plain_call_sleeps_and_an_awaited_one_awaits():
    slept = []

    class Told(clock.Clock):
        def sleep(self, seconds: float) -> None:
            slept.append(("sync", seconds > 0))

        async def asleep(self, seconds: float) -> None:
            slept.append(("async", seconds > 0))

        def random(self) -> float:
            return 0.5

    with clock.use(Told()):
        for call in (call_plainly, call_awaiting):
            with pytest.raises(TimeoutError):
                call(Down(), keywords={}, options={"max_attempts": 2})

    assert slept == [("sync", True), ("async", True)]


def test_cancelling_during_a_pause_ends_the_call_at_once():
    down = Down()

    class Waiting(clock.Clock):
        def __init__(self) -> None:
            self.pausing = asyncio.Event()

        async def asleep(self, _seconds: float) -> None:
            self.pausing.set()
            await asyncio.sleep(3600)

    class Charge(Task[None]):
        async def work(self) -> None:
            await self.aretry(self.call)

        async def call(self, attempt):
            down(attempt)

    async def cancel_in_the_pause():
        with clock.use(Waiting()) as waiting:
            running = asyncio.create_task(Charge.aexecute())
            await waiting.pausing.wait()
            running.cancel()
            async with asyncio.timeout(10):
                await asyncio.wait([running])
            return running

    assert asyncio.run(cancel_in_the_pause()).cancelled()
    assert len(down.raised) == 1


# -- should_retry ---------------------------------------------------------------------


def test_the_predicate_is_asked_while_attempts_remain(again):  # R-000-14
    down, asked = Down(), []

    def should_retry(error, next_attempt):
        asked.append((error, next_attempt))
        return True

    with pytest.raises(TimeoutError):
        again(down, max_attempts=3, should_retry=should_retry)

    assert asked == [(down.raised[0], 2), (down.raised[1], 3)]


def test_the_predicate_is_never_asked_about_a_single_attempt(again):  # R-000-14
    asked = []

    with pytest.raises(TimeoutError):
        again(Down(), max_attempts=1, should_retry=lambda: asked.append(1))

    assert asked == []


def test_a_predicate_that_says_no_ends_the_loop_at_once(again, instant):  # R-000-14
    down = Down()

    with pytest.raises(TimeoutError) as caught:
        again(down, max_attempts=9, should_retry=lambda _error, number: number < 3)

    assert caught.value is down.raised[-1]
    assert (len(down.raised), len(instant.pauses)) == (2, 1)


@pytest.mark.parametrize(
    "should_retry",
    [
        lambda: True,
        lambda error: isinstance(error, TimeoutError),
        lambda error, number=None: isinstance(error, TimeoutError) and number,
        lambda *arguments: len(arguments) == 2,
    ],
    ids=["none", "one", "default", "any"],
)
def test_a_predicate_is_given_as_much_as_it_takes(again, should_retry):  # R-000-15
    down = Down()

    with pytest.raises(TimeoutError):
        again(down, should_retry=should_retry)

    assert len(down.raised) == 3


def test_an_error_of_the_predicate_replaces_the_error(again, instant):  # R-000-16
    def should_retry():
        raise ZeroDivisionError("of the predicate")

    with pytest.raises(ZeroDivisionError, match="of the predicate"):
        again(Down(), should_retry=should_retry)

    assert instant.pauses == []


# -- checking -------------------------------------------------------------------------

TOO_FEW = "retry.max_attempts must be >= 1"
NOT_WHOLE = "retry.max_attempts must be an integer"
NO_BASE = "retry.base_delay must be > 0"
NO_MAXIMUM = "retry.max_delay must be > 0"
CROSSED = "retry.base_delay must be <= retry.max_delay"

WRONG = [  # R-000-3, R-000-4
    *[({"max_attempts": n}, TOO_FEW) for n in (0, -1, 0.5, math.nan)],
    *[({"max_attempts": n}, TOO_FEW) for n in (math.inf, -math.inf)],
    *[({"max_attempts": n}, NOT_WHOLE) for n in (2.5, 1.1)],
    *[({"base_delay": n}, NO_BASE) for n in (0, -0.1, math.nan, math.inf, -math.inf)],
    *[({"max_delay": n}, NO_MAXIMUM) for n in (0, -1, math.nan, math.inf, -math.inf)],
    ({"base_delay": 2, "max_delay": 1}, CROSSED),
    ({"max_attempts": 0, "base_delay": 0, "max_delay": 0}, TOO_FEW),
    ({"max_attempts": 2.5, "base_delay": 0, "max_delay": 0}, NOT_WHOLE),
    ({"max_attempts": 2, "base_delay": 0, "max_delay": 0}, NO_BASE),
    ({"max_attempts": 2, "base_delay": 1, "max_delay": 0}, NO_MAXIMUM),
    ({"max_attempts": 0.5, "base_delay": 2, "max_delay": 1}, TOO_FEW),
]


@pytest.mark.parametrize("number", [Decimal, Fraction])
def test_any_real_number_is_a_delay(number, instant):
    class Fetch(Task[int]):
        def work(self):
            return self.retry(
                failing_once(), base_delay=number(1) / 10, max_delay=number(3)
            )

    assert Fetch.execute().value == 1
    assert instant.pauses == [pytest.approx(0.1)]


def failing_once():
    calls = []

    def call():
        calls.append(None)
        if len(calls) == 1:
            raise TimeoutError
        return 1

    return call


@pytest.mark.parametrize(("options", "message"), WRONG, ids=repr)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(DefinitionError) as refused:
        RetryOptions(**options)

    assert str(refused.value) == message


@pytest.mark.parametrize(("options", "message"), WRONG, ids=repr)
def test_wrong_options_are_refused_before_the_first_call(again, options, message):
    down = Down()  # R-000-2, R-000-7

    with pytest.raises(DefinitionError) as refused:
        again(down, **options)

    assert str(refused.value) == message
    assert down.raised == []


@pytest.mark.parametrize("option", ["max_attempts", "base_delay", "max_delay"])
@pytest.mark.parametrize("value", [True, False, "1", [1]], ids=repr)
def test_only_numbers_are_options(option, value):
    with pytest.raises(DefinitionError, match=f"retry.{option} must be"):
        RetryOptions(**{option: value})


@pytest.mark.parametrize("options", [{"base_delay": 5.0}, {"max_delay": 0.05}])
def test_delays_are_compared_with_the_defaults_of_what_is_left_out(again, options):
    down = Down()  # R-000-5

    with pytest.raises(DefinitionError) as refused:
        again(down, **options)

    assert str(refused.value) == CROSSED
    assert down.raised == []


@pytest.mark.parametrize("options", [{"base_delay": 5.0}, {"max_delay": 0.05}])
def test_options_alone_are_not_compared_with_any_default(options):  # R-000-5
    assert attrs.asdict(RetryOptions(**options), filter=_is_given) == options


def _is_given(_field, value):
    return value is not None


def test_equal_delays_are_fine(again):  # R-000-6
    assert again(lambda: "done", base_delay=3.0) == "done"
    assert RetryOptions(base_delay=1, max_delay=1).max_delay == 1


def test_none_means_the_default(again):  # R-000-9
    down = Down()

    with pytest.raises(TimeoutError):
        again(down, max_attempts=None, base_delay=None, max_delay=None)

    assert len(down.raised) == 3


def test_a_huge_number_of_attempts_is_a_number_of_attempts(again):
    assert again(lambda: "done", max_attempts=10**400) == "done"


# -- options as a value, and as defaults of a class -----------------------------------


def test_options_are_a_value():
    options = RetryOptions(max_attempts=5, base_delay=0.5)

    assert options == RetryOptions(5, 0.5)
    assert options != RetryOptions(5, 0.5, 3.0)
    assert hash(options) == hash(RetryOptions(5, 0.5))
    assert options.max_delay is None
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        options.max_attempts = 6


def test_a_class_has_defaults_of_its_own(again, instant):  # R-000-17
    down = Down()
    defaults = RetryOptions(max_attempts=4, base_delay=1.0, max_delay=3.0)

    with pytest.raises(TimeoutError):
        again(down, defaults=defaults)

    assert len(down.raised) == 4
    assert instant.pauses == [1.0, 1.5, 1.5]


def test_a_call_goes_over_the_class_field_by_field(again, instant):  # R-000-17
    down = Down()
    defaults = RetryOptions(max_attempts=4, base_delay=1.0)

    with pytest.raises(TimeoutError):
        again(down, defaults=defaults, max_attempts=3)

    assert instant.pauses == [1.0, 1.5]


def test_a_call_is_compared_with_the_defaults_of_its_class(again):  # R-000-5
    defaults = RetryOptions(base_delay=5.0)

    assert again(lambda: "done", defaults=defaults, max_delay=10.0) == "done"
    with pytest.raises(DefinitionError) as refused:
        again(lambda: "done", defaults=defaults)
    assert str(refused.value) == CROSSED
    with pytest.raises(DefinitionError) as refused:
        again(lambda: "done", defaults=RetryOptions(max_delay=1.0), base_delay=2.0)
    assert str(refused.value) == CROSSED


def test_a_subclass_goes_over_its_parent_field_by_field(instant):  # R-000-17
    down = Down()

    class Parent(Task[None], retry=RetryOptions(max_attempts=2, base_delay=1.0)):
        def work(self) -> None:
            self.retry(down)

    class Child(Parent, retry=RetryOptions(max_attempts=3)):
        pass

    class Sibling(Parent):
        pass

    Child.execute()
    assert instant.pauses == [1.0, 1.5]
    assert len(down.raised) == 3
    Sibling.execute()
    assert len(down.raised) == 3 + 2


@pytest.mark.parametrize(
    "retry", [5, {"max_attempts": 5}, None, RetryOptions], ids=repr
)
def test_the_defaults_of_a_class_are_options(retry):
    with pytest.raises(DefinitionError, match=r"retry must be RetryOptions\(...\)"):

        class Charge(Task[None], retry=retry):
            pass


def test_wrong_defaults_of_a_class_are_refused_when_it_is_made():  # R-000-10
    with pytest.raises(DefinitionError, match=TOO_FEW):

        class Charge(Task[None], retry=RetryOptions(max_attempts=0)):
            pass


def test_a_coroutine_function_given_to_retry_is_refused_with_the_cure(instant):
    async def fetch():
        return 3

    class Fetch(Task[int]):
        def work(self) -> int:
            return self.retry(fetch)

    result = Fetch.execute()

    assert type(result.cause) is TypeError
    assert "await self.aretry(...)" in result.reason
    assert instant.pauses == []


def test_a_plain_function_given_to_aretry_is_refused_with_the_cure(instant):
    calls = []

    class Fetch(Task[int]):
        async def work(self) -> int:
            return await self.aretry(lambda: calls.append("called"))

    result = asyncio.run(Fetch.aexecute())

    assert type(result.cause) is TypeError
    assert "Use `self.retry(...)`" in result.reason
    assert calls == ["called"]
    assert instant.pauses == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"should_retry": lambda _error, _next, _more: True}, "takes 3 arguments"),
        ({"should_retry": lambda _error, *, _least: True}, "requires the keyword"),
        ({"retry_result": lambda: True}, "too many positional arguments"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_the_first_call(again, options, said):
    down = Down()

    with pytest.raises(DefinitionError, match=rf"retry: {next(iter(options))}.*{said}"):
        again(down, **options)

    assert down.raised == []


def test_an_async_predicate_is_refused_before_the_first_call(again):
    async def ask(_error):
        return True

    with pytest.raises(DefinitionError, match=r"should_retry .* is async"):
        again(Down(), should_retry=ask)


def test_a_function_that_takes_more_is_refused_before_the_first_call(again):
    with pytest.raises(TypeError, match=r"retry: .*requires the keyword .*'url'"):
        again(lambda *, url: url)


def test_a_predicate_without_a_readable_signature_is_given_the_error(again):
    down = Down(ConnectionError)

    with pytest.raises(ConnectionError):
        again(down, should_retry=operator.attrgetter("errno"))

    assert len(down.raised) == 1
