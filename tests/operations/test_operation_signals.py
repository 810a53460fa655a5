"""Five signals tell what becomes of operations."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack, contextmanager

import pytest
from ledgers import Died, die_after_admission, on_each_store, row_of

from cmdx import Task
from cmdx.operations import (
    OperationState,
    operation,
    operation_admitted,
    operation_indeterminate,
    operation_released,
    operation_replayed,
    operation_sealed,
)
from cmdx.telemetry import connect

SIGNALS = [
    operation_admitted,
    operation_sealed,
    operation_released,
    operation_replayed,
    operation_indeterminate,
]


@contextmanager
def heard(note=None):
    """Yield a list of all that is sent: name, sender and payload."""
    sent = []
    with ExitStack() as stack:
        for signal in SIGNALS:

            def receive(sender, signal=signal, **payload):
                sent.append((signal.name, sender, payload))
                if note is not None:
                    note(signal.name)

            stack.enter_context(signal.connected_to(receive))
        yield sent


class Charge(Task[int]):
    order: int = 7

    def work(self):
        return 7


def names_of(sent):
    return [name for name, _, _ in sent]


@on_each_store
def test_an_operation_is_announced_when_it_is_admitted_and_when_it_is_sealed(
    session, call
):
    task = Charge()
    with heard() as sent:
        result = call(session, task, id="a")
    (admitted, first, begin), (sealed, second, end) = sent
    assert (admitted, sealed) == ("operation_admitted", "operation_sealed")
    assert first is second is Charge
    assert begin.keys() == {"task", "operation"}
    assert begin["task"] is end["task"] is task
    assert begin["operation"].state is OperationState.LIVE
    assert end == {"task": task, "operation": result.operation, "result": result}


def test_a_duplicate_is_announced_as_replayed(session, call):
    call(session, Charge(), id="a")
    task = Charge()
    with heard() as sent:
        result = call(session, task, id="a")
    payload = {"task": task, "operation": result.operation, "result": result}
    assert sent == [("operation_replayed", Charge, payload)]


@pytest.mark.parametrize(
    ("persist", "signal"),
    [(False, "operation_released"), (True, "operation_indeterminate")],
)
def test_an_end_without_an_outcome_is_announced(session, persist, signal):
    @operation(persist=persist)
    class Interrupted(Task[None], name="operations.interrupted"):
        def work(self):
            raise KeyboardInterrupt

    task = Interrupted()
    with heard() as sent, pytest.raises(KeyboardInterrupt):
        session.run(task, id="a")
    assert names_of(sent) == ["operation_admitted", signal]
    assert sent[1][1:] == (Interrupted, {"task": task, "operation": session.get("a")})


@on_each_store
def test_signals_are_sent_after_the_commit(session, store, call):
    states = []
    with heard(lambda _name: states.append(row_of(store, "a"))):
        for _ in range(2):
            call(session, Charge(), id="a")
    assert states == ["live", "sealed", "sealed"]


def test_refusals_send_nothing(session, call):
    call(session, Charge(), id="a")
    with heard() as sent:
        call(session, Charge(order=8), id="a")
        call(session, Charge(order="seven"), id="b")
    assert sent == []


@pytest.mark.parametrize("error", [ValueError, LookupError])
def test_a_receiver_that_raises_changes_nothing(session, call, caplog, error):
    def fail(_name):
        raise error

    with caplog.at_level(logging.ERROR, logger="cmdx"), heard(fail) as sent:
        results = [call(session, Charge(), id="a") for _ in range(2)]
    assert [result.value for result in results] == [7, 7]
    assert len(sent) == 3
    assert session.get("a").state is OperationState.SEALED


def test_a_receiver_that_raises_does_not_hide_an_interrupt(session):
    def fail(_name):
        raise ValueError

    class Interrupted(Task[None], name="operations.interrupted"):
        def work(self):
            raise KeyboardInterrupt

    with heard(fail), pytest.raises(KeyboardInterrupt):
        session.run(Interrupted(), id="a")
    assert session.get("a").state is OperationState.RELEASED


def interrupt(*_, **__):
    raise KeyboardInterrupt


def test_an_interrupt_in_a_receiver_of_the_seal_changes_no_seal(session):
    with operation_sealed.connected_to(interrupt), pytest.raises(KeyboardInterrupt):
        session.run(Charge(), id="a")
    assert session.run(Charge(), id="a").value == 7


def test_an_interrupt_in_a_receiver_of_the_admission_leaves_nothing_live(session):
    with operation_admitted.connected_to(interrupt), pytest.raises(KeyboardInterrupt):
        session.run(Charge(), id="a")
    assert session.get("a").state is OperationState.RELEASED


def test_the_sender_is_the_class_itself_and_connect_knows_its_subclasses(session):
    class Child(Charge, name="operations.child"): ...

    seen = []
    disconnect = connect(
        operation_sealed, lambda sender, **_: seen.append(sender), task=Charge
    )
    try:
        session.run(Charge(), id="a")
        session.run(Child(), id="b")
    finally:
        disconnect()
    assert seen == [Charge, Child]


def test_nothing_is_built_while_nobody_listens(session):
    assert not any(signal.receivers for signal in SIGNALS)
    assert session.run(Charge(), id="a").value == 7


def test_a_receiver_may_run_operations_itself(session, call):
    def audit(_sender, operation, **_payload):
        if operation.id == "a":
            session.run(Charge(order=1), id="audit")

    with operation_sealed.connected_to(audit):
        call(session, Charge(), id="a")
    assert session.get("audit").state is OperationState.SEALED


def test_an_owner_that_died_is_announced_by_whoever_finds_out(session, instant, store):
    @operation(persist=True)
    class Lost(Task[None], name="operations.lost"):
        def work(self):
            return None

    die_after_admission(store)
    with pytest.raises(Died):
        session.run(Lost(), id="a")
    store.at = lambda _point: None
    instant.advance(31)
    with heard() as sent:
        asyncio.run(session.arun(Lost(), id="a"))
    assert names_of(sent) == ["operation_indeterminate"]
