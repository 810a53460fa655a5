from __future__ import annotations

import json
import math
import time
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from email.message import Message
from email.utils import format_datetime
from fractions import Fraction
from http import HTTPStatus
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmdx import Task
from cmdx.guidance import Guidance, guidance_for, guidance_in, guidance_of
from cmdx.wire import dump_result, load_result

REFUSED = Guidance(False)
UNAVAILABLE = Guidance(True, "exponential", 1, 5)
RATE_LIMITED = Guidance(True, "fixed", 60, 3)


def after(seconds):
    return Guidance(True, "fixed", seconds)


class ApiError(Exception):
    def __init__(self, **said):
        super().__init__("no")
        for name, value in said.items():
            setattr(self, name, value)


# -- exceptions -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        (5, 5),
        (0, 0),
        (0.25, 0.25),
        (Decimal("0.25"), 0.25),
        (Fraction(1, 4), 0.25),
        (timedelta(minutes=2), 120),
        ("30", 30),
        (" 30 ", 30),
        ("0", 0),
        ("1.5", 1.5),
        ("30s", 30),
        ("1.5s", 1.5),
        (b"30", 30),
        ({"value": 2, "unit": "minute"}, 120),
        ({"value": 2}, 2),
        ({"retryDelay": "4s"}, 4),
        ({"retry_delay": {"seconds": 4, "nanos": 500_000_000}}, 4.5),
        ({"seconds": "4"}, 4),
        (SimpleNamespace(retry_delay=timedelta(seconds=4)), 4),
        (
            SimpleNamespace(retry_delay=SimpleNamespace(seconds=4, nanos=500_000_000)),
            4.5,
        ),
        (SimpleNamespace(seconds=4, nanos=0), 4),
        ("Fri, 15 Mar 2024 12:00:30 GMT", 30),
        ("Friday, 15-Mar-24 12:00:30 GMT", 30),
        ("Fri Mar 15 12:00:30 2024", 30),
        ("Fri, 15 Mar 2024 11:59:00 GMT", 0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
        (datetime(2024, 3, 15, 14, 0, 30, tzinfo=timezone(timedelta(hours=2))), 30),
    ],
    ids=repr,
)
@pytest.mark.usefixtures("noon")
def test_an_error_may_say_when_in_many_ways(retry_after, seconds):
    assert guidance_of(ApiError(retry_after=retry_after)) == after(seconds)


UNREADABLE = [
    None, True, False, -1, -0.5, float("nan"), -math.inf, -(10**400), "", "soon", "-5",
    "1e3", "5 minutes", "Mon soon 5", "٣", "Fri, 99 Mar 2024 12:00:30 GMT",
    Decimal("NaN"), Decimal("sNaN"), Decimal(-1), "Fri, 15 Mar 2024 12:00:30 GMT" * 9,
    b"\xff\xfe", [], [5], (5,), {}, {"value": "2"}, {"value": 2, "unit": "moon"},
    {"retryDelay": None}, {"seconds": "x"}, {"seconds": -4}, object(), len, ApiError,
    timedelta(seconds=-1), SimpleNamespace(retry_delay=None),
    datetime(2024, 3, 15),  # noqa: DTZ001 -- it could be any moment
    SimpleNamespace(nanos="x"), {"allowed": "maybe"},
]  # fmt: skip


def without_address(value):
    """Name a parameter the same way in every process."""
    return repr(value).partition(" at 0x")[0][:30]


@pytest.mark.parametrize("name", ["retry_after", "guidance"])
@pytest.mark.parametrize("unreadable", UNREADABLE, ids=without_address)
def test_what_cannot_be_read_is_ignored(name, unreadable):
    assert guidance_of(ApiError(**{name: unreadable})) is None


@pytest.mark.parametrize(
    "date",
    [
        datetime(2024, 3, 15, 12, 1),  # noqa: DTZ001
        datetime(2024, 3, 15).date(),  # noqa: DTZ001
    ],
)
def test_a_date_without_a_time_zone_is_ignored_in_a_stored_result_too(date):
    class Serve(Task[None]):
        def work(self) -> None:
            self.fail("busy", retry_after=date)

    result = Serve.execute()
    stored = load_result(dump_result(result))

    assert result.guidance is stored.guidance is None
    assert guidance_for(result) == guidance_for(stored)


