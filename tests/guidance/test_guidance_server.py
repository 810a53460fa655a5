from __future__ import annotations

import json
from enum import Enum

import pytest

from cmdx import Task, optional, output, required
from cmdx.guidance import (
    Guidance,
    causes,
    code_for,
    guidance_for,
    respond,
    to_http,
    with_guidance,
)
from cmdx.operations import (
    Indeterminate,
    OperationConflict,
    OperationExpired,
    StillRunning,
)
from cmdx.run.deadlines import DeadlineExceeded
from cmdx.stores import CommitUncertain, StoreUnavailable

URN = "urn:forrst:ext:retry"
REFUSED = Guidance(False)
RATE_LIMITED = Guidance(True, "fixed", 60, 3)
UNAVAILABLE = Guidance(True, "exponential", 1, 5)
INTERNAL_ERROR = Guidance(True, "exponential", 1, 3)


class ApiError(Exception):
    def __init__(self, text="no", **said):
        super().__init__(text)
        for name, value in said.items():
            setattr(self, name, value)


class Order(Task[int]):
    """Has inputs to be refused, and an output to be forgotten."""

    amount: int = required()
    items: list[dict[str, int]] = optional(factory=list)
    receipt: str = output()

    def work(self) -> int:
        if self.amount:
            self.receipt = "7"
        return self.amount


def rate_limit(spelling="reset", remaining=0, value=45, unit="second"):
    reset = {"value": value, "unit": unit}
    data = {"limit": 100, "remaining": remaining, spelling: reset}
    return {"urn": "urn:forrst:ext:rate-limit", "data": data}


def entries(response):
    return [entry for entry in response["extensions"] if entry["urn"] == URN]


# -- which code a failure has ---------------------------------------------------------


class Codes(Enum):
    LIMIT = "RATE_LIMITED"
    UNAVAILABLE = ()


@pytest.mark.parametrize(
    ("metadata", "error", "code"),
    [
        ({"code": "UNAVAILABLE"}, None, "UNAVAILABLE"),
        ({"code": "card.expired"}, None, "card.expired"),
        ({"code": 404}, None, "NOT_FOUND"),
        ({"code": 503}, None, "UNAVAILABLE"),
        ({"code": Codes.LIMIT}, None, "RATE_LIMITED"),
        ({"code": Codes.UNAVAILABLE}, None, "UNAVAILABLE"),
        ({"code": "GONE"}, ApiError(code="UNAVAILABLE"), "GONE"),
        ({}, ApiError(code="UNAVAILABLE"), "UNAVAILABLE"),
        ({}, ApiError(code="ORDERS_SOLD_OUT"), "ORDERS_SOLD_OUT"),
        ({}, ApiError(code=429), "RATE_LIMITED"),
        ({}, ApiError(code="e3q8"), "INTERNAL_ERROR"),
        ({}, ApiError(code=lambda: 5), "INTERNAL_ERROR"),
        ({}, ApiError(), "INTERNAL_ERROR"),
        ({}, KeyError("x"), "INTERNAL_ERROR"),
        ({}, DeadlineExceeded(), "DEADLINE_EXCEEDED"),
        ({}, TimeoutError(), "DEPENDENCY_ERROR"),
        ({}, ConnectionResetError(), "DEPENDENCY_ERROR"),
        ({}, None, "FAILED"),
        ({"code": None}, None, "FAILED"),
        ({"code": ""}, None, "FAILED"),
        ({"code": []}, None, "FAILED"),
    ],
    ids=repr,
)
def test_a_failure_has_a_code(failed, metadata, error, code):
    assert code_for(failed(error=error, **metadata)) == code


def test_an_exception_can_be_given_a_code(failed, monkeypatch):
    class StorageFull(OSError):
        pass

    monkeypatch.setitem(causes, OSError, "UNAVAILABLE")

    assert code_for(failed(error=StorageFull())) == "UNAVAILABLE"
    assert code_for(failed(error=ConnectionError())) == "DEPENDENCY_ERROR"


