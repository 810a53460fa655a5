from __future__ import annotations

import asyncio
import pickle
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction

import pytest

from cmdx import DefinitionError, Task, clock, deadline, retry_on
from cmdx.guidance import (
    FailedCall,
    Guidance,
    acall_with_guidance,
    call_with_guidance,
    with_guidance,
)
from cmdx.guidance.client import CallLimits

pytestmark = pytest.mark.usefixtures("instant")

SUCCESS = {"id": "x", "result": {"order": 7}}


def failure(guidance=None, code="UNAVAILABLE", message="down"):
    response = {"id": "x", "result": None, "errors": [{"code": code}]}
    response["errors"][0]["message"] = message
    if guidance is None:
        return response
    return with_guidance(response, Guidance(*guidance))


class Server:
    """Gives its answers one after the other, the last one for ever."""

    def __init__(self, *answers):
        self.answers = answers
        self.requests = []

    def send(self, request):
        self.requests.append(request)
        return self.answers[min(len(self.requests), len(self.answers)) - 1]

    async def asend(self, request):
        await asyncio.sleep(0)
        return self.send(request)


def plainly(server, request, **options):
    return call_with_guidance(server.send, request, **options)


def awaited(server, request, **options):
    return asyncio.run(acall_with_guidance(server.asend, request, **options))


@pytest.fixture(params=[plainly, awaited], ids=["sync", "async"])
def call(request):
    return request.param


# -- when it ends ---------------------------------------------------------------------


@pytest.mark.parametrize("errors", [{}, {"errors": None}, {"errors": []}], ids=repr)
def test_a_success_is_returned_at_once(call, instant, errors):
    answer = {**SUCCESS, **errors}
    server = Server(answer)

    assert call(server, {}) == answer
    assert (len(server.requests), instant.pauses) == (1, [])


@pytest.mark.parametrize(
    "answer",
    [
        failure(),
        failure((False,)),
        {**failure(), "extensions": [{"urn": "urn:forrst:ext:retry", "data": {}}]},
        {**failure(), "extensions": [{"urn": "urn:forrst:ext:retry"}]},
        {**failure(), "extensions": "none"},
    ],
    ids=["no entry", "refused", "allowed missing", "data missing", "unreadable"],
)
def test_a_failure_that_allows_nothing_stops_at_once(call, instant, answer):
    server = Server(answer)  # R-003-17
    with pytest.raises(FailedCall, match=r"^down$") as caught:
        call(server, {})

    assert (len(server.requests), instant.pauses) == (1, [])
    assert caught.value.response == answer
    assert (caught.value.code, caught.value.attempts) == ("UNAVAILABLE", 1)


@pytest.mark.parametrize(
    ("server_limit", "own_limit", "calls"),
    [(5, 3, 3), (2, 3, 2), (1, 3, 1), (0, 3, 1), (None, 3, 3), (None, 1, 1), (9, 9, 9)],
)
def test_the_lower_limit_counts_in_total(call, server_limit, own_limit, calls):
    server = Server(failure((True, "fixed", 1, server_limit)))  # R-003-18, R-003-22
    with pytest.raises(FailedCall) as caught:
        call(server, {}, attempts=own_limit)

    assert len(server.requests) == caught.value.attempts == calls


def test_the_last_failure_is_the_one_raised(call):  # R-003-22
    answers = [failure((True, "immediate"), message=text) for text in ("a", "b", "c")]
    with pytest.raises(FailedCall, match=r"^c$") as caught:
        call(Server(*answers), {})

    assert caught.value.response is answers[2]
    assert caught.value.guidance == Guidance(True, "immediate")


@pytest.mark.parametrize("attempts", [0, -1, 2.0, True, None, "3"])
def test_a_number_of_attempts_that_is_none_is_refused(call, attempts):
    server = Server(SUCCESS)
    with pytest.raises(DefinitionError, match="attempts must be a whole number"):
        call(server, {}, attempts=attempts)

    assert server.requests == []


def test_exceptions_of_send_propagate(call):
    class Deaf(Server):
        def send(self, request):
            super().send(request)
            raise ConnectionError

    server = Deaf(SUCCESS)
    with pytest.raises(ConnectionError):
        call(server, {})

    assert len(server.requests) == 1


# -- how long it waits ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("guidance", "pauses"),
    [
        ((True, "immediate"), []),
        ((True, "fixed", 5), [5, 5, 5]),
        ((True, "exponential", 5), [5, 10, 20]),
        ((True, "fixed"), [1, 1, 1]),
        ((True, "exponential"), [1, 2, 4]),
        ((True, "fixed", 0), []),
        ((True, None, 5), [5, 5, 5]),
        ((True,), [1, 2, 4]),
    ],
    ids=repr,
)
def test_pauses_are_those_the_server_asks_for(call, instant, guidance, pauses):
    with pytest.raises(FailedCall):  # R-003-19, R-003-20
        call(Server(failure(guidance)), {}, attempts=4)

    assert instant.pauses == pauses


def test_minutes_count(call, instant):  # R-003-19
    after = {"value": 2, "unit": "minute"}
    data = {"allowed": True, "strategy": "fixed", "after": after}
    entry = {"urn": "urn:forrst:ext:retry", "data": data}
    call(Server({**failure(), "extensions": [entry]}, SUCCESS), {})

    assert instant.pauses == [120]


def test_guidance_is_read_again_from_each_response(call, instant):  # R-003-21
    server = Server(
        failure((True, "fixed", 5, 9)),
        failure((True, "exponential", 3, 9)),
        failure((True, "immediate")),
        failure((True, "fixed", 7, 4)),
    )
    with pytest.raises(FailedCall):
        call(server, {}, attempts=9)

    assert instant.pauses == [5, 6]
    assert len(server.requests) == 4