@pytest.mark.parametrize(
    "wait",
    [
        math.inf,
        10**400,
        Decimal("1e400"),
        Fraction(10**400),
        "1" * 400,
        "1" * 10**6,
        "9" * 400 + "s",
        {"value": 10**400},
        {"value": 1e308, "unit": "minute"},
        {"seconds": "1" * 400},
        {"seconds": 10**400},
        {"seconds": 1, "nanos": 10**400},
        {"retryDelay": {"seconds": 10**400, "nanos": -1}},
        SimpleNamespace(seconds=10**400, nanos=0),
        "7200, " + "1" * 400,
        "Fri, 31 Dec 99999 23:59:59 GMT",
    ],
    ids=without_address,
)
def test_a_wait_that_is_too_large_to_read_is_infinite(wait):
    said = guidance_of(ApiError(retry_after=wait))

    assert said == after(math.inf)
    assert [said.pause_before(retry) for retry in (1, 2, 99)] == [math.inf] * 3


def test_an_integer_of_many_digits_in_a_body_is_infinite():
    body = f'{{"retry_after": {"1" * 5000}}}'

    assert Guidance.from_http(503, {}, body) == after(math.inf)
    assert Guidance.from_http(503, {}, body.replace("1", "-1", 1)) is None


@pytest.mark.parametrize(
    "wait", [{"seconds": 10**400}, {"retryDelay": {"seconds": 10**400}}]
)
def test_seconds_of_many_digits_in_a_body_are_infinite(wait):
    bodies = [{"retry_after": wait}, {"error": {"details": [wait]}}]
    body, in_error = map(json.dumps, bodies)

    assert Guidance.from_http(503, {}, body) == after(math.inf)
    assert Guidance.from_http(503, {}, in_error) == after(math.inf)
    assert Guidance.from_http(503, {}, body.replace("1", "-1", 1)) is None


def test_a_value_that_refers_to_itself_is_ignored():
    endless = SimpleNamespace()
    endless.retry_delay = endless

    assert guidance_of(ApiError(retry_after=endless)) is None


def test_a_property_that_raises_is_ignored():
    class Broken(Exception):
        retry_after = 5

        @property
        def guidance(self):
            raise RuntimeError

    assert guidance_of(Broken()) == after(5)


@pytest.mark.parametrize(
    "guidance",
    [
        UNAVAILABLE,
        UNAVAILABLE.to_wire(),
        {"urn": "urn:forrst:ext:retry", "data": UNAVAILABLE.to_wire()},
        {
            "extensions": [
                {"urn": "urn:forrst:ext:retry", "data": UNAVAILABLE.to_wire()}
            ]
        },
    ],
    ids=["value", "data", "entry", "response"],
)
def test_an_error_may_carry_guidance(guidance):
    assert guidance_of(ApiError(guidance=guidance)) == UNAVAILABLE


def test_guidance_takes_precedence_over_a_wait():
    assert guidance_of(ApiError(guidance=REFUSED, retry_after=5)) == REFUSED
    assert guidance_of(ApiError(guidance="?", retry_after=5)) == after(5)


@pytest.mark.parametrize(
    "silent", [None, ValueError(), ApiError(), 5, "text", ApiError]
)
def test_an_error_that_says_nothing_has_no_guidance(silent):
    assert guidance_of(silent) is None


@given(st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(["allowed", "after", "value", "unit", "seconds", "nanos"])
        | st.sampled_from(["retryDelay", "extensions", "errors", "urn", "data"])
        | st.text(),
        inner,
    ),
    max_leaves=10,
))  # fmt: skip
def test_nothing_that_comes_from_outside_is_fatal(value):
    for said in (
        guidance_of(ApiError(guidance=value, retry_after=value)),
        guidance_in(value),
        Guidance.from_wire(value),
        Guidance.from_http(503, {"Retry-After": value, "RateLimit": value}, value),
        Guidance.from_http(429, value, value),
        Guidance.from_http(value, None, None),
    ):
        assert said is None or said.pause_before(1) >= 0