def test_refused_inputs_are_the_fault_of_the_caller():
    assert code_for(Order.execute({})) == "INVALID_ARGUMENTS"


def test_a_forgotten_output_is_our_own_fault():
    assert code_for(Order.execute(amount=0)) == "INTERNAL_ERROR"


@pytest.mark.parametrize("strict", [False, True])
def test_a_failure_passed_on_has_the_code_of_the_first(failed, strict):
    inner = failed(code="UNAVAILABLE", retry_after=9)

    class Outer(Task[None]):
        def work(self) -> None:
            if strict:
                raise inner.task.Fault(inner)
            self.throw(inner)

    assert code_for(Outer.execute()) == "UNAVAILABLE"
    assert guidance_for(Outer.execute()) == Guidance(True, "fixed", 9)


def test_a_task_that_throws_a_failure_may_give_it_another_code(failed):
    inner = failed(code="UNAVAILABLE", retry_after=9)

    class Outer(Task[None]):
        def work(self) -> None:
            self.throw(inner, code="NOT_FOUND")

    assert code_for(Outer.execute()) == "NOT_FOUND"
    assert guidance_for(Outer.execute()) == REFUSED


# -- guidance for a result ------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "error", "guidance"),
    [
        ({"code": "UNAVAILABLE"}, None, UNAVAILABLE),
        ({"code": "NOT_FOUND"}, None, REFUSED),
        ({"code": "ORDERS_SOLD_OUT"}, None, REFUSED),
        ({}, None, REFUSED),
        ({}, ApiError(code="UNAVAILABLE"), UNAVAILABLE),
        ({}, KeyError(), INTERNAL_ERROR),
        ({}, DeadlineExceeded(), Guidance(True, "immediate", None, 1)),
        ({"code": "UNAVAILABLE", "guidance": REFUSED}, None, REFUSED),
        ({"code": "NOT_FOUND", "guidance": UNAVAILABLE}, None, UNAVAILABLE),
        ({"code": "UNAVAILABLE", "retry_after": 9}, None, Guidance(True, "fixed", 9)),
        ({}, ApiError(guidance=UNAVAILABLE), UNAVAILABLE),
        ({}, ApiError(retry_after="9"), Guidance(True, "fixed", 9)),
        ({"code": "UNAVAILABLE", "retry_after": "?"}, None, UNAVAILABLE),
    ],
    ids=repr,
)
def test_every_failure_has_guidance(failed, metadata, error, guidance):  # R-003-12
    assert guidance_for(failed(error=error, **metadata)) == guidance


def test_a_success_and_a_skip_have_none():  # R-003-3
    class Skip(Task[None]):
        def work(self) -> None:
            self.skip("nothing to do", code="UNAVAILABLE")

    assert guidance_for(Order.execute(amount=1)) is None
    assert guidance_for(Skip.execute()) is None


@pytest.mark.parametrize("spelling", ["reset", "resets_in"])
def test_the_reset_of_a_rate_limit_takes_precedence_over_the_row(
    failed, spelling
):  # R-003-13
    result = failed(code="RATE_LIMITED")
    limit = rate_limit(spelling)

    assert guidance_for(result) == RATE_LIMITED
    assert guidance_for(result, extensions=[limit]) == Guidance(True, "fixed", 45)


def test_explicit_guidance_takes_precedence_over_the_reset(failed):  # R-003-12
    result = failed(code="RATE_LIMITED", retry_after=90)
    guidance = guidance_for(result, extensions=[rate_limit()])

    assert guidance == Guidance(True, "fixed", 90)


@pytest.mark.parametrize(
    ("code", "limit", "guidance"),
    [
        ("UNAVAILABLE", rate_limit(remaining=5), UNAVAILABLE),
        ("UNAVAILABLE", rate_limit(), Guidance(True, "fixed", 45)),
        ("RATE_LIMITED", rate_limit(remaining=5), Guidance(True, "fixed", 45)),
        (
            "RATE_LIMITED",
            rate_limit(value=2, unit="minute"),
            Guidance(True, "fixed", 120),
        ),
        ("RATE_LIMITED", rate_limit(value="soon"), RATE_LIMITED),
        ("NOT_FOUND", rate_limit(), REFUSED),
    ],
)
def test_the_reset_counts_where_the_limit_is_used_up(failed, code, limit, guidance):
    assert guidance_for(failed(code=code), extensions=[limit]) == guidance


