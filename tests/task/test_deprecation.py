"""Tasks that should no longer be run."""

from __future__ import annotations

import asyncio
import inspect
import logging
import warnings

import pytest

from cmdx import (
    DeprecatedTaskError,
    Task,
    around_execution,
    before_execution,
    middleware,
    on_failed,
    on_skipped,
    retry_on,
    task_deprecated,
    task_started,
)


def this_line():
    """Return the number of the line that calls this."""
    return inspect.currentframe().f_back.f_lineno


# -- log ----------------------------------------------------------------------------


def test_log_writes_a_line_and_runs_the_task(run, lines):
    class Old(Task[str], deprecated="log"):
        def work(self):
            return "done"

    result = run(Old)

    assert result.value == "done"
    assert result.deprecated
    line = lines[0]
    assert (line["event"], line["log_level"]) == ("task_deprecated", "warning")
    assert (line["task"], line["tid"]) == (result.task.__qualname__, result.tid)


def test_log_goes_to_the_standard_logger_while_structlog_is_not_configured(run, caplog):
    class Old(Task[None], deprecated="log"):
        def work(self):
            pass

    with caplog.at_level(logging.WARNING, "cmdx"):
        run(Old)

    (record,) = caplog.records
    assert (record.name, record.levelname) == ("cmdx", "WARNING")
    assert "Old is deprecated" in record.getMessage()


# -- warn ---------------------------------------------------------------------------


class Old(Task[str], deprecated="warn"):
    """Warn, and do it."""

    def work(self):
        return "done"


def transparent(_task):
    yield


@middleware(transparent, transparent)
class OldWithManyFrames(Old):
    """Warn from deeper in."""

    @around_execution
    def wrap(self):
        yield


def test_warn_issues_a_deprecation_warning_and_runs_the_task(run):
    with pytest.warns(DeprecationWarning, match="Old is deprecated"):
        result = run(Old)

    assert result.value == "done"
    assert result.deprecated


@pytest.mark.parametrize("task", [Old, OldWithManyFrames])
@pytest.mark.parametrize(
    "enter",
    [
        lambda task: (this_line(), task.execute())[0],
        lambda task: (this_line(), task.execute_or_raise())[0],
        lambda task: (this_line(), task().run())[0],
    ],
)
def test_the_warning_points_at_the_line_of_the_caller(task, enter):
    with pytest.warns(DeprecationWarning, match="Old") as warned:
        line = enter(task)

    (warning,) = warned
    assert (warning.filename, warning.lineno) == (__file__, line)


@pytest.mark.parametrize("task", [Old, OldWithManyFrames])
def test_the_warning_of_an_async_run_points_at_the_line_that_awaits_it(task):
    async def main():
        line = this_line() + 1
        await task.aexecute()
        return line

    with pytest.warns(DeprecationWarning, match="Old") as warned:
        line = asyncio.run(main())

    (warning,) = warned
    assert (warning.filename, warning.lineno) == (__file__, line)


def test_the_warning_of_a_child_points_into_the_work_of_its_parent():
    class Parent(Task[int]):
        def work(self):
            line = this_line() + 1
            Old.execute()
            return line

    with pytest.warns(DeprecationWarning, match="Old") as warned:
        result = Parent.execute()

    (warning,) = warned
    assert (warning.filename, warning.lineno) == (__file__, result.value)


def test_a_warning_made_an_error_fails_the_task(run):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = run(Old)

    assert result.failed
    assert isinstance(result.cause, DeprecationWarning)


# -- error --------------------------------------------------------------------------


def test_error_refuses_to_run_the_task(run):
    calls = []

    class Gone(Task[None], deprecated="error"):
        def work(self):
            calls.append("work")

        @before_execution
        def prepare(self):
            calls.append("prepare")

    with pytest.raises(DeprecatedTaskError, match="Gone is deprecated"):
        run(Gone)
    assert calls == []


def test_error_is_raised_before_anything_of_the_run(run):
    events = []

    def guard(_task):
        events.append("middleware")
        yield

    @middleware(guard)
    class Gone(Task[None], deprecated="error", correlation_id=events.append):
        def work(self):
            pass

    with pytest.raises(DeprecatedTaskError):
        run(Gone)
    assert events == []


def test_error_fails_the_task_that_runs_such_a_task(run):
    class Gone(Task[None], deprecated="error"):
        def work(self):
            pass

    class Parent(Task[None]):
        def work(self):
            Gone.execute()

    result = run(Parent)

    assert isinstance(result.cause, DeprecatedTaskError)
    assert result.reason.startswith("[DeprecatedTaskError] ")