# -- results and faults ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"guidance": UNAVAILABLE}, UNAVAILABLE),
        ({"retry_after": 45}, after(45)),
        ({"details": {"retry_after": {"value": 1, "unit": "minute"}}}, after(60)),
        ({"code": "RATE_LIMITED"}, RATE_LIMITED),
        ({"code": "RATE_LIMITED", "retry_after": 45}, after(45)),
        ({"code": "NOT_FOUND"}, REFUSED),
        ({"code": 404}, None),
        ({"code": 503}, None),
        ({"code": HTTPStatus.SERVICE_UNAVAILABLE}, None),
        ({"code": 503, "retry_after": 45}, after(45)),
        ({"code": "card.expired"}, None),
        ({"code": []}, None),
        ({}, None),
    ],
    ids=repr,
)
def test_a_failed_task_says_it_by_its_metadata(failed, metadata, said):
    result = failed(**metadata)

    assert result.guidance == guidance_of(result) == said
    assert guidance_of(result.task.Fault(result)) == said


def test_a_result_says_what_its_cause_says(failed):
    assert failed(error=ApiError(retry_after=7)).guidance == after(7)
    assert failed(error=ApiError()).guidance is None


def test_a_result_that_has_not_failed_has_no_guidance():
    class Serve(Task[int]):
        def work(self) -> int:
            self.metadata["retry_after"] = 5
            if self.context.get("late"):
                self.skip("late", retry_after=5)
            return 1

    assert Serve.execute().guidance is None
    assert Serve.execute(late=True).guidance is None


def test_a_thrown_failure_has_the_guidance_of_its_origin():
    class Inner(Task[None]):
        def work(self) -> None:
            self.fail("busy", retry_after=9)

    class Throws(Task[None]):
        def work(self) -> None:
            self.throw(Inner.execute())

    class Raises(Task[None]):
        def work(self) -> None:
            Inner.execute_or_raise()

    assert Throws.execute().guidance == after(9)
    assert Raises.execute().guidance == after(9)


# -- responses ------------------------------------------------------------------------


def response(*entries, **details):
    return {
        "errors": [{"code": "RATE_LIMITED", "message": "no", "details": details}],
        "extensions": list(entries),
    }


RETRY = {"urn": "urn:forrst:ext:retry", "data": {"allowed": True, "strategy": "fixed"}}


@pytest.mark.parametrize("spelling", ["reset", "resets_in"])
def test_a_wait_left_out_is_that_of_the_rate_limit(spelling):  # R-003-13
    data = {"remaining": 0, spelling: {"value": 1, "unit": "minute"}}
    limit = {"urn": "urn:forrst:ext:rate-limit", "data": data}

    assert guidance_in(response(limit, RETRY)) == after(60)


def test_a_wait_left_out_is_that_of_the_details():  # R-003-14
    details = {"retry_after": {"value": 45, "unit": "second"}}

    assert guidance_in(response(RETRY, **details)) == after(45)


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"extensions": None},
        {"extensions": {}},
        {"extensions": [None, 5, "x", {"urn": "urn:forrst:ext:other"}]},
        {"extensions": [{"urn": "urn:forrst:ext:retry", "data": None}]},
        {"extensions": [{"urn": "urn:cline:forrst:ext:retry", "data": {}}]},
    ],
    ids=repr,
)
def test_a_response_without_a_readable_entry_has_no_guidance(broken):  # R-003-1
    assert guidance_in(broken) is None


# -- HTTP -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Retry-After": "30"},
        {"retry-after": "30"},
        {"RETRY-AFTER": b"30"},
        [("Retry-After", "30")],
        [(b"retry-after", b"30")],
        {"Retry-After": "Fri, 15 Mar 2024 12:00:30 GMT"},
        {"Retry-After": "30", "RateLimit": '"day";r=0;t=3600'},
    ],
    ids=repr,
)
@pytest.mark.parametrize("status", [429, 503, 403, 404, HTTPStatus.BAD_GATEWAY, None])
@pytest.mark.usefixtures("noon")
def test_retry_after_says_when(headers, status):
    assert Guidance.from_http(status, headers) == after(30)


def test_headers_may_be_those_of_the_standard_library(noon):
    headers = Message()
    headers["Retry-After"] = format_datetime(noon + timedelta(seconds=9), usegmt=True)

    assert Guidance.from_http(503, headers) == after(9)