def test_the_scope_that_is_used_up_longest_counts(failed):
    scopes = {
        "global": rate_limit(remaining=9, value=300)["data"],
        "service": rate_limit("resets_in", value=20)["data"],
        "user": rate_limit("resets_in", value=30)["data"],
    }
    entry = {"urn": "urn:forrst:ext:rate-limit", "data": {"scopes": scopes}}
    guidance = guidance_for(failed(code="RATE_LIMITED"), extensions=[entry])

    assert guidance == Guidance(True, "fixed", 30)


# -- responses ------------------------------------------------------------------------


def test_a_failure_becomes_the_response_of_the_seed(failed):  # R-003-1, R-003-2
    result = failed("Service temporarily unavailable", code="UNAVAILABLE")

    assert respond(result, id="req_123") == {
        "protocol": {"name": "forrst", "version": "0.1.0"},
        "id": "req_123",
        "result": None,
        "errors": [
            {"code": "UNAVAILABLE", "message": "Service temporarily unavailable"}
        ],
        "extensions": [
            {
                "urn": "urn:forrst:ext:retry",
                "data": {
                    "allowed": True,
                    "strategy": "exponential",
                    "after": {"value": 1, "unit": "second"},
                    "max_attempts": 5,
                },
            }
        ],
    }


def test_a_final_failure_says_so(failed):  # R-003-4
    result = failed("Invalid email format", code="INVALID_ARGUMENTS")

    assert respond(result, id="req_error")["extensions"] == [
        {"urn": URN, "data": {"allowed": False}}
    ]


def test_a_success_has_no_entry():  # R-003-3
    others = [rate_limit(remaining=5)]

    assert respond(Order.execute(amount=3), id="a") == {
        "protocol": {"name": "forrst", "version": "0.1.0"},
        "id": "a",
        "result": 3,
    }
    response = respond(Order.execute(amount=3), extensions=others, guidance=REFUSED)
    assert response["extensions"] == others


def test_a_skip_is_no_failure():
    class Skip(Task[None]):
        def work(self) -> None:
            self.skip("already paid", retry_after=5)

    response = respond(Skip.execute(), id="a")
    assert (response["result"], set(response)) == (None, {"protocol", "id", "result"})


def test_a_rate_limited_response_is_that_of_the_seed(failed):  # R-003-13
    limit = rate_limit()
    response = respond(failed(code="RATE_LIMITED"), extensions=[limit])

    assert response["extensions"] == [
        limit,
        {
            "urn": URN,
            "data": {
                "allowed": True,
                "strategy": "fixed",
                "after": {"value": 45, "unit": "second"},
            },
        },
    ]


def test_other_extensions_are_kept_in_order_and_meta_too(failed):  # R-003-3
    others = [{"urn": "b", "data": {}}, {"urn": "a", "data": {"x": 1}}]
    response = respond(failed(), extensions=others, meta={"node": 3})

    assert response["extensions"][:2] == others
    assert len(entries(response)) == 1
    assert response["meta"] == {"node": 3}


def test_guidance_can_be_given_with_the_response(failed):  # R-003-12
    custom = Guidance(True, "exponential", 5, 10)
    (entry,) = entries(respond(failed(code="NOT_FOUND"), guidance=custom))

    assert entry["data"] == custom.to_wire()


def test_a_wait_in_the_details_agrees_with_the_entry(failed):  # R-003-14
    details = {"limit": 100, "retry_after": 23}
    result = failed(code="RATE_LIMITED", details=details)
    for guidance, value in ((None, 23), (Guidance(True, "fixed", 31), 31)):
        response = respond(result, guidance=guidance)
        (error,), (entry,) = response["errors"], entries(response)

        assert error["details"]["limit"] == 100
        assert error["details"]["retry_after"] == entry["data"]["after"]
        assert entry["data"]["after"] == {"value": value, "unit": "second"}
    assert details == {"limit": 100, "retry_after": 23}


