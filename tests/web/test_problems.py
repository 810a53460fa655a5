"""Failed results as HTTP answers: the status, when to try again, and what is told."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from enum import Enum
from http import HTTPStatus
from typing import Any

import attrs
import pytest

import cmdx
from cmdx import Result, Task, Workflow, middleware, on_failed, output, required
from cmdx.guidance import Guidance, causes, code_for, guidance_of, respond
from cmdx.guidance import statuses as statuses_of_codes
from cmdx.middlewares import Breaker, Deadline, RateLimit, circuits, limiters
from cmdx.operations import (
    Indeterminate,
    Ledger,
    OperationCancelled,
    OperationConflict,
    OperationExpired,
    StillRunning,
    operation,
)
from cmdx.stores import CommitUncertain, SqliteStore, StoreError, StoreUnavailable
from cmdx.testing import instant
from cmdx.web import problem, statuses
from cmdx.wire import dump_result, load_result

HIDDEN = "refused by 10.0.0.3"  # the text of an exception
UNTOLD = {
    "type": "about:blank",
    "title": "Internal Server Error",
    "status": 500,
    "code": "INTERNAL_ERROR",
}


@attrs.frozen
class Address:
    city: str
    zip_code: int


class Order(Task[str]):
    name: str = required(max_length=5)
    seats: int
    address: Address | None = None

    def work(self) -> str:
        return self.name


class Nothing(Exception):
    def __bool__(self) -> bool:
        return False


@operation(persist=True)
class Pay(Task[None]):
    amount: int = required(ge=1)

    def work(self) -> None:
        self.fail("the card was declined", code=402, retry_after=5)


class Refused(ConnectionError):
    retry_after = 2


@operation(persist=True)
class Ring(Task[None]):
    def work(self) -> None:
        raise Refused(HIDDEN)


@operation(persist=True)
class Route(Task[None]):
    def work(self) -> None:
        self.throw(raised(LookupError(HIDDEN)))


@pytest.fixture
def session():
    return Ledger(SqliteStore()).session("shop")


def failed(*reason: Any, **metadata: Any):
    """The result of a task that fails on purpose."""

    class Serve(Task[None]):
        def work(self) -> None:
            self.fail(*reason, **metadata)

    return Serve.execute()


def raised(error, **metadata):
    """The result of a task that raises."""

    class Serve(Task[None]):
        def work(self) -> None:
            self.metadata.update(metadata)
            raise error

    return Serve.execute()


def come_back(result):
    """The result as another process reads it."""
    return load_result(json.loads(json.dumps(dump_result(result))))


def passed_on(inner, **metadata):
    """The result of a task that fails with the failure of another one."""

    class Outer(Task[None]):
        def work(self) -> None:
            self.throw(inner, **metadata)

    return Outer.execute()


# -- what the client is told -----------------------------------------------------------


def test_invalid_inputs_are_told_by_field():
    answer = problem(Order.execute({"name": "Hadrian", "address": {"city": "Rome"}}))

    assert answer.status == 422
    assert answer.headers == {"Content-Type": "application/problem+json"}
    assert answer.body == {
        "type": "about:blank",
        "title": "Unprocessable Content",
        "status": 422,
        "detail": "name must have a length of at most 5. seats is required. "
        "address.zip_code is required",
        "code": "INVALID_ARGUMENTS",
        "errors": {
            "name": ["must have a length of at most 5"],
            "seats": ["is required"],
            "address.zip_code": ["is required"],
        },
    }


def test_errors_that_work_has_added_are_told_by_field():
    class Book(Task[None]):
        def work(self) -> None:
            self.errors.add("seats", "are all taken")

    answer = problem(Book.execute())

    assert (answer.status, answer.body["errors"]) == (422, {"seats": ["are all taken"]})


def test_the_reason_of_a_failure_is_told():
    assert problem(failed("no such order", code=404)).body == {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": "no such order",
    }


def test_a_failure_without_a_reason_has_no_detail():
    assert problem(failed()).body == {
        "type": "about:blank",
        "title": "Unprocessable Content",
        "status": 422,
        "code": "FAILED",
    }


@pytest.mark.parametrize(
    "result",
    [
        raised(LookupError(HIDDEN)),
        raised(StoreError(HIDDEN, "Wait")),
        failed(LookupError(HIDDEN)),
        raised(Nothing(HIDDEN)),
        passed_on(raised(LookupError(HIDDEN))),
        passed_on(passed_on(raised(LookupError(HIDDEN)))),
    ],
    ids=["raised", "of-ours", "as-a-reason", "false", "passed-on", "twice"],
)
def test_the_text_of_an_exception_is_not_told(result):
    assert problem(result).body == UNTOLD


def test_the_text_of_an_exception_is_not_told_after_a_replay_either(session):
    first, replayed = (session.run(Route(), id="one") for _ in range(2))

    assert replayed.operation.replayed
    assert problem(first).body == problem(replayed).body == UNTOLD


@pytest.mark.parametrize("code", [404, "declined", "INTERNAL_ERROR"])
def test_the_text_of_an_exception_is_not_told_with_a_code_either(code):
    for result in (raised(LookupError(HIDDEN), code=code), failed(OSError(HIDDEN))):
        assert HIDDEN not in json.dumps(problem(result).body)


def test_errors_that_were_added_before_an_exception_are_not_told():
    class Book(Task[None]):
        def work(self) -> None:
            self.errors.add("seats", "are all taken")
            raise LookupError(HIDDEN)

    assert "errors" not in problem(Book.execute()).body


def test_an_output_that_was_not_set_is_not_the_mistake_of_the_client():
    class Book(Task[None]):
        receipt: str = output()

        def work(self) -> None:
            pass

    assert problem(Book.execute()).body == UNTOLD


def test_a_failure_in_a_workflow_is_told_like_that_of_the_step():
    class Ship(Workflow[None]):
        steps = (Order,)

    class Checkout(Workflow[None]):
        steps = (Ship,)

    form = {"name": "Ada"}
    assert problem(Checkout.execute(form)) == problem(Order.execute(form))


def test_a_fault_is_told_like_the_result_it_has():
    with pytest.raises(Order.Fault) as raised_fault:
        Order.execute_or_raise({"name": "Ada"})

    assert problem(raised_fault.value) == problem(Order.execute({"name": "Ada"}))


@pytest.mark.parametrize(
    "result",
    [
        passed_on(failed("no such order", code=409), code=404),
        passed_on(passed_on(failed("busy", code=409), code=404), retry_after=7),
        passed_on(failed("busy", retry_after=5), code="RATE_LIMITED"),
    ],
    ids=["code", "twice", "wait"],
)
def test_a_fault_that_is_thrown_on_is_told_like_the_result_it_is_raised_for(result):
    with pytest.raises(cmdx.Fault) as raised_fault:
        result.or_raise()
    fault = raised_fault.value

    assert problem(fault) == problem(result)
    assert guidance_of(fault) == result.guidance
    assert fault.result == result.caused_failure


def test_a_task_that_raises_a_fault_on_is_told_like_the_first_failure():
    class Top(Task[None]):
        def work(self) -> None:
            passed_on(failed("no such order", code=409), code=404).or_raise()

    result = Top.execute()
    with pytest.raises(cmdx.Fault) as raised_fault:
        result.or_raise()

    assert problem(result).status == 409
    assert problem(raised_fault.value) == problem(result)


def test_the_fault_of_an_operation_is_told_like_its_result(session):
    result = session.run(Pay(amount=7), id="one")
    with pytest.raises(Pay.Fault) as raised_fault:
        result.or_raise()

    assert problem(raised_fault.value) == problem(result)


def test_a_failure_that_was_raised_on_is_told_like_the_first():
    class Outer(Task[None]):
        def work(self) -> None:
            Order.execute_or_raise({"name": "Ada"})

    assert problem(Outer.execute()) == problem(Order.execute({"name": "Ada"}))


# -- the status ------------------------------------------------------------------------


class Code(Enum):
    GONE = "GONE"
    LOCKED = 423


@pytest.mark.parametrize(
    ("code", "status", "told"),
    [
        (400, 400, None),
        (402, 402, None),
        (HTTPStatus.CONFLICT, 409, None),
        (Code.LOCKED, 423, None),
        (599, 599, None),
        ("NOT_FOUND", 404, "NOT_FOUND"),
        (Code.GONE, 410, "GONE"),
        ("UNAVAILABLE", 503, "UNAVAILABLE"),
        ("RATE_LIMITED", 429, "RATE_LIMITED"),
        ("INTERNAL_ERROR", 500, "INTERNAL_ERROR"),
        ("DEPENDENCY_ERROR", 502, "DEPENDENCY_ERROR"),
        ("declined", 422, "declined"),
        (1017, 422, 1017),
        (200, 422, 200),
        (None, 422, "FAILED"),
        ("", 422, "FAILED"),
        (True, 422, "FAILED"),
        ([], 422, "FAILED"),
    ],
    ids=repr,
)
def test_the_code_of_a_failure_decides_about_the_status(code, status, told):
    answer = problem(failed("no", code=code))

    assert (answer.status, answer.body["status"]) == (status, status)
    assert answer.body.get("code") == told
    assert answer.body["detail"] == "no"


def test_a_failure_passed_on_has_the_code_of_the_first():
    inner = failed("no such order", code=404)
    outer = passed_on(passed_on(inner))

    assert problem(outer) == problem(inner)


def test_a_task_that_throws_a_failure_may_give_it_another_code():
    outer = passed_on(failed("no such order", code=404), code=409)

    assert problem(outer).status == 409
    assert problem(outer).body["detail"] == "no such order"


def test_a_status_that_nobody_has_named_has_the_title_of_its_class():
    titles = [problem(failed(code=code)).body["title"] for code in (499, 599)]

    assert titles == ["Bad Request", "Internal Server Error"]


@pytest.mark.parametrize(
    ("status", "title"),
    [
        (413, "Content Too Large"),
        (416, "Range Not Satisfiable"),
        (422, "Unprocessable Content"),
        (429, "Too Many Requests"),
    ],
)
def test_titles_are_those_of_the_standard(status, title):
    assert problem(failed(code=status)).body["title"] == title


def coded(error, code):
    error.code = code
    return error


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ValueError(), 500, "INTERNAL_ERROR"),
        (ConnectionError(), 500, "INTERNAL_ERROR"),
        (TimeoutError(), 500, "INTERNAL_ERROR"),
        (cmdx.DeadlineExceeded(), 504, "DEADLINE_EXCEEDED"),
        (OperationConflict("id", "a", "b"), 422, "IDEMPOTENCY_CONFLICT"),
        (OperationExpired("id"), 422, "IDEMPOTENCY_EXPIRED"),
        (OperationCancelled("id"), 500, "INTERNAL_ERROR"),
        (StillRunning("id", 5), 409, "IDEMPOTENCY_PROCESSING"),
        (Indeterminate("id", "it was killed"), 500, "OUTCOME_UNKNOWN"),
        (StoreError("it is read-only", "Wait"), 500, "INTERNAL_ERROR"),
        (StoreUnavailable("it is locked", "Wait"), 503, "UNAVAILABLE"),
        (CommitUncertain("it was lost", "Look"), 500, "OUTCOME_UNKNOWN"),
        (coded(ValueError(), "NOT_FOUND"), 404, "NOT_FOUND"),
        (coded(ValueError(), "ORDERS_SOLD_OUT"), 500, "ORDERS_SOLD_OUT"),
        (coded(ValueError(), 404), 500, "INTERNAL_ERROR"),
        (coded(ConnectionError(), 404), 500, "INTERNAL_ERROR"),
        (coded(ConnectionError(), "DEPENDENCY_ERROR"), 502, "DEPENDENCY_ERROR"),
    ],
    ids=repr,
)
def test_an_exception_decides_about_the_status(error, status, code):
    answer = problem(raised(error))

    assert (answer.status, answer.body["code"]) == (status, code)
    assert "detail" not in answer.body


def test_a_program_may_give_codes_and_classes_a_status(monkeypatch):
    class StorageFull(OSError):
        pass

    monkeypatch.setitem(statuses, "declined", 402)
    monkeypatch.setitem(statuses, "INVALID_ARGUMENTS", 400)
    monkeypatch.setitem(statuses_of_codes, "ORDERS_LOCKED", 423)
    monkeypatch.setitem(causes, StorageFull, "INSUFFICIENT_STORAGE")
    monkeypatch.setitem(statuses, "INSUFFICIENT_STORAGE", 507)

    monkeypatch.setitem(statuses, "FAILED", 400)

    assert problem(failed(code="declined")).status == 402
    assert problem(failed(code="unlisted")).status == problem(failed()).status == 400
    assert problem(Order.execute({})).status == 400
    assert problem(failed(code="ORDERS_LOCKED")).status == 423
    assert problem(raised(StorageFull())).status == 507


@pytest.mark.parametrize("restore", [lambda result: result, come_back])
@pytest.mark.parametrize("table", [statuses, statuses_of_codes], ids=["web", "codes"])
def test_the_code_of_an_exception_counts_in_any_form_if_it_is_listed(
    monkeypatch, table, restore
):
    result = restore(raised(coded(ValueError(HIDDEN), "card-declined")))
    before = problem(result)
    monkeypatch.setitem(table, "card-declined", 402)
    after = problem(result)

    assert (before.status, before.body["code"]) == (500, "INTERNAL_ERROR")
    assert (after.status, after.body["code"]) == (402, "card-declined")


@pytest.mark.parametrize("table", [statuses, statuses_of_codes], ids=["web", "codes"])
@pytest.mark.parametrize("status", ["402", None, True, 4.04, 200, 399, 600, 1017])
def test_a_status_that_is_no_error_of_http_is_refused_at_once(table, status):
    for change in (table.__setitem__, lambda code, bad: table.update({code: bad})):
        with pytest.raises(cmdx.DefinitionError, match=r"'declined' must be .* 400 to"):
            change("declined", status)
    assert "declined" not in table


@pytest.mark.parametrize("table", [statuses, statuses_of_codes], ids=["web", "codes"])
@pytest.mark.parametrize(
    ("code", "cure"),
    [
        (404, "A code that is a number is a status itself"),
        (LookupError, r"Give the class a code in cmdx\.guidance\.causes"),
        (Code.GONE, r"Use its value: 'GONE'"),
        (Code.LOCKED, r"A code that is a number is a status itself"),
        ("", "statuses: a code must be text"),
        (None, "statuses: a code must be text"),
    ],
    ids=repr,
)
def test_a_code_that_no_failure_can_have_is_refused_at_once(table, code, cure):
    with pytest.raises(cmdx.DefinitionError, match=cure):
        table[code] = 404
    assert code not in table


def test_a_status_of_the_standard_library_is_a_number(monkeypatch):
    monkeypatch.setitem(statuses, "declined", HTTPStatus.PAYMENT_REQUIRED)

    assert type(problem(failed(code="declined")).status) is int


def test_a_status_that_was_changed_can_be_taken_back():
    statuses["FAILED"] = 400
    del statuses["FAILED"]

    assert problem(failed()).status == 422
    with pytest.raises(KeyError):
        del statuses["FAILED"]


def test_the_statuses_of_guidance_are_not_changed():
    assert "declined" not in statuses_of_codes
    assert statuses_of_codes["INVALID_ARGUMENTS"] == 400
    assert statuses["INVALID_ARGUMENTS"] == 422


# -- an outcome that was replaced ------------------------------------------------------


class Declined(Task[None]):
    """Fails on purpose, and then in a callback."""

    then: Any

    def work(self) -> None:
        self.fail("declined", code=404, retry_after=5, details={"retry_after": 5})

    @on_failed
    def call(self) -> None:
        self.then(self)


def raise_error(_task):
    raise LookupError(HIDDEN)


def raise_error_with_a_code(_task):
    raise coded(LookupError(HIDDEN), "UNAVAILABLE")


def raise_fault_of_another(_task):
    failed("it is locked", code=423).or_raise()


def fail_again(task):
    task.fail("declined for good")


def fail_again_by_an_exception(task):
    task.fail(LookupError(HIDDEN), code=404)


def throw_another(task):
    task.throw(failed("it is locked", code=423))


@pytest.mark.parametrize("restore", [lambda result: result, come_back])
@pytest.mark.parametrize("pass_on", [lambda result: result, passed_on])
def test_an_exception_of_a_callback_is_not_told_as_the_failure_before(restore, pass_on):
    result = restore(pass_on(Declined.execute(then=raise_error)))
    answer = problem(result)

    assert answer.body == UNTOLD
    assert answer.headers == {"Content-Type": "application/problem+json"}
    assert result.guidance is None
    assert code_for(result) == "INTERNAL_ERROR"
    assert "details" not in respond(result)["errors"][0]


@pytest.mark.parametrize(
    ("then", "status", "wait"),
    [
        (raise_error_with_a_code, 503, "1"),
        (raise_fault_of_another, 423, None),
        (fail_again, 404, "5"),
        (fail_again_by_an_exception, 404, "5"),
        (throw_another, 404, "5"),
    ],
)
@pytest.mark.parametrize("restore", [lambda result: result, come_back])
def test_what_replaces_a_failure_decides_by_what_it_says_itself(
    restore, then, status, wait
):
    answer = problem(restore(Declined.execute(then=then)))

    assert (answer.status, answer.headers.get("Retry-After")) == (status, wait)


def note_more(task):
    yield
    task.metadata.update(code=423, seen=True)


@pytest.mark.parametrize("restore", [lambda result: result, come_back])
def test_what_is_noted_down_after_an_exception_replaced_a_failure_is_told(restore):
    noted = middleware(note_more)(type("Noted", (Declined,), {}))

    answer = problem(restore(noted.execute(then=raise_error)))

    assert answer.status == 423
    assert "Retry-After" not in answer.headers


# -- when to try again -----------------------------------------------------------------


class Busy(Exception):
    retry_after = 12.3


class Never(StoreUnavailable):
    guidance = Guidance(False)


def id_of(value):
    """Name a value in the id of a test; the text of a result has its duration."""
    return value.reason if isinstance(value, Result) else repr(value)


@pytest.mark.parametrize(
    ("result", "status", "wait"),
    [
        (failed("busy", retry_after=30), 503, "30"),
        (failed("busy", retry_after=0.2), 503, "1"),
        (failed("busy", code="busy", retry_after=2.5), 503, "3"),
        (failed("no", code=404, retry_after=5), 404, "5"),
        (failed("slow", code="RATE_LIMITED"), 429, "60"),
        (failed("slow", code="RATE_LIMITED", retry_after=7), 429, "7"),
        (failed("slow", code=429, retry_after=7), 429, "7"),
        (failed("locked", code="LOCK_TIMEOUT"), 423, "1"),
        (raised(Busy()), 503, "13"),
        (raised(Refused()), 503, "2"),
        (passed_on(raised(Busy())), 503, "13"),
        (raised(StillRunning("id", 5)), 409, "1"),
        (raised(StoreUnavailable("it is locked", "Wait")), 503, "1"),
        (raised(coded(ValueError(), "RATE_LIMITED")), 429, "60"),
        (failed("busy", guidance=Guidance(True, "fixed", 4)), 503, "4"),
    ],
    ids=id_of,
)
def test_a_failure_that_says_when_to_try_again_does_so_in_a_header(
    result, status, wait
):
    answer = problem(result)

    assert (answer.status, answer.headers["Retry-After"]) == (status, wait)


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (failed("busy", retry_after=30), "UNAVAILABLE"),
        (failed("busy", code="busy", retry_after=30), "busy"),
        (raised(Busy()), "UNAVAILABLE"),
    ],
    ids=id_of,
)
def test_a_failure_that_says_when_to_try_again_is_unavailable(result, code):
    assert problem(result).body["code"] == code


@pytest.mark.parametrize(
    ("result", "status"),
    [
        (failed("no"), 422),
        (failed("no", code=503), 503),
        (failed("no", code="UNAVAILABLE", guidance=Guidance(False)), 503),
        (raised(Never("it is locked", "Look")), 503),
        (failed("no", guidance=Guidance(False)), 422),
        (failed("no", guidance=Guidance(True, "immediate")), 422),
        (failed("no", retry_after=0), 422),
        (failed("late", code="DEADLINE_EXCEEDED"), 504),
        (raised(ValueError()), 500),
        (raised(ConnectionError()), 500),
        (raised(Indeterminate("id", "it was killed")), 500),
    ],
    ids=id_of,
)
def test_other_failures_have_no_such_header(result, status):
    answer = problem(result)

    assert answer.status == status
    assert answer.headers == {"Content-Type": "application/problem+json"}


# -- middlewares and operations --------------------------------------------------------


@pytest.fixture
def guarded():
    """Run a task twice, with a middleware that refuses the second run."""

    def run(guard):
        @middleware(guard)
        class Ask(Task[None]):
            def work(self) -> None:
                raise ConnectionError(HIDDEN)

        with instant():
            Ask.execute()
            return problem(Ask.execute())

    yield run
    circuits.forget("bank")
    limiters.forget("mail")


def test_an_open_circuit_is_unavailable(guarded):
    answer = guarded(Breaker("bank", failures=1, recovery=30))

    assert (answer.status, answer.headers["Retry-After"]) == (503, "30")
    assert answer.body["detail"] == "the circuit 'bank' is open"


def test_a_rate_limit_is_too_many_requests(guarded):
    answer = guarded(RateLimit("mail", limit=1, per=9.5))

    assert (answer.status, answer.headers["Retry-After"]) == (429, "10")


def test_a_run_without_time_is_a_timeout():
    @middleware(Deadline(1))
    class Ask(Task[None]):
        def work(self) -> None:
            pass

    with cmdx.deadline(0):
        assert problem(Ask.execute()).status == 504


def test_an_attempt_that_was_cancelled_by_the_deadline_is_a_timeout():
    @middleware(Deadline(0.01))
    class Ask(Task[None]):
        async def work(self) -> None:
            await asyncio.Event().wait()

    assert problem(asyncio.run(Ask.aexecute())).status == 504


def test_a_replayed_failure_is_the_same_problem(session):
    for amount in (7, 0):
        answers = [
            problem(session.run(Pay(amount=amount), id=f"pay-{amount}"))
            for _ in range(2)
        ]
        assert answers[0] == answers[1]


def test_a_replayed_exception_is_the_same_problem(session):
    first, second = (problem(session.run(Ring(), id="one")) for _ in range(2))

    assert first == second
    assert (first.status, first.headers["Retry-After"]) == (503, "2")


def test_an_id_with_other_inputs_is_refused(session):
    session.run(Order(name="Ada", seats=1), id="one")
    answer = problem(session.run(Order(name="Ada", seats=2), id="one"))

    assert (answer.status, answer.body["code"]) == (422, "IDEMPOTENCY_CONFLICT")


# -- mistakes --------------------------------------------------------------------------


def test_a_success_is_not_a_problem():
    result = Order.execute(name="Ada", seats=1)

    with pytest.raises(ValueError, match=r"Order has not failed.* Check result.failed"):
        problem(result)


def test_a_skip_is_not_a_problem():
    class Pay(Task[None]):
        def work(self) -> None:
            self.skip("paid already")

    with pytest.raises(ValueError, match="its status is skipped"):
        problem(Pay.execute())


def test_a_coroutine_has_to_be_awaited_first():
    coroutine = Order.aexecute(name="Ada", seats=1)

    with pytest.raises(TypeError, match="Await it first"):
        problem(coroutine)
    coroutine.close()


@pytest.mark.parametrize(
    "task", [Order, Order(name="Ada", seats=1)], ids=["class", "invocation"]
)
def test_a_task_has_to_be_run_first(task):
    with pytest.raises(TypeError, match=r"Run it first: problem\(Order\.execute\("):
        problem(task)


def test_an_exception_without_a_result_is_refused():
    with pytest.raises(
        TypeError, match=r"got an object of type LookupError\. Use exec"
    ):
        problem(LookupError())


@pytest.mark.parametrize("other", [None, {"name": "Ada"}, Order])
def test_anything_but_a_result_is_refused(other):
    with pytest.raises(TypeError, match=r"takes the result of a task, got .*\. \w+"):
        problem(other)


# -- the value -------------------------------------------------------------------------


def test_a_problem_cannot_be_changed():
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        problem(failed("no")).status = 200


def test_the_body_is_json():
    body = problem(Order.execute({})).body

    assert json.loads(json.dumps(body)) == body


@pytest.mark.parametrize(
    "heavy",
    ["fastapi", "flask", "django", "cmdx.operations", "cmdx.stores", "asyncio"],
)
def test_importing_it_stays_light(heavy):
    program = f"import sys, cmdx.web; sys.exit({heavy!r} in sys.modules)"
    command = [sys.executable, "-c", program]

    assert subprocess.run(command, check=False).returncode == 0  # noqa: S603