@pytest.mark.parametrize(
    "values",
    [
        ("30", "30"),
        ("5", "30", "7"),
        ("soon", "30"),
        ("-1", "30", ""),
        ("5", "Fri, 15 Mar 2024 12:00:30 GMT"),
        ("Fri, 15 Mar 2024 12:00:30 GMT", "5"),
        ("Fri, 15 Mar 2024 12:00:05 GMT", "Fri, 15 Mar 2024 12:00:30 GMT"),
        ("Friday, 15-Mar-24 12:00:30 GMT", "Fri Mar 15 12:00:05 2024", "5"),
        ("Fri, 99 Mar 2024 12:00:05 GMT", "30"),
    ],
    ids=repr,
)
@pytest.mark.usefixtures("noon")
def test_the_longest_of_several_retry_after_headers_counts(values):
    repeated = [("Retry-After", value) for value in values]

    assert Guidance.from_http(503, repeated) == after(30)
    assert Guidance.from_http(503, {"Retry-After": ",".join(values)}) == after(30)


def test_a_header_is_not_cut_off_inside_a_value():
    header = "1," * 4095 + "7200"

    assert Guidance.from_http(503, {"Retry-After": header}) == after(1)


@pytest.mark.parametrize("header", ["soon", "-1", "", "5 apples", "soon, later", ","])
def test_an_unreadable_retry_after_says_nothing(header):
    assert Guidance.from_http(503, {"Retry-After": header}) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"RateLimit": '"default";r=0;t=30'}, 30),
        ({"RateLimit": '"burst";r=0;t=5, "day";r=9;t=3600'}, 5),
        ({"RateLimit": '"burst";r=0;t=5, "day";r=0;t=3600'}, 3600),
        ({"RateLimit": '"a,t=9";r=0;t=5'}, 5),
        ({"RateLimit": '"reset=9";r=0;t=5'}, 5),
        ({"RateLimit": "limit=100, remaining=0, reset=50"}, 50),
        ({"RateLimit-Remaining": "0", "RateLimit-Reset": "7"}, 7),
        ([("RateLimit", '"a";r=0;t=5'), ("RateLimit", '"b";r=0;t=6')], 6),
    ],
    ids=repr,
)
@pytest.mark.parametrize("status", [429, 503, None])
def test_a_limit_that_is_used_up_says_when(headers, seconds, status):
    assert Guidance.from_http(status, headers) == after(seconds)


@pytest.mark.parametrize(("padding", "seconds"), [(8000, 5), (9000, 3)])
def test_only_complete_limits_in_the_first_8_kilobytes_of_a_header_count(
    padding, seconds
):
    header = f'"a";r=0;t=3, {"x" * padding};r=0;t=5, "c";r=0;t=1'

    assert Guidance.from_http(429, {"RateLimit": header}) == after(seconds)


def test_a_number_is_not_cut_in_two():
    header = f"{' ' * 8185}r=0;t=3600, r=0;t=1"

    assert header[:8192].endswith("t=3")
    assert Guidance.from_http(503, {"RateLimit": header}) is None


def cpu_seconds(read, text):
    """Return the least CPU time of several calls, which other processes do not use."""

    def measure():
        start = time.thread_time()
        for _ in range(5):
            read(text)
        return time.thread_time() - start

    return min(measure() for _ in range(7))