def test_each_refused_input_is_an_error_with_a_pointer():
    response = respond(Order.execute({"items": [{"a": "x"}]}), id="a")

    assert [error["code"] for error in response["errors"]] == ["INVALID_ARGUMENTS"] * 2
    assert [error["source"]["pointer"] for error in response["errors"]] == [
        "/call/arguments/amount",
        "/call/arguments/items/0/a",
    ]
    assert response["errors"][0]["message"] == "amount is required"
    assert entries(response) == [{"urn": URN, "data": {"allowed": False}}]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (KeyError("password"), "Internal error"),
        (ConnectionError("db-1.internal refused"), "Dependency error"),
        (ApiError("Too many orders", code="RATE_LIMITED"), "Too many orders"),
        (ApiError("", code="RATE_LIMITED"), "Rate limited"),
    ],
)
def test_only_an_exception_with_a_code_speaks_to_callers(failed, error, message):
    (error,) = respond(failed(error=error))["errors"]

    assert error["message"] == message


@pytest.mark.parametrize(
    ("error", "code", "guidance"),
    [
        (OperationConflict("id", "a", "b"), "IDEMPOTENCY_CONFLICT", REFUSED),
        (OperationExpired("id"), "IDEMPOTENCY_EXPIRED", REFUSED),
        (Indeterminate("id", "it was killed"), "OUTCOME_UNKNOWN", REFUSED),
        (StillRunning("id", 5), "IDEMPOTENCY_PROCESSING", Guidance(True, "fixed", 1)),
        (StoreUnavailable("app.db is locked", "Wait"), "UNAVAILABLE", UNAVAILABLE),
        (CommitUncertain("app.db was lost", "Look"), "OUTCOME_UNKNOWN", REFUSED),
    ],
    ids=repr,
)
def test_an_exception_of_ours_has_a_code_but_its_text_is_not_for_callers(
    failed, error, code, guidance
):
    result = failed(error=error)
    (told,) = respond(result)["errors"]

    assert (told["code"], guidance_for(result)) == (code, guidance)
    assert told["message"] == code.replace("_", " ").capitalize()


def test_a_response_can_be_written_as_json(failed):
    response = respond(failed(code="RATE_LIMITED", retry_after=0.5))

    assert json.loads(json.dumps(response)) == response


# -- responses made by others ---------------------------------------------------------


def replayed(*extensions):
    """A failure as it comes from a cache, or from an extension that answered."""
    return {
        "protocol": {"name": "forrst", "version": "0.1.0"},
        "id": "req_2",
        "result": None,
        "errors": [{"code": "IDEMPOTENCY_PROCESSING", "message": "wait"}],
        "extensions": list(extensions),
        "meta": {"node": 3},
    }


def test_a_response_made_elsewhere_gets_guidance_too():  # R-003-15, R-003-16
    idempotency = {"urn": "urn:forrst:ext:idempotency", "data": {"status": "cached"}}
    before = replayed(idempotency)
    response = with_guidance(before)

    assert response == {**before, "extensions": [idempotency, *entries(response)]}
    assert entries(response)[0]["data"] == Guidance(True, "fixed", 1, 3).to_wire()
    assert before == replayed(idempotency)


def test_a_response_without_extensions_gets_them():
    response = with_guidance({"errors": [{"code": "GONE"}]})

    assert response["extensions"] == [{"urn": URN, "data": {"allowed": False}}]


def test_completing_twice_changes_nothing():  # R-003-3, R-003-15
    once = with_guidance(replayed())

    assert with_guidance(once) == once


def test_of_several_entries_the_first_is_kept():  # R-003-3
    first = {"urn": URN, "data": Guidance(True, "fixed", 7).to_wire()}
    second = {"urn": URN, "data": {"allowed": False}}

    assert entries(with_guidance(replayed(first, second))) == [first]