@pytest.mark.parametrize("deprecated", ["warn", "error"])
@pytest.mark.parametrize("option", ["deprecated_if", "deprecated_unless"])
def test_a_gate_that_raises_fails_the_run(run, deprecated, option):
    calls = []

    def ask(_task):
        raise OSError("no list of deprecated tasks")

    class Gone(Task[None], deprecated=deprecated, **{option: ask}):
        def work(self):
            calls.append("work")

        @on_failed
        def page(self):
            calls.append("page")

    result = run(Gone)

    assert result.reason == "[OSError] no list of deprecated tasks"
    assert calls == ["page"]


def test_a_gate_that_raises_before_the_run_may_halt_it(run):
    class Gone(Task[None], deprecated="error", deprecated_if="is_gone"):
        def is_gone(self):
            self.skip("use another one")

        def work(self):
            pass

    result = run(Gone)

    assert (result.status, result.reason) == ("skipped", "use another one")


def test_a_gate_that_answers_is_asked_once(run):
    asked = []

    class Gone(Task[str], deprecated="error", deprecated_if=asked.append):
        def work(self):
            return "done"

    assert run(Gone).value == "done"
    assert len(asked) == 1


# -- a callable ---------------------------------------------------------------------


def test_a_callable_is_called_with_the_task_once_whatever_the_retries(run):
    tids = []

    @retry_on(TimeoutError, limit=2, delay=0)
    class Custom(Task[str], deprecated=lambda task: tids.append(task.tid)):
        def work(self):
            if self.attempt < 2:
                raise TimeoutError
            return "done"

    result = run(Custom)

    assert result.value == "done"
    assert result.deprecated
    assert tids == [result.tid]


def test_a_callable_may_halt_the_task(run):
    class Custom(Task[None], deprecated=lambda task: task.skip("too old", code=1)):
        def work(self):
            self.context.worked = True

        @on_skipped
        def shrug(self):
            self.context.shrugged = True

    result = run(Custom)

    assert (result.status, result.reason) == ("skipped", "too old")
    assert result.metadata == {"code": 1}
    assert result.deprecated
    assert result.context == {"shrugged": True}


def test_what_a_callable_raises_fails_the_task(run):
    error = ValueError("too old")

    def refuse(_):
        raise error

    class Custom(Task[None], deprecated=refuse):
        def work(self):
            pass

    result = run(Custom)

    assert result.cause is error
    assert result.deprecated


# -- gates --------------------------------------------------------------------------


@pytest.mark.parametrize("live", [True, False])
def test_a_closed_gate_neither_marks_the_result_nor_sends_the_signal(run, live):
    sent = []

    class Gated(Task[None], deprecated=lambda _: None, deprecated_if="live"):
        def live(self):
            return self.context.live

        def work(self):
            pass

    with task_deprecated.connected_to(lambda _, task: sent.append(task)):
        result = run(Gated, live=live)

    assert result.deprecated is live
    assert len(sent) == live


def test_gates_alone_deprecate_nothing(run):
    class Current(Task[None], deprecated_if=True):
        def work(self):
            pass

    assert not run(Current).deprecated


# -- signal and inheritance ---------------------------------------------------------


def test_the_signal_is_sent_by_the_class_with_the_task_after_it_started(run):
    sent = []

    class Custom(Task[str], deprecated=lambda _: None):
        def work(self):
            return "done"

    def started(sender, *, task):
        sent.append(("started", sender, task.tid))

    def deprecated(sender, *, task):
        sent.append(("deprecated", sender, task.tid))

    with task_started.connected_to(started), task_deprecated.connected_to(deprecated):
        result = run(Custom)

    assert sent == [
        ("started", result.task, result.tid),
        ("deprecated", result.task, result.tid),
    ]


def test_the_signal_is_sent_for_a_task_that_is_refused_too():
    sent = []

    class Gone(Task[None], deprecated="error"):
        def work(self):
            pass

    with (
        task_deprecated.connected_to(lambda sender, **_: sent.append(sender)),
        pytest.raises(DeprecatedTaskError),
    ):
        Gone.execute()

    assert sent == [Gone]


def test_a_task_that_is_not_deprecated_says_so(run):
    class Current(Task[None]):
        def work(self):
            pass

    assert not run(Current).deprecated


def test_a_subclass_inherits_the_deprecation_and_may_lift_or_change_it(run):
    class Replacement(Old, deprecated=None):
        pass

    class Gone(Old, deprecated="error"):
        pass

    class Inheriting(Old):
        pass

    assert not run(Replacement).deprecated
    with pytest.raises(DeprecatedTaskError):
        run(Gone)
    with pytest.warns(DeprecationWarning, match="Inheriting is deprecated"):
        assert run(Inheriting).deprecated


def test_a_subclass_may_gate_the_deprecation_it_inherits(run):
    class Sometimes(Old, deprecated_unless="live"):
        def live(self):
            return self.context.live

    assert not run(Sometimes, live=True).deprecated
    with pytest.warns(DeprecationWarning, match="Sometimes"):
        assert run(Sometimes, live=False).deprecated
