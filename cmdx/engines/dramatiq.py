"""
``DramatiqEngine``: tasks on the workers of a dramatiq broker.

A message of a task is an ordinary message of dramatiq: its keyword arguments are the
inputs, as JSON, so other programs can send one too. The message of a run that goes on
has one positional argument: where it stopped.
"""

from __future__ import annotations

import asyncio
import logging
import math
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar

from cmdx import Suspended, clock
from cmdx.engines.engine import (
    Engine,
    EngineMessage,
    Handle,
    TaskFailed,
    failure_of,
    lost_run,
    refuse_call,
    run_leg,
)
from cmdx.exceptions import CmdxError, DefinitionError
from cmdx.extras import how_to_install
from cmdx.wire import dump_result
from cmdx.wire.sending import origin_data

try:
    import dramatiq
    from dramatiq.asyncio import get_event_loop_thread
    from dramatiq.middleware import CurrentMessage, Interrupt, Middleware, Shutdown
    from dramatiq.results import Results, ResultTimeout
except ImportError:
    message = f"cmdx.engines.dramatiq needs dramatiq. {how_to_install('dramatiq')}."
    raise ImportError(message) from None

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from cmdx import Task

OPTION = "cmdx"
"""The option of a message that says who has sent it."""

WAIT_SLICE = 1_000
"""Milliseconds of one wait for a result; a client of Redis waits for some seconds."""
WAIT_PAUSE = 0.02
"""Seconds between two of them: the last one of a wait does not block."""

# Results come by real time, also in tests where the time of tasks is virtual.
REAL_CLOCK = clock.Clock()
monotonic = clock.Clock.monotonic


class DramatiqEngine(Engine):
    """
    Runs tasks on dramatiq, by their own retries.

    Example::

        engine = DramatiqEngine(RabbitmqBroker(url="amqp://"))
        engine.register(ChargeCard, queue_name="payments")
        engine.enqueue(ChargeCard(order_id=7), after=60)

    Args:
        broker: The broker. RabbitMQ confirms its messages from then on.
        longest_pause: The longest pause between two attempts that a worker sleeps, in
            seconds; a longer one is a message with a delay.
    """

    refused_options: ClassVar = {
        "actor_name": "it is that of the task. Write class ChargeCard(Task, name=...)",
        "broker": "it is that of the engine",
        "max_retries": "use @retry_on with limit=",
        "min_backoff": "use @retry_on with delay=",
        "max_backoff": "use @retry_on with max_delay=",
        "retry_when": "use @retry_on with if_=",
        "on_success": "use the callback @on_success of the task",
        "on_failure": "use the callback @on_failed of the task",
        "on_retry_exhausted": "use the callback @on_failed of the task",
        "pipe_target": "write a Workflow",
        "store_results": "results are stored if the broker has the middleware Results",
    }

    def __init__(self, broker: Any, *, longest_pause: float = 1.0) -> None:
        super().__init__(longest_pause)
        self.broker = check_broker(broker)
        if hasattr(broker, "confirm_delivery"):
            broker.confirm_delivery = True
        if not any(isinstance(one, CurrentMessage) for one in broker.middleware):
            broker.add_middleware(CurrentMessage())
        self._actor_names: set[str] = set()
        broker.add_middleware(FailedMessages(self._actor_names))

    def _declare(
        self, cls: type[Task[Any]], name: str, options: Mapping[str, Any]
    ) -> Any:
        def run(*earlier: Any, **inputs: Any) -> None:
            self._work(cls, earlier, inputs)

        run.__doc__, run.__module__ = cls.__doc__, cls.__module__
        known = self.broker.actor_options
        # What is asked whether to retry goes before the number of retries.
        retries = (
            {"max_retries": 0, "retry_when": None} if "max_retries" in known else {}
        )
        given = {**retries, **options}
        actor = dramatiq.actor(actor_name=name, broker=self.broker, **given)(run)
        actor.options["store_results"] = False  # a leg may end without one
        self._actor_names.add(name)
        return actor

    def _send(
        self,
        declared: Any,
        inputs: dict[str, Any],
        seconds: float,
        priority: int | None,
    ) -> Handle[Any]:
        origin = origin_data()
        options: dict[str, Any] = {OPTION: origin} if origin else {}
        if priority is not None:
            options["broker_priority"] = self._priority_of(priority)
        message = declared.message_with_options(kwargs=inputs, **options)
        self.broker.enqueue(message, delay=milliseconds(seconds))
        return DramatiqHandle(self.broker, message)

    def _priority_of(self, priority: int) -> int:
        """Return a priority; refuse what the broker cannot do."""
        highest = getattr(self.broker, "max_priority", None)
        if not highest:
            message = (
                "enqueue: this broker has no priorities of messages. Make it with "
                "RabbitmqBroker(..., max_priority=...), or give a task one of "
                "dramatiq's: register(..., priority=...), where lower goes first."
            )
            raise DefinitionError(message)
        if not 0 <= priority <= highest:
            message = (
                f"enqueue: a priority of this broker is 0 to {highest}, got {priority}."
            )
            raise DefinitionError(message)
        return priority

    # -- in a worker ----------------------------------------------------------------

    def _work(
        self, cls: type[Task[Any]], earlier: tuple[Any, ...], inputs: dict[str, Any]
    ) -> None:
        """Run a leg, store its result, and raise if it has failed."""
        message: Any = CurrentMessage.get_current_message()
        if message is None:
            refuse_call(cls)
        origin = message.options.get(OPTION)
        received = EngineMessage(
            message.message_id, "dramatiq", inputs, earlier, origin
        )
        try:
            result = run_leg(cls, received, self.longest_pause, run_coroutine)
        except Suspended as suspended:
            hand_over(self.broker, message, suspended)
            return
        except Shutdown:  # the run was rolled back, and begins anew elsewhere
            self.broker.enqueue(message.copy())
            return
        if result.failed:
            raise failure_of(result, dump_result(result))
        if results_of(self.broker) is not None:
            store_answer(self.broker, message, {"result": dump_result(result)})