def test_an_unreadable_entry_is_replaced():
    broken = {"urn": URN, "data": {"allowed": "perhaps"}}
    (entry,) = entries(with_guidance(replayed(broken)))

    assert entry["data"] == Guidance(True, "fixed", 1, 3).to_wire()


def test_an_entry_is_taken_off_a_success():
    success = {"id": "a", "result": 1, "extensions": [{"urn": URN, "data": {}}]}

    assert with_guidance(success) == {"id": "a", "result": 1, "extensions": []}
    assert with_guidance({"result": 1, "errors": None}) == {"result": 1, "errors": None}


def test_the_first_of_several_errors_decides():  # R-003-5
    errors = [{"code": "NOT_FOUND"}, {"code": "UNAVAILABLE"}]

    (entry,) = entries(with_guidance({"errors": errors}))
    assert entry["data"] == {"allowed": False}
    (entry,) = entries(with_guidance({"errors": errors[::-1]}))
    assert entry["data"] == UNAVAILABLE.to_wire()


def test_a_wait_in_the_details_counts():  # R-003-14
    details = {"retry_after": {"value": 2, "unit": "minute"}}
    response = with_guidance({"errors": [{"code": "RATE_LIMITED", "details": details}]})

    assert entries(response)[0]["data"]["after"] == {"value": 120, "unit": "second"}


# -- HTTP -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("RATE_LIMITED", 429),
        ("UNAVAILABLE", 503),
        ("SERVER_MAINTENANCE", 503),
        ("FUNCTION_MAINTENANCE", 503),
        ("FUNCTION_DISABLED", 503),
        ("DEPENDENCY_ERROR", 502),
        ("INTERNAL_ERROR", 500),
        ("IDEMPOTENCY_CONFLICT", 409),
        ("IDEMPOTENCY_PROCESSING", 409),
        ("LOCK_TIMEOUT", 423),
        ("LOCK_ACQUISITION_FAILED", 423),
        ("CANCELLED", 499),
        ("DEADLINE_EXCEEDED", 504),
        ("NOT_FOUND", 404),
        ("ORDERS_SOLD_OUT", 400),
    ],
)
def test_an_error_has_an_http_status(failed, code, status):  # R-003-33
    assert to_http(respond(failed(code=code)))[0] == status


def test_several_errors_are_a_bad_request():  # R-003-33
    errors = [{"code": "RATE_LIMITED"}, {"code": "GONE"}]

    assert to_http(with_guidance({"errors": errors}))[0] == 400


def test_a_success_is_one_for_http_too():
    assert to_http(respond(Order.execute(amount=1))) == (200, {})


@pytest.mark.parametrize(
    ("metadata", "headers"),
    [
        ({"code": "RATE_LIMITED"}, {"Retry-After": "60"}),
        ({"code": "SERVER_MAINTENANCE"}, {"Retry-After": "60"}),
        ({"code": "RATE_LIMITED", "retry_after": 4.2}, {"Retry-After": "5"}),
        ({"code": "RATE_LIMITED", "guidance": Guidance(True)}, {"Retry-After": "1"}),
        ({"code": "RATE_LIMITED", "retry_after": 0}, {"Retry-After": "0"}),
        ({"code": "UNAVAILABLE"}, {"Retry-After": "1"}),
        ({"code": "DEADLINE_EXCEEDED"}, {}),
        ({"code": "NOT_FOUND"}, {}),
    ],
    ids=repr,
)
def test_retry_after_is_in_whole_seconds(failed, metadata, headers):  # R-003-33
    response = respond(failed(**metadata))

    assert to_http(response)[1] == headers


def test_what_a_server_answers_a_client_reads_again(failed):
    response = respond(failed(code="UNAVAILABLE"))
    status, headers = to_http(response)

    assert Guidance.from_http(status, headers, response) == UNAVAILABLE
    assert Guidance.from_http(status, headers) == Guidance(True, "fixed", 1)
