"""The places of the lifecycle where user code is called."""

from __future__ import annotations

from functools import partial

import pytest
import structlog

from cmdx import (
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
)

PLACES = (
    "middleware gate",
    "middleware before",
    "deprecation gate",
    "deprecation",
    "callback gate",
    "before_execution",
    "before_validation",
    "around gate",
    "around before",
    "work",
    "retry gate",
    "jitter",
    "around after",
    "after_execution",
    "on_complete",
    "on_interrupted",
    "on_success",
    "on_skipped",
    "on_failed",
    "on_ok",
    "on_ko",
    "middleware after",
)


@pytest.fixture
def lines():
    """Have structlog configured, and collect the lines that are logged."""
    with structlog.testing.capture_logs() as logged:
        structlog.configure()
        yield logged
    structlog.reset_defaults()


@pytest.fixture(params=PLACES)
def ending(request):
    """Make a task that calls what is given at one place, and else does nothing."""
    return partial(task_ending, request.param)


def task_ending(place, end):  # noqa: C901 -- one hook for each place
    def at(here, task):
        if here == place:
            end(task)
        return True

    def wrap(task):
        at("middleware before", task)
        yield
        at("middleware after", task)

    @retry_on(LookupError, limit=1, if_=lambda task, *_: at("retry gate", task))
    @retry_on(jitter="spread")
    @middleware(wrap, if_=lambda task: at("middleware gate", task))
    class Ending(
        Task[str],
        deprecated=partial(at, "deprecation"),
        deprecated_if=lambda task: at("deprecation gate", task),
    ):
        def work(self):
            at("work", self)
            if place in ("retry gate", "jitter") and self.attempt == 0:
                raise LookupError
            if place in ("on_interrupted", "on_skipped", "on_ko"):
                self.skip("not this time")
            if place == "on_failed":
                self.fail("not at all")
            return "done"

        def spread(self, _attempt, delay):
            at("jitter", self)
            return delay

        @before_execution(if_=lambda task: at("callback gate", task))
        def first(self):
            at("before_execution", self)

        @before_validation
        def second(self):
            at("before_validation", self)

        @around_execution(if_=lambda task: at("around gate", task))
        def third(self):
            at("around before", self)
            yield
            at("around after", self)

        @after_execution
        def fourth(self):
            at("after_execution", self)

        @on_complete
        def fifth(self):
            at("on_complete", self)

        @on_interrupted
        def sixth(self):
            at("on_interrupted", self)

        @on_success
        def seventh(self):
            at("on_success", self)

        @on_skipped
        def eighth(self):
            at("on_skipped", self)

        @on_failed
        def ninth(self):
            at("on_failed", self)

        @on_ok
        def tenth(self):
            at("on_ok", self)

        @on_ko
        def eleventh(self):
            at("on_ko", self)

    return Ending
