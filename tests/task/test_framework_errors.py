"""
Errors of the framework, before a run has begun and after.

Before, they leave ``execute``: the program is wrong. Once the run has begun they are
its outcome like any other exception, so that what was done is undone.
"""

from __future__ import annotations

import asyncio

import pytest

from cmdx import (
    CallbackError,
    CmdxError,
    DefinitionError,
    DeprecatedTaskError,
    FinishedTaskError,
    ImplementationError,
    MiddlewareError,
    NoValueError,
    Task,
    UnknownContextKey,
    UnknownEntryError,
    around_execution,
    middleware,
    optional,
    output,
    required,
    retriers,
    retry_on,
    task_executed,
    task_started,
)
from cmdx.exceptions import AsyncTaskError
from cmdx.run.lifecycle import drive


class Fine(Task[None]):
    def work(self):
        return None


class Skipped(Task[None]):
    def work(self):
        self.skip()


class Abstract(Task[None]):
    pass


class Awaiting(Task[None]):
    async def work(self):
        await asyncio.sleep(0)


class Gone(Fine, deprecated="error"):
    pass


@retry_on(TimeoutError, jitter="exponental")
class Misspelt(Fine):
    pass


class Narrow(Fine):
    name: str


@middleware(lambda _: None)
class Unwrapped(Fine):
    pass


class Unhooked(Fine):
    @around_execution
    def wrap(self):
        return None


def run_twice(_task):
    invocation = Fine()
    invocation.run()
    invocation.run()


BEFORE = {
    "no work": (lambda _: Abstract.execute(), ImplementationError),
    "awaits": (lambda _: Awaiting.execute(), AsyncTaskError),
    "deprecated": (lambda _: Gone.execute(), DeprecatedTaskError),
    "jitter": (lambda _: Misspelt.execute(), UnknownEntryError),
    "keyword": (lambda _: Narrow.execute(nmae="Ada"), TypeError),
    "twice": (run_twice, FinishedTaskError),
    "source": (lambda _: Fine.execute(3), TypeError),
}
MEANWHILE = {
    "key": (lambda task: task.context.nmae, UnknownContextKey),
    "value": (lambda _: Skipped.execute().value, NoValueError),
    "lookup": (lambda _: retriers.lookup("exponental"), UnknownEntryError),
    "declaration": (lambda _: retry_on(limit=-1), DefinitionError),
    "halt": (lambda _: Fine().fail("never started"), FinishedTaskError),
    "middleware": (lambda _: Unwrapped.execute_or_raise(), MiddlewareError),
    "around": (lambda _: Unhooked.execute_or_raise(), CallbackError),
    "given": (lambda task: task.given("nothing"), DefinitionError),
}


@pytest.mark.parametrize("mistake", BEFORE)
def test_a_mistake_before_the_run_leaves_execute(mistake):
    make, error = BEFORE[mistake]

    with pytest.raises(error):
        make(None)


@pytest.mark.parametrize("enter", ["execute", "execute_or_raise", "aexecute"])
def test_nothing_of_a_run_that_is_refused_has_begun(enter):
    sent = []

    def receiver(sender, **_):
        sent.append(sender)

    with (
        task_started.connected_to(receiver),
        task_executed.connected_to(receiver),
        pytest.raises(CmdxError),
    ):
        refused = getattr(Gone, enter)()
        if enter == "aexecute":
            asyncio.run(refused)
    assert sent == []
    assert Fine.execute().root


@pytest.mark.parametrize("mistake", [*BEFORE, *MEANWHILE])
def test_a_mistake_in_a_run_is_its_failed_result(run, lines, mistake):
    make, error = (BEFORE | MEANWHILE)[mistake]
    raised, sent = [], []

    class Charge(Task[None]):
        def work(self):
            self.context.charged = True
            try:
                make(self)
            except Exception as error:
                raised.append(error)
                raise

        def rollback(self):
            self.context.charged = False

    def receiver(_sender, *, task, result):
        if isinstance(task, Charge):
            sent.append(result)

    with task_executed.connected_to(receiver):
        result = run(Charge)

    assert result.failed
    assert isinstance(result.cause, error)
    assert result.cause is raised[0]
    assert result.reason == f"[{type(result.cause).__name__}] {result.cause}"
    assert (result.context.charged, result.rolled_back) == (False, True)
    assert sent == [result]
    assert lines[-1]["reason"] == result.reason


@pytest.mark.usefixtures("instant")
def test_a_mistake_anywhere_in_a_run_is_its_failed_result(run, ending):
    result = run(ending(lambda task: task.context.nmae), name="Ada")

    assert isinstance(result.cause, UnknownContextKey)
    assert "did you mean 'name'?" in result.reason


@pytest.mark.parametrize("mistake", MEANWHILE)
def test_a_mistake_is_raised_as_it_is_by_a_strict_run(mistake):
    make, error = MEANWHILE[mistake]

    class Charge(Task[None]):
        def work(self):
            make(self)

    with pytest.raises(error) as raised:
        Charge.execute_or_raise()

    assert type(raised.value) is error


def nowhere(task):
    return task.context.nowhere


@pytest.mark.parametrize(
    "field",
    [
        required(source=nowhere),
        required(if_=nowhere),
        optional(factory=lambda: Skipped.execute().value),
        output(if_=nowhere),
    ],
    ids=["source", "input gate", "factory", "output gate"],
)
def test_a_mistake_in_a_field_is_the_failed_result(run, field):
    names = {"name": field, "__annotations__": {"name": str}, "__module__": __name__}
    result = run(type("Named", (Fine,), names))

    assert isinstance(result.cause, UnknownContextKey | NoValueError)
    assert result.errors.to_dict() == {}
    assert result.stopped != "cancelled"


def test_a_mistake_in_the_correlation_id_is_the_failed_result(run):
    class Correlated(Fine, correlation_id=nowhere):
        pass

    result = run(Correlated)

    assert isinstance(result.cause, UnknownContextKey)
    assert result.xid is None


def test_a_mistake_in_a_rollback_is_kept_as_its_error(run):
    class Charge(Task[None]):
        def work(self):
            self.fail("declined")

        def rollback(self):
            return self.context.nowhere

    result = run(Charge)

    assert result.reason == "declined"
    assert isinstance(result.rollback_error, UnknownContextKey)


def test_a_synchronous_run_that_would_be_suspended_is_refused_and_closed():
    closed = []

    async def suspended():
        try:
            await asyncio.sleep(0)
        finally:
            closed.append(True)

    steps = suspended()
    with pytest.raises(TypeError, match="aexecute"):
        drive(steps)
    assert closed == [True]


def test_a_success_whose_errors_were_only_looked_at_has_empty_metadata(run):
    class Looking(Task[None]):
        def work(self):
            assert not self.errors

    result = run(Looking)

    assert result.success
    assert result.metadata == {}
    assert result._record.outcome.metadata == {}