def hand_over(broker: Any, message: Any, suspended: Suspended) -> None:
    """Send the message by which the run goes on, to where this one came from."""
    continuation = message.copy(args=(suspended.to_dict(),))
    do_despite_shutdown(
        broker.enqueue, continuation, delay=milliseconds(suspended.pause)
    )


def do_despite_shutdown(do: Callable[..., Any], *given: Any, **options: Any) -> None:
    """Do what comes after a leg: again, if a shutdown was told in the middle of it."""
    try:
        do(*given, **options)
    except Shutdown:  # it is told once, and what has ended must not be a dead letter
        do(*given, **options)


class FailedMessages(Middleware):
    """Has messages of failed tasks go to the dead letters, and stores why."""

    def __init__(self, actor_names: set[str]) -> None:
        self.actor_names = actor_names

    def before_process_message(self, broker: Any, message: Any) -> None:
        """Have dramatiq not retry a message, whatever that says itself."""
        del broker
        if message.actor_name in self.actor_names:
            message.options["max_retries"] = 0

    def after_process_message(
        self,
        broker: Any,
        message: Any,
        *,
        result: object = None,
        exception: BaseException | None = None,
    ) -> None:
        """Note that a message has failed."""
        del result
        if exception is None or message.actor_name not in self.actor_names:
            return
        message.fail()
        if not isinstance(exception, TaskFailed):  # such as the end of a time limit
            exception = lost_run(exception)
        answer = {"reason": exception.reason, "result": exception.result}
        store_answer(broker, message, answer)

    def after_skip_message(self, broker: Any, message: Any) -> None:
        """Store that a message was not run, for those who wait."""
        if message.actor_name in self.actor_names:
            reason = (
                "dramatiq has skipped the message: it is older than max_age, or a "
                "middleware has refused it"
            )
            store_answer(broker, message, {"reason": reason, "result": None})


def check_broker(broker: Any) -> Any:
    """Return a broker of dramatiq; refuse anything else."""
    if isinstance(broker, dramatiq.Broker):
        return broker
    message = (
        f"DramatiqEngine takes a broker, such as RabbitmqBroker(), got {broker!r}."
    )
    raise TypeError(message)


