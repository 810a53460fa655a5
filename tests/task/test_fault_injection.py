"""
Whatever function of the library fails, a run ends in one of its documented ways.

A rich run is watched once for the functions of ours that it enters. Then it is run
again for each of them, and that function raises when it is entered, the first time or
the last.
"""

from __future__ import annotations

import asyncio
import dis
import gc
import io
import linecache
import os
import sys
from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import structlog

import cmdx
from cmdx import (
    Result,
    RetryBudget,
    RetryOptions,
    Task,
    Workflow,
    after_execution,
    around_execution,
    before_execution,
    before_validation,
    group,
    middleware,
    on_complete,
    on_failed,
    on_ko,
    on_ok,
    on_success,
    optional,
    output,
    parallel,
    required,
    retry_on,
    step,
    telemetry,
)
from cmdx.chain import running
from cmdx.run import deadlines
from cmdx.run.lifecycle import lifecycle, run_limited
from cmdx.testing import instant

HOME = str(Path(cmdx.__file__).parent) + os.sep


class Injected(Exception):
    """What a function raises in place of what it does."""


# -- a rich run ----------------------------------------------------------------------


@dataclass
class Address:
    city: str


def is_worth_it(_error):
    return True


def note_result(task):
    result = yield
    task.context.setdefault("noted", []).append(result.status)


def note_start(task):
    task.context.setdefault("started", []).append(task.tid)


class Base(Task[Any], correlation_id=lambda: "request", retry=RetryOptions(2)):
    pass


@retry_on(ConnectionError, limit=2, delay=0.5, max_delay=2, jitter="full_jitter")
@retry_on(if_=is_worth_it, deadline=60, budget=RetryBudget(reserve=10**9))
@middleware(note_result, if_=lambda: True)
class Reserve(Base, deprecated=note_start):
    order: int = required(ge=1)
    address: Address = required()
    tags: list[str] = optional(factory=list)
    note: str | None = optional(default=None, if_=lambda: True)
    reserved: int = output(if_=lambda: True)

    @before_execution(if_="is_ready")
    def prepare(self): ...

    @before_validation
    def look(self): ...

    @around_execution
    def wrap(self):
        yield

    def is_ready(self):
        return True

    def work(self):
        if self.attempt == 0:
            raise ConnectionError("down")
        self.reserved = self.retry(lambda: self.order, retry_result=lambda _: False)
        self.metadata["by"] = "hand"
        self.logger.info("reserved")
        return self.reserved

    @after_execution
    def third(self): ...

    @on_complete
    def fourth(self, outcome):
        assert outcome.status

    @on_success
    def fifth(self): ...

    @on_ok
    def sixth(self): ...

    def rollback(self):
        self.context.released = True


class Quote(Base):
    """It only skips."""

    def work(self):
        self.skip("nothing to quote")


class Weigh(Base):
    def work(self):
        self.context.weight = {"kilos": self.context.order}
        return 3

    def rollback(self): ...


class Pack(Base):
    def work(self):
        self.context.weight = {"boxes": 1}
        return Weigh.execute(order=3).value

    def rollback(self):
        raise OSError("taped up")


class Charge(Base):
    def work(self):
        if self.context.fails:
            self.throw(Decline.execute(self.context))
        return "charged"

    @on_failed
    def page(self): ...

    @on_ko
    def call(self): ...

    def rollback(self): ...


class Decline(Base):
    def work(self):
        self.fail("declined", code=3)


class Awaiting:
    """What the asynchronous run does otherwise."""

    async def work(self):
        await asyncio.sleep(0)
        return super().work()

    @before_execution
    async def begin(self):
        await asyncio.sleep(0)

    async def rollback(self):
        await asyncio.sleep(0)
        super().rollback()


async def note_result_later(task):
    await asyncio.sleep(0)
    result = yield
    task.context.setdefault("noted", []).append(result.status)


@middleware(note_result_later)
class ReserveLater(Awaiting, Reserve):
    pass


class WeighLater(Awaiting, Weigh):
    pass


