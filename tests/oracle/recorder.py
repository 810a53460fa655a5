"""
What the record was made with: tasks that tell everything, and no real time or chance.

A scenario is a function of a ``Recorder``, registered by the name it has in the record.
It derives its tasks from ``recorder.Task`` and runs them. What it returns or raises and
everything that happened meanwhile is then read in the words of the record.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import cmdx
from cmdx import CmdxError, Fault, Result, Task, Workflow, clock, middleware, telemetry

RECORD = json.loads(Path(__file__).with_name("cmdx-oracle.json").read_text("utf-8"))

SIGNALS = (
    cmdx.task_started,
    cmdx.task_deprecated,
    cmdx.task_retried,
    cmdx.task_rolled_back,
    cmdx.task_executed,
)

scenarios = {}


def scenario(name, **options):
    """Register a function, with what it is to be given, as the scenario *name*."""

    def registered(function):
        assert name not in scenarios, f"{name} is written twice"
        scenarios[name] = partial(function, **options)
        return function

    return registered


class TransientError(Exception):
    pass


class SubTransientError(TransientError):
    pass


class OtherError(Exception):
    pass


class HardError(BaseException):
    pass


def ok(task, call):
    task.context.done = call


def boom(_task, call):
    raise TransientError(f"boom {call}")


def sub(_task, call):
    raise SubTransientError(f"sub {call}")


def other(_task, call):
    raise OtherError(f"other {call}")


def hard(_task, call):
    raise HardError(f"hard {call}")


def entering_and_leaving(task):
    task.recorder.passed(task, "enter")
    yield
    task.recorder.passed(task, "leave")


def noting(event):
    def note(task):
        task.recorder.called_back(task, event)

    return note


def noting_around(task):
    task.recorder.called_back(task, "around_execution.before")
    yield
    task.recorder.called_back(task, "around_execution.after")


@middleware(entering_and_leaving)
class Recorded(Task[Any]):
    """Does the n-th step of its plan when called for the n-th time, then the last."""

    recorder = None
    plan = (ok,)

    note_before_execution = cmdx.before_execution(noting("before_execution"))
    note_before_validation = cmdx.before_validation(noting("before_validation"))
    note_around_execution = cmdx.around_execution(noting_around)
    note_after_execution = cmdx.after_execution(noting("after_execution"))
    note_on_complete = cmdx.on_complete(noting("on_complete"))
    note_on_interrupted = cmdx.on_interrupted(noting("on_interrupted"))
    note_on_success = cmdx.on_success(noting("on_success"))
    note_on_skipped = cmdx.on_skipped(noting("on_skipped"))
    note_on_failed = cmdx.on_failed(noting("on_failed"))
    note_on_ok = cmdx.on_ok(noting("on_ok"))
    note_on_ko = cmdx.on_ko(noting("on_ko"))

    def work(self):
        call = self.recorder.working(self)
        return self.plan[min(call, len(self.plan)) - 1](self, call)


class AwaitedRecorded(Recorded):
    """The same, run asynchronously where no event loop runs yet."""

    @classmethod
    def execute(cls, *source, **inputs):
        if in_event_loop():
            return super().execute(*source, **inputs)
        return asyncio.run(awaiting(cls).aexecute(*source, **inputs))

    @classmethod
    def execute_or_raise(cls, *source, **inputs):
        if in_event_loop():
            return super().execute_or_raise(*source, **inputs)
        return asyncio.run(awaiting(cls).aexecute_or_raise(*source, **inputs))


def in_event_loop():
    try:
        return asyncio.get_running_loop() is not None
    except RuntimeError:
        return False


def awaiting(task):
    """Return a class that is the same but for its ``work``, which suspends."""
    if issubclass(task, Workflow):
        return task

    async def work(self):
        await asyncio.sleep(0)
        return super(twin, self).work()

    twin = type(task.__name__, (task,), {"work": work})
    return twin


class Recorder(clock.Clock):
    """Writes down one scenario."""

    def __init__(self, *, awaits=False):
        self.trace = []
        self.telemetry = []
        self.callbacks = []
        self.middleware = []
        self.sleeps = []
        self.gate_calls = []
        self.jitter_calls = []
        self.work_calls = Counter()
        self.notes = {}
        self.results = []
        self.in_any_order = False
        self.restart_random()
        base = AwaitedRecorded if awaits else Recorded
        self.Task = type("Instrumented", (base,), {"recorder": self})

    # -- time and chance --------------------------------------------------------

    def sleep(self, seconds):
        self.sleeps.append(seconds)
        self.trace.append(f"sleep {seconds}")

    async def asleep(self, seconds):
        self.sleep(seconds)
        await asyncio.sleep(0)

    def random(self):
        return next(self.randoms)

    def restart_random(self):
        self.randoms = cycle(RECORD["conventions"]["random_cycle"])

    # -- what happens to tasks --------------------------------------------------

    def working(self, task):
        """Note a call of ``work`` and return its number, counted by name from 1."""
        name = type(task).__name__
        self.work_calls[name] += 1
        self.trace.append(f"work {name} #{self.work_calls[name]}")
        return self.work_calls[name]

    def called_back(self, task, event):
        self.callbacks.append(f"{type(task).__name__}.{event}")
        self.trace.append(f"callback {self.callbacks[-1]}")

    def passed(self, task, where):
        self.middleware.append(f"{type(task).__name__}.{where}")
        self.trace.append(f"middleware {self.middleware[-1]}")

    def gate(self, *seen):
        """Note what a gate was asked."""
        self.gate_calls.append(list(seen))
        self.trace.append(f"gate {inspected(seen)}")

    def jitter(self, answer):
        """Make a jitter that notes what it is given and returns *answer*."""

        def noted(attempt, delay, previous):
            given = [attempt, delay, previous]
            self.jitter_calls.append(given)
            self.trace.append(f"jitter {inspected(given)}")
            return answer(delay) if callable(answer) else answer

        return noted

    # -- the whole scenario -----------------------------------------------------

    @contextmanager
    def listening(self):
        with ExitStack() as stack:
            for signal in SIGNALS:
                receiver = partial(self._received, signal.name)
                stack.callback(telemetry.connect(signal, receiver, task=self.Task))
            stack.enter_context(clock.use(self))
            yield

    def _received(self, event, sender, *, attempt=None, result=None, **_):
        payload = "" if attempt is None else f"(attempt={attempt})"
        name = sender.__name__
        self.telemetry.append(f"{name}:{event}{payload}")
        self.trace.append(f"telemetry {name} {self.telemetry[-1]}")
        if result is not None:
            self.results.append(result)

    def seen(self, returned, raised):
        """Return everything, as the record shows it."""
        ran = isinstance(returned, Result)
        result = returned if ran else (self.results or [None])[-1]
        fields = {
            "result": None if result is None else shown_result(result),
            "raised": None if raised is None else shown_escape(raised),
            "work_calls": dict(self.work_calls),
            "sleeps": self.sleeps,
            "telemetry": self.telemetry,
            "callbacks": self.callbacks,
            "middleware": self.middleware,
            "trace": self.trace,
            "gate_calls": self.gate_calls,
            "jitter_calls": self.jitter_calls,
            "notes": self.notes,
            "value": None if ran else returned,
        }
        if self.in_any_order:
            for name in ("telemetry", "callbacks", "middleware", "trace"):
                fields[name] = sorted(fields[name])
            root, *others = fields["result"]["chain"]
            others.sort(key=lambda each: each["task"])
            fields["result"]["chain"] = [root, *others]
        return fields


def replay(name, *, awaits=False):
    """Run the scenario *name* and return all its fields."""
    recorder = Recorder(awaits=awaits)
    returned = raised = None
    with recorder.listening():
        try:
            returned = scenarios[name](recorder)
        except (Exception, HardError) as error:
            raised = error
    return recorder.seen(returned, raised)


UNSAID = {
    "result": None,
    "raised": None,
    "work_calls": {},
    "sleeps": [],
    "telemetry": [],
    "callbacks": [],
    "middleware": [],
    "trace": [],
    "gate_calls": [],
    "jitter_calls": [],
    "notes": {},
    "value": None,
}
"""What the record means where it leaves a field out."""

UNSAID_OF_ESCAPE = {"is_fault": False, "fault_task": None, "ruby_cause": None}


def recorded(name):
    """Return all fields of the scenario *name* as Ruby left them."""
    found = next(each for each in RECORD["scenarios"] if each["name"] == name)
    fields = {field: found.get(field, unsaid) for field, unsaid in UNSAID.items()}
    if fields["raised"] is not None:
        fields["raised"] = UNSAID_OF_ESCAPE | fields["raised"]
    return fields


# -- in the words of the record -------------------------------------------------


def inspected(values):
    return json.dumps(list(values)).replace("null", "nil")


def named(error):
    """Return the class of *error* by the name the record has for it."""
    if isinstance(error, CmdxError):
        return f"CMDx::{type(error).__name__}"
    if isinstance(error, TypeError | ValueError):
        return "ArgumentError"
    return type(error).__name__


def shown_error(error):
    return None if error is None else f"{named(error)}: {error}"


def shown_reference(result):
    return None if result is None else f"result:{result.task.__name__}:{result.status}"


def shown_escape(error):
    is_fault = isinstance(error, Fault)
    return {
        "class": named(error),
        "message": str(error),
        "is_fault": is_fault,
        "fault_task": error.task.__name__ if is_fault else None,
        "ruby_cause": shown_error(error.__cause__),
    }


def shown_result(result):
    return {
        "state": str(result.state),
        "status": str(result.status),
        "reason": result.reason,
        "metadata": dict(result.metadata),
        "retries": result.retries,
        "retried": result.retried,
        "strict": result.strict,
        "rolled_back": result.rolled_back,
        "cause": shown_error(result.cause),
        "origin": shown_reference(result.origin),
        "caused_failure": shown_reference(result.caused_failure),
        "errors": result.errors.to_dict(),
        "context": result.context.to_dict(),
        "chain": [
            {
                "task": each.task.__name__,
                "status": str(each.status),
                "retries": each.retries,
                "rolled_back": each.rolled_back,
                "root": each.root,
            }
            for each in result.chain
        ],
    }