@pytest.mark.parametrize("guidance", [(True, "immediate"), (True, "fixed", 0)])
def test_a_rate_limit_is_never_retried_without_waiting(call, instant, guidance):
    server = Server(failure(guidance, "RATE_LIMITED"), SUCCESS)  # R-003-25
    call(server, {})

    assert instant.pauses == [1]


def test_growth_ends_at_five_minutes(call, instant):  # R-003-25
    with pytest.raises(FailedCall):
        call(Server(failure((True, "exponential", 100))), {}, attempts=5)

    assert instant.pauses == [100, 200, 300, 300]


def test_a_long_wait_is_not_cut_off(call, instant):
    call(Server(failure((True, "fixed", 3600)), SUCCESS), {})

    assert instant.pauses == [3600]


@pytest.mark.parametrize(
    ("wait", "options"),
    [
        (3601, {}),
        (10**400, {}),
        (10**400, {"max_delay": 10**9}),
        (31, {"max_delay": 30}),
    ],
    ids=["hour", "endless", "endless at a billion seconds", "own limit"],
)
def test_a_wait_above_the_limit_ends_the_call(call, instant, wait, options):
    answer = failure((True, "fixed", 1))
    answer["extensions"][0]["data"]["after"] = {"value": wait, "unit": "second"}
    server = Server(answer, SUCCESS)
    with pytest.raises(FailedCall):
        call(server, {}, **options)

    assert (len(server.requests), instant.pauses) == (1, [])


def test_the_limit_can_be_raised(call, instant):
    server = Server(failure((True, "fixed", 7200)), SUCCESS)
    call(server, {}, max_delay=7200)

    assert instant.pauses == [7200]


@pytest.mark.parametrize("seconds", [Decimal("0.5"), Fraction(1, 2)])
def test_the_limit_is_kept_as_a_float(seconds):
    limit = CallLimits(3, seconds).max_delay

    assert (limit, type(limit)) == (0.5, float)


@pytest.mark.parametrize("wrong", [-1, float("nan"), "1", None])
def test_a_wrong_limit_is_refused(call, wrong):
    with pytest.raises(DefinitionError, match="max_delay must be a finite number"):
        call(Server(SUCCESS), {}, max_delay=wrong)


def test_a_pause_that_would_end_too_late_is_not_begun(call, instant):
    server = Server(failure((True, "exponential", 5)))
    with deadline(20), pytest.raises(FailedCall):
        call(server, {}, attempts=9)

    assert instant.pauses == [5, 10]
    assert len(server.requests) == 3


# -- what is sent ---------------------------------------------------------------------


def test_each_attempt_has_an_id_of_its_own_and_the_same_key(call):  # R-003-23
    key = {"urn": "urn:forrst:ext:idempotency", "options": {"key": "order_123"}}
    request = {
        "id": "req_1",
        "call": {"function": "orders.create"},
        "extensions": [key],
    }
    server = Server(failure((True, "immediate")), failure((True, "immediate")), SUCCESS)
    call(server, request)

    first, second, third = (sent.pop("id") for sent in server.requests)
    assert first == "req_1"
    assert len({first, second, third}) == 3
    del request["id"]
    assert server.requests == [request] * 3


def test_a_request_without_an_id_gets_one(call):
    server = Server(SUCCESS)
    request = {}
    call(server, request)

    assert server.requests[0]["id"]
    assert request == {}


def with_deadline(**options):
    return {"extensions": [{"urn": "urn:forrst:ext:deadline", "options": options}]}


@pytest.mark.parametrize(
    ("request_", "calls"),
    [
        (with_deadline(value="2024-03-15T14:30:00Z", unit="iso8601"), 1),
        (with_deadline(absolute="2024-03-15T14:30:00Z"), 1),
        (with_deadline(value=30, unit="second"), 2),
        ({}, 2),
    ],
    ids=repr,
)
def test_a_deadline_that_has_passed_is_not_tried_again(call, request_, calls):
    server = Server(failure((True, "immediate"), "DEADLINE_EXCEEDED"), SUCCESS)
    with suppress(FailedCall):  # R-003-24
        call(server, request_)

    assert len(server.requests) == calls


# -- the error ------------------------------------------------------------------------


def test_a_failed_call_can_be_pickled_and_read():
    failed = FailedCall(failure((True, "fixed", 5)), 2)
    again = pickle.loads(pickle.dumps(failed))

    assert (again.response, again.attempts) == (failed.response, 2)
    assert str(FailedCall({"errors": [{"code": "GONE"}]}, 1)) == "GONE"
    assert str(FailedCall({"errors": ["?"]}, 1)) == ""


def test_a_task_follows_the_guidance_of_a_failed_call(instant):
    server = Server(failure((True, "fixed", 9, 2)))

    @retry_on(FailedCall, limit=5, delay=0.5, guided=True)
    class Create(Task[None]):
        def work(self) -> None:
            call_with_guidance(server.send, {}, attempts=1)

    result = Create.execute()

    assert (len(server.requests), instant.pauses) == (2, [9])
    assert (result.stopped, result.guidance.after) == ("guidance", 9)


def test_pauses_are_those_of_the_clock_in_use():
    slept = []

    class Sleepless(clock.Clock):
        def sleep(self, seconds):
            slept.append(("sync", seconds))

        async def asleep(self, seconds):
            slept.append(("async", seconds))

    with clock.use(Sleepless()):
        plainly(Server(failure((True, "fixed", 5)), SUCCESS), {})
        awaited(Server(failure((True, "fixed", 5)), SUCCESS), {})

    assert slept == [("sync", 5), ("async", 5)]