class ChargeLater(Awaiting, Charge):
    pass


class Ship(Workflow[Any], correlation_id=lambda: "request"):
    order: int
    address: Address
    fails: bool
    steps = (
        Reserve,
        group(Quote, step(Weigh, into="weighed"), if_=lambda: True),
        parallel(Weigh, group(Pack, Quote), merge="deep", executor="inline"),
        parallel(Weigh, Quote, executor="threads", workers=1),  # in this thread alone
        group(Decline, continue_on_failure=True, unless=lambda task: not task.fails),
        Charge,
    )

    @on_complete
    def tidy(self): ...


class ShipLater(Workflow[Any], correlation_id=lambda: "request"):
    order: int
    address: Address
    fails: bool
    steps = (
        ReserveLater,
        group(Quote, WeighLater, if_=lambda: True),
        parallel(WeighLater, group(Pack, Quote), merge="deep"),
        ChargeLater,
    )

    @on_complete
    async def tidy(self):
        await asyncio.sleep(0)


INPUTS = {"order": "7", "address": {"city": "Ulm"}}


def execute(inputs):
    return Ship.execute(inputs)


def aexecute(inputs):
    results = []  # not the value of the coroutine, whose repr asyncio asks for

    async def main():
        try:
            results.append(await ShipLater.aexecute(inputs))
        finally:
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())
    return results.pop()


# -- watching, and failing on purpose ------------------------------------------------


def is_entered(frame):
    """Tell whether a function of ours starts, and is not resumed or closed."""
    code, place = frame.f_code, frame.f_lasti
    if not code.co_filename.startswith(HOME):
        return False
    opcode, argument = code.co_code[place : place + 2]
    return opcode == dis.opmap["RESUME"] and argument & 3 == 0


def entered_functions(run):
    """Return the functions of ours that *run* enters, with how often it does."""
    entered = Counter()

    def profile(frame, event, _argument):
        if event == "call" and is_entered(frame):
            entered[frame.f_code] += 1

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return entered


