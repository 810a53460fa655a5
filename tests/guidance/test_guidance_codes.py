from __future__ import annotations

import pytest

from cmdx.guidance import Guidance, codes, guidance_for, statuses
from cmdx.guidance.codes import code_of_status

REFUSED = Guidance(False)

NEVER = """
    PARSE_ERROR INVALID_REQUEST INVALID_PROTOCOL_VERSION FUNCTION_NOT_FOUND
    VERSION_NOT_FOUND INVALID_ARGUMENTS SCHEMA_VALIDATION_FAILED
    EXTENSION_NOT_SUPPORTED EXTENSION_NOT_APPLICABLE UNAUTHORIZED FORBIDDEN NOT_FOUND
    CONFLICT GONE IDEMPOTENCY_CONFLICT ASYNC_OPERATION_NOT_FOUND
    ASYNC_OPERATION_FAILED ASYNC_CANNOT_CANCEL REPLAY_NOT_FOUND REPLAY_EXPIRED
    REPLAY_ALREADY_COMPLETE REPLAY_CANCELLED CANCELLED CANCELLATION_TOO_LATE
    LOCK_NOT_FOUND LOCK_OWNERSHIP_MISMATCH LOCK_ALREADY_RELEASED SIMULATION_NOT_FOUND
    """

RETRYABLE = """
    RATE_LIMITED UNAVAILABLE DEADLINE_EXCEEDED INTERNAL_ERROR DEPENDENCY_ERROR
    IDEMPOTENCY_PROCESSING SERVER_MAINTENANCE FUNCTION_MAINTENANCE FUNCTION_DISABLED
    LOCK_ACQUISITION_FAILED LOCK_TIMEOUT
"""


@pytest.mark.parametrize(
    ("code", "row"),
    [
        ("RATE_LIMITED", ("fixed", 60, 3)),
        ("UNAVAILABLE", ("exponential", 1, 5)),
        ("DEADLINE_EXCEEDED", ("immediate", None, 1)),
        ("INTERNAL_ERROR", ("exponential", 1, 3)),
        ("DEPENDENCY_ERROR", ("exponential", 2, 3)),
        ("IDEMPOTENCY_PROCESSING", ("fixed", 1, 3)),
        ("SERVER_MAINTENANCE", ("fixed", 60, 1)),
        ("FUNCTION_MAINTENANCE", ("fixed", 60, 1)),
        ("FUNCTION_DISABLED", ("fixed", 30, 2)),
    ],
)
def test_each_code_has_its_row(code, row):  # R-003-6, R-003-7
    assert Guidance.for_code(code) == Guidance(True, *row)


@pytest.mark.parametrize("code", ["LOCK_ACQUISITION_FAILED", "LOCK_TIMEOUT"])
def test_a_retryable_code_without_a_row_has_the_usual_one(code):  # R-003-8
    assert Guidance.for_code(code) == Guidance(True, "exponential", 1, 3)


@pytest.mark.parametrize(
    "code", ["VALIDATION_ERROR", "ORDERS_SOLD_OUT", "", "rate_limited", None, 429, []]
)
def test_an_unknown_code_is_not_to_be_tried_again(code):  # R-003-9
    assert Guidance.for_code(code) == REFUSED


@pytest.mark.parametrize(
    "code",
    NEVER.split(),
)
def test_some_codes_are_never_to_be_tried_again(code):  # R-003-10
    assert Guidance.for_code(code) == REFUSED


def test_nothing_else_is_to_be_tried_again():
    assert set(codes) == set(RETRYABLE.split())


def test_the_table_can_be_extended_and_changed(monkeypatch):
    monkeypatch.setitem(codes, "ORDERS_LOCKED", Guidance(True, "fixed", 2, 9))
    monkeypatch.setitem(codes, "UNAVAILABLE", Guidance(True, "fixed", 7))
    monkeypatch.delitem(codes, "INTERNAL_ERROR")

    assert Guidance.for_code("ORDERS_LOCKED") == Guidance(True, "fixed", 2, 9)
    assert Guidance.for_code("UNAVAILABLE") == Guidance(True, "fixed", 7)
    assert Guidance.for_code("INTERNAL_ERROR") == REFUSED


def test_the_table_can_be_replaced_for_one_question(failed):
    table = {"MINE": Guidance(True, "fixed", 2)}

    assert Guidance.for_code("MINE", codes=table) == Guidance(True, "fixed", 2)
    assert Guidance.for_code("RATE_LIMITED", codes=table) == REFUSED
    assert guidance_for(failed(code="MINE"), codes=table) == Guidance(True, "fixed", 2)
    assert Guidance.from_http(503, codes={}, by_status=True) == REFUSED


def test_every_retryable_code_has_an_http_status():
    assert set(codes) <= set(statuses)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (429, "RATE_LIMITED"),
        (500, "INTERNAL_ERROR"),
        (502, "DEPENDENCY_ERROR"),
        (503, "UNAVAILABLE"),
        (423, "LOCK_TIMEOUT"),
        (404, "NOT_FOUND"),
        (418, "INVALID_REQUEST"),
        (599, "INTERNAL_ERROR"),
        (200, None),
        (302, None),
        (600, None),
        (True, None),
        ("503", None),
    ],
)
def test_an_http_status_corresponds_to_a_code(status, code):
    assert code_of_status(status) == code
