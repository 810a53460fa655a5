"""What happens when a task runs, and in which order."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack

import pytest
import structlog

from cmdx import (
    Fault,
    Status,
    Task,
    after_execution,
    around_execution,
    before_execution,
    before_validation,
    middleware,
    on_complete,
    on_failed,
    on_interrupted,
    on_ko,
    on_ok,
    on_skipped,
    on_success,
    retry_on,
    task_deprecated,
    task_executed,
    task_retried,
    task_rolled_back,
    task_started,
)

ENDS = {
    "success": lambda _: None,
    "skipped": lambda task: task.skip("nothing to do"),
    "failed": lambda task: task.fail("empty shelf"),
}

COMPLETION = {
    "success": ["after_execution", "on_complete", "on_success", "on_ok"],
    "skipped": ["after_execution", "on_interrupted", "on_skipped", "on_ok", "on_ko"],
    "failed": ["after_execution", "on_interrupted", "on_failed", "on_ko"],
}


@pytest.fixture
def events():
    """Note down all signals and log lines; tasks add what they do."""
    noted = []

    def note_line(_logger, _method, _line):
        noted.append("log line")
        raise structlog.DropEvent

    with ExitStack() as stack:
        for signal in (task_started, task_retried, task_rolled_back, task_executed):

            def receiver(_sender, *, name=signal.name, **_payload):
                noted.append(name)

            stack.enter_context(signal.connected_to(receiver))
        stack.callback(structlog.reset_defaults)
        structlog.configure(processors=[note_line])
        yield noted


class Hooked(Task[None]):
    """Note down each callback."""

    def note(self, event):
        self.context.events.append(event)

    @on_ko
    def note_ko(self):
        self.note("on_ko")

    @on_ok
    def note_ok(self):
        self.note("on_ok")

    @on_failed
    def note_failed(self):
        self.note("on_failed")

    @on_skipped
    def note_skipped(self):
        self.note("on_skipped")

    @on_success
    def note_success(self):
        self.note("on_success")

    @on_interrupted
    def note_interrupted(self):
        self.note("on_interrupted")

    @on_complete
    def note_complete(self):
        self.note("on_complete")

    @after_execution
    def note_after(self):
        self.note("after_execution")

    @before_validation
    def note_validation(self):
        self.note("before_validation")

    @before_execution
    def note_execution(self):
        self.note("before_execution")


def outer(task):
    task.note("outer opens")
    yield
    task.note("outer closes")


def inner(task):
    task.note("inner opens")
    yield
    task.note("inner closes")


@retry_on(TimeoutError, limit=1, delay=0)
@middleware(outer, inner)
class Plain(Hooked, deprecated=lambda task: task.note("deprecation")):
    def work(self):
        self.note(f"work {self.attempt}")
        if self.attempt == 0:
            raise TimeoutError
        ENDS[self.context.end](self)

    def rollback(self):
        self.note("rollback")

    @around_execution
    def wrap(self):
        self.note("around opens")
        yield
        self.note("around closes")


async def aouter(task):
    await asyncio.sleep(0)
    task.note("outer opens")
    yield
    await asyncio.sleep(0)
    task.note("outer closes")


@retry_on(TimeoutError, limit=1, delay=0)
@middleware(aouter, inner)
class Awaiting(Hooked, deprecated=lambda task: task.note("deprecation")):
    async def work(self):
        self.note(f"work {self.attempt}")
        await asyncio.sleep(0)
        if self.attempt == 0:
            raise TimeoutError
        ENDS[self.context.end](self)

    async def rollback(self):
        await asyncio.sleep(0)
        self.note("rollback")

    @around_execution
    async def wrap(self):
        await asyncio.sleep(0)
        self.note("around opens")
        yield
        await asyncio.sleep(0)
        self.note("around closes")

    async def note_execution(self):
        await asyncio.sleep(0)
        self.note("before_execution")

    async def note_after(self):
        await asyncio.sleep(0)
        self.note("after_execution")

    async def note_ko(self):
        await asyncio.sleep(0)
        self.note("on_ko")


def expected_order(end):
    rolled_back = ["rollback", "task_rolled_back"] if end == "failed" else []
    return [
        "outer opens",
        "inner opens",
        "task_started",
        "deprecation",
        "before_execution",
        "before_validation",
        "around opens",
        "work 0",
        "task_retried",
        "work 1",
        *rolled_back,
        "around closes",
        *COMPLETION[end],
        "inner closes",
        "outer closes",
        "task_executed",
        "log line",
    ]


# -- the order ----------------------------------------------------------------------


@pytest.mark.parametrize("end", ENDS)
def test_everything_happens_in_this_order(run, events, end):
    result = run(Plain, events=events, end=end)

    assert result.status == end
    assert events == expected_order(end)


@pytest.mark.parametrize("end", ENDS)
def test_everything_happens_in_the_same_order_when_all_of_it_awaits(events, end):
    result = asyncio.run(Awaiting.aexecute(events=events, end=end))

    assert result.status == end
    assert events == expected_order(end)


def test_a_task_without_anything_around_it_still_starts_works_and_is_logged(
    run, events
):
    class Bare(Task[None]):
        def work(self):
            events.append("work")

    run(Bare)

    assert events == ["task_started", "work", "task_executed", "log line"]


def test_a_middleware_runs_inside_the_chain_from_its_first_line(run):
    parents = []

    class Child(Task[None]):
        def work(self):
            pass

    def nesting(_):
        parents.append(Child.execute().parent_tid)
        yield
        parents.append(Child.execute().parent_tid)

    @middleware(nesting)
    class Parent(Task[None]):
        def work(self):
            pass

    result = run(Parent)

    assert parents == [result.tid, result.tid]
    assert len(result.chain) == 3


def test_a_result_has_joined_the_chain_root_first_when_its_signal_is_sent(run):
    chains = []

    class Child(Task[None]):
        def work(self):
            pass

    class Parent(Task[None]):
        def work(self):
            Child.execute()

    def receiver(_sender, *, result, **_):
        chains.append([each.task.__name__ for each in result.chain])

    with task_executed.connected_to(receiver):
        run(Parent)

    assert chains == [["Child"], ["Parent", "Child"]]


# -- completion callbacks -----------------------------------------------------------


@pytest.mark.parametrize("end", ENDS)
def test_completion_callbacks_run_for_every_outcome(run, end):
    class Ends(Hooked):
        def work(self):
            ENDS[end](self)

    assert run(Ends, events=[]).context.events[2:] == COMPLETION[end]


def test_completion_callbacks_run_after_an_exception(run):
    class Raises(Hooked):
        def work(self):
            raise ValueError

    assert run(Raises, events=[]).context.events[2:] == COMPLETION["failed"]


def test_completion_callbacks_run_after_errors(run):
    class Invalid(Hooked):
        def work(self):
            self.errors.add("name", "is too long")

    assert run(Invalid, events=[]).context.events[2:] == COMPLETION["failed"]


def raise_error(_):
    raise ValueError("bad order")


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (lambda task: task.succeed("early"), "success"),
        (lambda task: task.skip("early"), "skipped"),
        (lambda task: task.fail("early"), "failed"),
        (raise_error, "failed"),
    ],
)
@pytest.mark.parametrize("place", ["note_execution", "note_validation"])
def test_completion_callbacks_run_when_a_callback_before_work_ended_the_run(
    run, place, end, status
):
    class Ends(Hooked):
        def work(self):
            self.note("work")

        def rollback(self):
            self.note("rollback")

    setattr(Ends, place, end)
    result = run(Ends, events=[])

    before = [] if place == "note_execution" else ["before_execution"]
    assert result.status == status
    assert result.context.events == [*before, *COMPLETION[status]]


def test_completion_callbacks_run_when_a_middleware_ended_the_run(run):
    def refuse(task):
        task.skip("not today")
        yield

    @middleware(outer, refuse, inner)
    class Refused(Hooked):
        def work(self):
            self.note("work")

    result = run(Refused, events=[])

    assert result.skipped
    assert result.context.events == [
        "outer opens",
        *COMPLETION["skipped"],
        "outer closes",
    ]


def test_completion_callbacks_run_when_the_deprecation_ended_the_run(run):
    class Old(Hooked, deprecated=lambda task: task.skip("too old")):
        def work(self):
            self.note("work")

    result = run(Old, events=[])

    assert result.skipped
    assert result.context.events == COMPLETION["skipped"]


METHODS = {
    "after_execution": "note_after",
    "on_complete": "note_complete",
    "on_interrupted": "note_interrupted",
    "on_success": "note_success",
    "on_skipped": "note_skipped",
    "on_failed": "note_failed",
    "on_ok": "note_ok",
    "on_ko": "note_ko",
}
CALLBACKS = [(end, event) for end in ENDS for event in COMPLETION[end]]


@pytest.mark.parametrize(("end", "event"), CALLBACKS)
@pytest.mark.parametrize(
    ("halt", "status"),
    [
        (lambda task: task.succeed("late", value=7), "success"),
        (lambda task: task.skip("late"), "skipped"),
        (lambda task: task.fail("late"), "failed"),
    ],
)
def test_a_halt_in_a_completion_callback_replaces_the_outcome_and_stops_the_rest(
    run, end, event, halt, status
):
    class Late(Hooked):
        def work(self):
            ENDS[end](self)

    setattr(Late, METHODS[event], halt)
    result = run(Late, events=[])

    assert (result.status, result.reason) == (status, "late")
    assert result.value_or(None) == (7 if status == "success" else None)
    before = COMPLETION[end][: COMPLETION[end].index(event)]
    assert result.context.events[2:] == before


@pytest.mark.parametrize(("end", "event"), CALLBACKS)
def test_an_exception_in_a_completion_callback_fails_the_task_and_stops_the_rest(
    run, end, event
):
    class Late(Hooked):
        def work(self):
            ENDS[end](self)

    setattr(Late, METHODS[event], raise_error)
    result = run(Late, events=[])

    assert (result.status, result.reason) == ("failed", "[ValueError] bad order")
    assert isinstance(result.cause, ValueError)
    before = COMPLETION[end][: COMPLETION[end].index(event)]
    assert result.context.events[2:] == before


def test_a_late_outcome_keeps_what_is_known_about_the_run(run):
    @retry_on(TimeoutError, limit=1, delay=0)
    class Late(Task[None]):
        def work(self):
            raise TimeoutError

        def rollback(self):
            raise ValueError("cannot undo")

        @on_failed
        def forgive(self):
            self.succeed("never mind")

    result = run(Late)

    assert (result.status, result.reason) == ("success", "never mind")
    assert (result.retries, len(result.attempts)) == (1, 2)
    assert result.rolled_back
    assert str(result.rollback_error) == "cannot undo"


# -- errors -------------------------------------------------------------------------


def test_errors_left_after_work_fail_the_task(run):
    class Invalid(Task[str]):
        def work(self):
            self.errors.add("name", "is too long")
            self.errors.add("age", "is no number")
            return "done"

    result = run(Invalid)

    assert (result.status, result.reason) == ("failed", str(result.errors))
    assert "name is too long" in result.reason
    assert "age is no number" in result.reason
    assert result.cause is None


def add_error(task):
    task.errors.add("name", "is too long")


def add_error_around(task):
    task.errors.add("name", "is too long")
    yield


@pytest.mark.parametrize(
    "task",
    [
        type("Before", (Hooked,), {"check": before_execution(add_error)}),
        type("Validation", (Hooked,), {"check": before_validation(add_error)}),
        type("Around", (Hooked,), {"check": around_execution(add_error_around)}),
        middleware(add_error_around)(type("Middleware", (Hooked,), {})),
    ],
)
def test_errors_found_before_work_fail_the_task_before_work(run, task):
    class Checked(task):
        def work(self):
            self.note("work")

    result = run(Checked, events=[])

    assert (result.status, result.reason) == ("failed", "name is too long")
    assert "work" not in result.context.events
    assert result.context.events[2:] == COMPLETION["failed"]


def test_errors_that_work_has_cleared_do_not_fail_it(run):
    class Recovers(Task[str]):
        def work(self):
            self.errors.add("name", "is too long")
            self.errors.clear()
            return "done"

    assert run(Recovers).value == "done"


def test_errors_do_not_hide_the_exception_that_work_raised(run):
    error = ValueError("bad order")

    class Raises(Task[None]):
        def work(self):
            self.errors.add("name", "is too long")
            raise error

    result = run(Raises)

    assert result.cause is error
    assert result.errors["name"] == ["is too long"]


# -- rollback -----------------------------------------------------------------------


def invalid(task):
    task.errors.add("name", "is too long")


class Child(Task[None]):
    def work(self):
        self.fail("empty shelf")


@pytest.mark.parametrize(
    "end",
    [
        raise_error,
        invalid,
        lambda task: task.fail("no"),
        lambda task: task.throw(Child.execute()),
        lambda _: Child.execute_or_raise(),
    ],
)
def test_a_failed_task_is_rolled_back_once(run, end):
    calls = []

    class Undo(Task[None]):
        def work(self):
            end(self)

        def rollback(self):
            calls.append(self.attempt)

    result = run(Undo)

    assert result.failed
    assert result.rolled_back
    assert result.rollback_error is None
    assert calls == [0]


@pytest.mark.parametrize("end", ["success", "skipped"])
def test_a_task_that_did_not_fail_is_not_rolled_back(run, end):
    class Keep(Task[None]):
        def work(self):
            ENDS[end](self)

        def rollback(self):
            self.fail("must not be called")

    result = run(Keep)

    assert result.status == end
    assert not result.rolled_back


def test_a_task_is_rolled_back_after_its_last_attempt_only(run):
    events = []

    @retry_on(TimeoutError, limit=2, delay=0)
    class Undo(Task[None]):
        def work(self):
            events.append(self.attempt)
            raise TimeoutError

        def rollback(self):
            events.append("rollback")

    run(Undo)

    assert events == [0, 1, 2, "rollback"]


def test_a_task_that_was_ended_before_its_work_is_not_rolled_back(run):
    class Early(Task[None]):
        def work(self):
            pass

        def rollback(self):
            pass

        @before_execution
        def refuse(self):
            self.fail("not today")

    assert not run(Early).rolled_back


def test_a_failure_without_a_rollback_is_not_rolled_back(run):
    assert not run(Child).rolled_back


def test_rollback_may_undo_what_is_in_the_context(run):
    class Undo(Task[None]):
        def work(self):
            self.context.reserved = True
            self.fail("no")

        def rollback(self):
            del self.context.reserved

    assert "reserved" not in run(Undo).context


def test_a_raising_rollback_is_noted_beside_the_failure_before_it(run):
    failure, error = ValueError("bad order"), OSError("cannot undo")
    events = []

    class Stuck(Hooked):
        def work(self):
            raise failure

        def rollback(self):
            raise error

    def receiver(_sender, **payload):
        events.append(payload["error"])

    with task_rolled_back.connected_to(receiver):
        result = run(Stuck, events=[])

    assert result.cause is failure
    assert result.rollback_error is error
    assert result.rolled_back
    assert events == [error]
    assert result.context.events[2:] == COMPLETION["failed"]


def test_an_interrupted_rollback_leaves_execute(run):
    class Interrupted(Task[None]):
        def work(self):
            self.fail("no")

        def rollback(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(Interrupted)


def test_an_async_rollback_is_awaited():
    error = OSError("cannot undo")

    class Undo(Task[None]):
        def work(self):
            self.fail("no")

        async def rollback(self):
            await asyncio.sleep(0)
            self.context.undone = True
            raise error

    result = asyncio.run(Undo.aexecute())

    assert result.context.undone
    assert result.reason == "no"
    assert result.rollback_error is error


def test_a_strict_run_with_a_raising_rollback_raises_the_failure_before_it():
    class Stuck(Task[None]):
        def work(self):
            self.fail("no")

        def rollback(self):
            raise OSError("cannot undo")

    with pytest.raises(Fault, match="no") as caught:
        Stuck.execute_or_raise()

    assert str(caught.value.result.rollback_error) == "cannot undo"


# -- receivers ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "signal",
    [task_started, task_deprecated, task_retried, task_rolled_back, task_executed],
    ids=lambda signal: signal.name,
)
def test_a_raising_receiver_is_reported_and_never_changes_the_run(run, signal, caplog):
    def receiver(_sender, **_payload):
        raise RuntimeError("deaf")

    with caplog.at_level(logging.ERROR, "cmdx"), signal.connected_to(receiver):
        result = run(Plain, events=[], end="failed")

    assert (result.status, result.reason) == (Status.FAILED, "empty shelf")
    assert result.rollback_error is None
    reported = [record for record in caplog.records if record.name == "cmdx"]
    assert [record.exc_info[0] for record in reported] == [RuntimeError]