@pytest.mark.parametrize(
    "hostile",
    [
        lambda size: "a" * size,
        lambda size: "a " * (size // 2),
        lambda size: "a=" * (size // 2),
        lambda size: '"' * size,
        lambda size: '"a' * (size // 2),
        lambda size: "a" + " " * size,
        lambda size: "," * size,
        lambda size: ";" * size,
        lambda size: "1" * size + "x",
        lambda size: "Mon, " + "1" * size + "\nx",
        lambda size: "Mon, " + "a" * size,
    ],
    ids=[
        "letters",
        "words",
        "equals",
        "quotes",
        "quoted",
        "spaces",
        "commas",
        "semicolons",
        "digits",
        "date",
        "day",
    ],
)
@pytest.mark.parametrize(
    "read",
    [
        lambda text: Guidance.from_http(429, {"RateLimit": text}),
        lambda text: Guidance.from_http(429, {"Retry-After": text}),
        lambda text: Guidance.from_http(429, {"RateLimit-Reset": text}),
        lambda text: guidance_of(ApiError(retry_after=text)),
        lambda text: guidance_of(ApiError(retry_after={"retryDelay": text})),
    ],
    ids=["RateLimit", "Retry-After", "RateLimit-Reset", "text", "mapping"],
)
def test_reading_a_hostile_text_takes_linear_time(read, hostile):
    # 16 for quadratic work; measured as a ratio, so that the machine does not matter.
    assert cpu_seconds(read, hostile(8000)) < 10 * cpu_seconds(read, hostile(2000))


def test_a_refusal_for_too_many_requests_counts_any_limit():
    assert Guidance.from_http(429, {"RateLimit-Reset": "7"}) == after(7)
    assert Guidance.from_http(429, {"RateLimit": '"a";r=3;t=5'}) == after(5)


def test_a_limit_that_is_not_used_up_says_nothing():
    headers = {"RateLimit": '"a";r=3;t=5', "RateLimit-Reset": "9"}

    assert Guidance.from_http(503, headers) is None


def test_a_limit_does_not_make_a_final_answer_worth_trying_again():
    headers = {"RateLimit": '"a";r=0;t=5'}

    assert Guidance.from_http(404, headers) is None
    assert Guidance.from_http(404, headers, by_status=True) == REFUSED


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"title": "busy", "retry_after": 9}, after(9)),
        ({"retry-after": "9"}, after(9)),
        ({"retryAfter": {"value": 1, "unit": "minute"}}, after(60)),
        ({"code": "RATE_LIMITED"}, RATE_LIMITED),
        ({"code": "INVALID_ARGUMENTS"}, REFUSED),
        ({"code": "UNAVAILABLE"}, UNAVAILABLE),
        ({"code": "out_of_paper"}, None),
        ({"type": "https://example.com/problems/rate-limited"}, RATE_LIMITED),
        ({"type": "https://iana.org/x#quota-exceeded"}, RATE_LIMITED),
        ({"type": "https://iana.org/x#temporary-reduced-capacity"}, UNAVAILABLE),
        ({"type": "about:blank"}, None),
        ({"guidance": {"allowed": False}}, REFUSED),
        ({"retry": {"allowed": True, "after": {"value": 3}}}, Guidance(True, None, 3)),
        ({"allowed": False}, None),
        ({"errors": [{"code": "NOT_FOUND"}]}, REFUSED),
        (
            {"errors": [{"code": "X", "details": {"retry_after": {"value": 4}}}]},
            after(4),
        ),
    ],
    ids=repr,
)
def test_a_problem_may_say_more_than_the_status(body, said):
    assert Guidance.from_http(503, {}, body) == said
    assert Guidance.from_http(503, {}, json.dumps(body)) == said
    assert Guidance.from_http(503, {}, json.dumps(body).encode()) == said


def test_the_status_of_a_problem_counts_when_no_other_is_known():
    problem = {"status": 503}

    assert Guidance.from_http(None, {}, problem, by_status=True) == UNAVAILABLE


@pytest.mark.parametrize("body", ["", "<html>", "[1]", "5", b"\xff", "[" * 10**5, 5])
def test_a_body_that_cannot_be_read_says_nothing(body):
    assert Guidance.from_http(503, {}, body) is None
    assert Guidance.from_http(503, {}, body, by_status=True) == UNAVAILABLE


def test_the_retry_entry_takes_precedence_over_the_headers():
    body = {"errors": [{"code": "UNAVAILABLE"}], "extensions": [RETRY]}

    assert Guidance.from_http(503, {"Retry-After": "9"}, body) == Guidance(
        True, "fixed"
    )


@pytest.mark.parametrize("delay", ["4.5s", {"seconds": "4", "nanos": 500_000_000}])
def test_a_retry_info_says_when(delay):
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
    other = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "QUOTA"}
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [other, info]}

    assert Guidance.from_http(429, {}, {"error": error}) == after(4.5)
    assert Guidance.from_http(None, {}, error) == after(4.5)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (429, RATE_LIMITED),
        (500, Guidance(True, "exponential", 1, 3)),
        (502, Guidance(True, "exponential", 2, 3)),
        (503, UNAVAILABLE),
        (504, Guidance(True, "exponential", 2, 3)),
        (408, UNAVAILABLE),
        (400, REFUSED),
        (404, REFUSED),
        (409, REFUSED),
        (501, REFUSED),
        (200, None),
        (301, None),
        (None, None),
        ("503", None),
    ],
)
def test_a_status_alone_counts_only_when_asked_for(status, said):
    assert Guidance.from_http(status, by_status=True) == said
    assert Guidance.from_http(status) is None


def test_a_success_has_no_guidance_whatever_its_headers_say():
    assert Guidance.from_http(200, {"Retry-After": "5"}, {"retry_after": 5}) is None