def run_coroutine(steps: Coroutine[Any, Any, Any]) -> Any:
    """Run an asynchronous task, in the event loop of the worker if it has one."""
    thread = get_event_loop_thread()
    if thread is None:
        return asyncio.run(steps)
    inside = RunInLoop(steps)
    try:
        return thread.run_coroutine(inside.run())
    except Interrupt as error:  # dramatiq has waited, or has not begun to
        inside.cancel(thread.loop)
        interrupt = error
    except RuntimeError as error:
        if not isinstance(error.__cause__, Interrupt):
            raise
        # It has waited for a second only, and a rollback may take longer.
        interrupt = error.__cause__
    inside.wait()
    raise interrupt


class RunInLoop:
    """A coroutine that another thread runs, and that is not left alone there."""

    def __init__(self, steps: Coroutine[Any, Any, Any]) -> None:
        self._steps = steps
        self._task: asyncio.Task[Any] | None = None
        """Set when it begins."""
        self._is_given_up = False
        """Whether it must not begin any more."""
        self._has_ended = Event()

    async def run(self) -> Any:
        """Run it, unless it was given up before."""
        # ``cancel`` sets one and then reads the other, so one of the two sees it.
        self._task = asyncio.current_task()
        try:
            if not self._is_given_up:
                return await self._steps
            self._steps.close()
            return None
        finally:
            self._has_ended.set()

    def cancel(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel it if it runs, and let it not begin otherwise."""
        self._is_given_up = True
        if self._task is not None and not self._has_ended.is_set():
            loop.call_soon_threadsafe(self._task.cancel)

    def wait(self) -> None:
        """Wait until it has ended, if it has begun."""
        if self._task is not None:
            self._has_ended.wait()


def milliseconds(seconds: float) -> int | None:
    """Return a delay as dramatiq counts it; None if there is none."""
    return math.ceil(seconds * 1000) if seconds > 0 else None


# -- results --------------------------------------------------------------------------


def results_of(broker: Any) -> Results | None:
    """Return what stores the results of a broker; None if nothing does."""
    found = (one for one in broker.middleware if isinstance(one, Results))
    return next(found, None)


def store_answer(broker: Any, message: Any, answer: dict[str, Any]) -> None:
    """Store what became of a task, if results are stored."""
    results = results_of(broker)
    if results is None:
        return
    actor = broker.get_actor(message.actor_name)
    ttl = actor.options.get("result_ttl", results.result_ttl)
    try:
        do_despite_shutdown(results.backend.store_result, message, answer, ttl)
    except Exception:  # the task has ended, and must not be run again for this
        text = "the result of the message %r cannot be stored"
        logging.getLogger("cmdx").exception(text, message.message_id)


class DramatiqHandle(Handle[Any]):
    """An invocation that was sent to dramatiq."""

    def __init__(self, broker: Any, message: Any) -> None:
        super().__init__(message.message_id)
        self._broker, self._message = broker, message

    def _read(self, timeout: float | None) -> Any:
        results = results_of(self._broker)
        if results is None:
            message = (
                "this broker stores no results. Give it a backend: "
                "broker.add_middleware(Results(backend=RedisBackend()))."
            )
            raise CmdxError(message)
        answer = wait_for_answer(results.backend, self._message, timeout)
        if answer is not None and "reason" in answer:
            return TaskFailed(answer["reason"], answer["result"])
        return answer and answer["result"]


def wait_for_answer(backend: Any, message: Any, timeout: float | None) -> Any:
    """Return what is stored of a message; None if nothing is after *timeout*."""
    end = math.inf if timeout is None else monotonic() + timeout
    while True:
        left = max(end - monotonic(), 0.0) * 1000
        try:
            return backend.get_result(
                message, block=True, timeout=math.ceil(min(left, WAIT_SLICE))
            )
        except ResultTimeout:
            if monotonic() >= end:
                return None
            REAL_CLOCK.sleep(WAIT_PAUSE)