class Fault:
    """Raises when a function is entered for the n-th time."""

    def __init__(self, code, times, error):
        self.code = code
        self.left = times
        self.error = error
        self.has_begun = False
        """Whether the run had begun when it raised."""
        self.callers = None
        """The names of the functions that it was raised in; None if it was not."""

    def __call__(self, frame, _event, _argument):
        if not is_entered(frame):
            return
        if frame.f_code is self.code:
            self.left -= 1
            if self.left == 0:
                self.callers = {code.co_qualname for code in codes_from(frame)}
                raise self.error
        if frame.f_code is lifecycle.__code__:
            self.has_begun = True

    def during(self, run):
        """Return what becomes of *run*: what it returns, or raises."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            return run()
        except BaseException as error:
            return error
        finally:
            sys.settrace(before)

    def may_leave(self):
        """Tell whether no result can be made of what was raised."""
        return not self.has_begun or not self.callers.isdisjoint(NO_RESULT)


def codes_from(frame):
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


NO_RESULT = {
    # They hold the handlers that make outcomes of errors, and what they call is inside
    # these. An error before is treated as an interrupt: the run is rolled back,
    # announced as cancelled, and the error leaves it.
    "set_correlation_id",
    "Wrappers.__init__",
    "Wrappers.__aenter__",
    "Wrappers.__aexit__",
    "run_inside_middlewares",
    "run_completion_callbacks",
    # The run is over, and this makes its result and announces it.
    "finish",
}


@pytest.fixture
def ended():
    """Have all receivers and log lines in use, no pause last, and note how runs end."""
    ends = []

    def receive(sender, **_payload):
        assert sender

    def note(sender, result, **_payload):
        ends.append(sender)
        assert result.task is sender

    for signal in SIGNALS:
        signal.connect(receive)
    for signal in ENDS:
        signal.connect(note)
    cmdx.enable_logging("json", stream=io.StringIO())
    gc.collect()
    gc.disable()  # finalizers of what other tests left are no part of these runs
    try:
        with instant():
            yield ends
    finally:
        gc.enable()
    structlog.reset_defaults()
    for signal in SIGNALS:
        signal.disconnect(receive)
    for signal in ENDS:
        signal.disconnect(note)
    gc.collect()  # coroutines that faults have kept from being awaited: warn here


ENDS = (telemetry.task_executed, telemetry.task_cancelled)
SIGNALS = (
    *ENDS,
    telemetry.task_started,
    telemetry.task_deprecated,
    telemetry.task_retried,
    telemetry.task_rolled_back,
)


class After(Task[str]):
    def work(self):
        return "as usual"


def left_behind():
    """Say what a run that ended has left behind."""
    if running.get() is not None:
        yield "it is still running"
    if cmdx.remaining() is not None:
        yield "its deadline is still set"
    result = After.execute()
    if result.value != "as usual" or not result.root or len(result.chain) > 1:
        yield "a task after it does not run as usual"


def problems_of(fault, outcome, ends):
    """Say what is wrong with the way a run with a fault has ended."""
    is_interrupt = not isinstance(fault.error, Exception)
    leaves = outcome is fault.error
    if not leaves and (is_interrupt or not isinstance(outcome, Result)):
        yield f"it ended by {outcome!r}"
    if leaves and not is_interrupt and not fault.may_leave():
        yield "no result was made of the error"
    if fault.has_begun and "finish" not in fault.callers and len(ends) != 1:
        yield f"its end was announced {len(ends)} times"
    yield from left_behind()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("fails", [True, False], ids=["fails", "succeeds"])
@pytest.mark.parametrize(
    ("execute", "root"), [(execute, Ship), (aexecute, ShipLater)], ids=["sync", "async"]
)
@pytest.mark.parametrize("kind", [Injected, KeyboardInterrupt])
def test_whatever_fails_a_run_ends_as_documented(kind, execute, root, fails, ended):
    run = partial(execute, INPUTS | {"fails": fails})
    run()
    found, reached = {}, 0
    for code, times in entered_functions(run).items():
        for nth in sorted({1, times}):
            ended.clear()
            fault = Fault(code, nth, kind("injected"))
            outcome = fault.during(run)
            if fault.callers is None:  # a thread of the pool was faster this time
                continue
            reached += 1
            ends = [task for task in ended if task is root]
            problems = list(problems_of(fault, outcome, ends))
            if problems:
                found[f"{code.co_qualname}, {nth} of {times}"] = problems
    assert found == {}
    assert reached > 300


# -- between two instructions --------------------------------------------------------

CLEANING = (
    'run.phase = "finished"  # first',
    "running_task()",
    "set_running_task(outer)",
    "current.get()",
    "limit.holds = False",
    "current.set(limit.outer)",
)
"""What an interrupt can only be too early or too late for."""


class Interrupt:
    """Raises before the n-th instruction where something is set that must not stay."""

    def __init__(self, times):
        self.left = times
        self.line = None
        """The line before whose instruction it was raised; None if it was not."""

    def __call__(self, frame, event, _argument):
        code = frame.f_code
        if code not in (lifecycle.__code__, run_limited.__code__):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                self.line = linecache.getline(code.co_filename, frame.f_lineno or 0)
                raise KeyboardInterrupt
        return self


@pytest.mark.skipif(
    sys.version_info[:2] == (3, 12),
    reason="3.12 does not tell a tracer of each instruction in a frame just entered",
)
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("task", [Reserve, After])
def test_an_interrupt_between_two_instructions_leaves_nothing_set(task):
    for times in count(1):
        interrupt = Interrupt(times)
        before = sys.gettrace()
        sys.settrace(interrupt)
        try:
            with instant():
                task.execute({**INPUTS, "fails": False})
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        if interrupt.line is None:
            break
        if any(text in interrupt.line for text in CLEANING):
            running.set(None)
            deadlines.current.set(None)
        assert (interrupt.line, list(left_behind())) == (interrupt.line, [])
    assert times > 20
