"""
``CeleryEngine``: tasks on the workers of a Celery app.

A message of a task is an ordinary message of Celery: its keyword arguments are the
inputs, as JSON, so ``celery beat`` and other programs can send one too. The message of
a run that goes on has one positional argument: where it stopped.
"""

from __future__ import annotations

import asyncio
import json
import math
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from cmdx import Suspended
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
from cmdx.wire import WireError, dump_result
from cmdx.wire.sending import origin_data

try:
    from billiard.common import terminate_handler_fired
    from celery import Celery
    from celery.backends.base import DisabledBackend
    from celery.exceptions import (
        Ignore,
        OperationalError,
        Reject,
        WorkerShutdown,
        WorkerTerminate,
    )
    from celery.exceptions import TimeoutError as CeleryTimeout
    from celery.result import EagerResult
except ImportError:
    message = f"cmdx.engines.celery needs Celery. {how_to_install('celery')}."
    raise ImportError(message) from None

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from cmdx import Result, Task

HEADER = "cmdx"
"""The header of a message that says who has sent it."""

TASK_OPTIONS = {
    "acks_late": True,
    "reject_on_worker_lost": True,
    "acks_on_failure": False,  # it goes to the dead letters
    "acks_on_timeout": True,  # else it would be delivered again
    "shared": False,  # with other apps of this process
    "typing": False,  # the inputs are checked by the task
}

HIGHEST_PRIORITY = 9


class CeleryEngine(Engine):
    """
    Runs tasks on Celery, by their own retries.

    Example::

        engine = CeleryEngine(Celery("shop", broker="amqp://"))
        engine.register(ChargeCard)
        engine.enqueue(ChargeCard(order_id=7), after=60)

    Args:
        app: The app of Celery. Messages are confirmed by the broker from then on.
        longest_pause: The longest pause between two attempts that a worker sleeps, in
            seconds; a longer one is a message with a countdown.
    """

    refused_options: ClassVar = {
        "name": "it is that of the task. Write class ChargeCard(Task, name=...)",
        "bind": "the engine needs it",
        "autoretry_for": "use @retry_on",
        "dont_autoretry_for": "use @retry_on with unless=",
        "retry_kwargs": "use @retry_on",
        "retry_backoff": "use @retry_on with jitter=",
        "retry_backoff_max": "use @retry_on with max_delay=",
        "retry_jitter": "use @retry_on with jitter=",
        "max_retries": "use @retry_on with limit=",
        "default_retry_delay": "use @retry_on with delay=",
    }

    def __init__(self, app: Any, *, longest_pause: float = 0.05) -> None:
        super().__init__(longest_pause)
        self.app = check_app(app)
        app.on_after_configure.connect(confirm_messages, weak=False)
        if app.configured:
            confirm_messages(app)

    def _declare(
        self, cls: type[Task[Any]], name: str, options: Mapping[str, Any]
    ) -> Any:
        check_base(options.get("base", self.app.Task))

        def run(celery_task: Any, /, *earlier: Any, **inputs: Any) -> Any:
            return self._work(cls, celery_task, earlier, inputs)

        run.__doc__, run.__module__ = cls.__doc__, cls.__module__
        given = {**TASK_OPTIONS, **options}
        declared = self.app.task(run, name=name, bind=True, **given)
        return declared, run

    def _send(
        self,
        declared: Any,
        inputs: dict[str, Any],
        seconds: float,
        priority: int | None,
    ) -> Handle[Any]:
        celery_task, run = declared
        check_is_own(self.app.tasks[celery_task.name], run)
        check_is_readable(inputs)
        confirm_messages(self.app)  # it may have been configured anew
        origin = origin_data()
        options: dict[str, Any] = {"headers": {HEADER: origin}} if origin else {}
        if priority is not None:
            options["priority"] = self._priority_of(celery_task, priority)
        send = partial(celery_task.apply_async, kwargs=inputs, **options)
        return CeleryHandle(send_later(send, seconds) if seconds > 0 else send())

    def _priority_of(self, celery_task: Any, priority: int) -> int:
        """Return a priority as the broker counts it; refuse what it cannot do."""
        if not 0 <= priority <= HIGHEST_PRIORITY:
            message = f"enqueue: a priority on Celery is 0 to 9, got {priority}."
            raise DefinitionError(message)
        driver = self.app.connection_for_write().transport.driver_type
        if driver == "redis":
            return HIGHEST_PRIORITY - priority
        queue = self._queue_of(celery_task)
        arguments = queue.queue_arguments or {}
        if not (queue.max_priority or arguments.get("x-max-priority")):
            message = (
                f"enqueue: the queue {queue.name!r} has no priorities. Set "
                "app.conf.task_queue_max_priority = 9 before it is declared."
            )
            raise DefinitionError(message)
        return priority

    def _queue_of(self, celery_task: Any) -> Any:
        """Return the queue that messages of a task go to."""
        own = getattr(celery_task, "queue", None)
        given = {} if own is None else {"queue": own}
        return self.app.amqp.router.route(given, celery_task.name)["queue"]

    # -- in a worker ----------------------------------------------------------------

    def _work(
        self,
        cls: type[Task[Any]],
        celery_task: Any,
        earlier: tuple[Any, ...],
        inputs: dict[str, Any],
    ) -> dict[str, Any] | None:
        """Run a leg; what is returned or raised is stored by Celery."""
        request = celery_task.request
        if request.called_directly:
            refuse_call(cls)
        origin = (request.headers or {}).get(HEADER)
        message = EngineMessage(request.id, "celery", inputs, earlier, origin)
        longest_pause = math.inf if request.is_eager else self.longest_pause
        try:
            result = run_leg(cls, message, longest_pause, run_coroutine)
        except Suspended as suspended:
            hand_over(celery_task, inputs, suspended)
        except (SystemExit, KeyboardInterrupt) as error:
            if is_worker_ending(error):
                raise
            raise lost_run(error) from error  # else it would be delivered again
        else:
            return self._answer(celery_task, result)
        raise Ignore  # the message that goes on has the same id, and will have a result

    def _answer(self, celery_task: Any, result: Result[Any]) -> dict[str, Any] | None:
        """Return what is stored of a result, and raise if it has failed."""
        if result.failed:
            raise failure_of(result, storable(dump_result(result)))
        is_wanted = not celery_task.ignore_result and has_backend(self.app)
        is_eager = celery_task.request.is_eager
        return storable(dump_result(result)) if is_wanted or is_eager else None


def is_worker_ending(error: BaseException) -> bool:
    """Tell whether a worker is being ended, and not the task alone has exited."""
    is_told = isinstance(error, (WorkerShutdown, WorkerTerminate))
    return is_told or terminate_handler_fired()


def run_coroutine(steps: Coroutine[Any, Any, Any]) -> Any:
    """Run an asynchronous task; workers of Celery have no event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(steps)
    steps.close()
    reason = (
        "Celery runs the task at once, and an asynchronous task cannot run inside of "
        "an event loop. Call it by asyncio.to_thread, or unset task_always_eager."
    )
    raise TaskFailed(reason)


def hand_over(celery_task: Any, inputs: dict[str, Any], suspended: Suspended) -> None:
    """Send the message by which the run goes on, to where this one came from."""
    arguments = (suspended.to_dict(),)
    message = celery_task.signature_from_request(args=arguments, kwargs=inputs)
    try:
        send_later(message.apply_async, suspended.pause)
    except OperationalError as error:  # the broker cannot be reached
        raise Reject(error, requeue=True) from error  # this leg is done again


def send_later(send: Callable[..., Any], seconds: float) -> Any:
    """Send a message with a countdown."""
    try:
        return send(countdown=seconds)
    except ValueError:
        if seconds >= 1:
            raise
        # Quorum queues count in whole seconds, and Celery makes none of less than one.
        return send(countdown=1)


def check_app(app: Any) -> Any:
    """Return an app of Celery; refuse anything else."""
    if isinstance(app, Celery):
        return app
    message = f"CeleryEngine takes an app, such as Celery('shop'), got {app!r}."
    raise TypeError(message)


def check_base(base: Any) -> None:
    """Refuse a base class of Celery by which tasks are retried."""
    if getattr(base, "autoretry_for", None):
        message = (
            f"the base class {base.__qualname__} has autoretry_for, so that Celery "
            "would retry as well. Leave that out, and use @retry_on."
        )
        raise DefinitionError(message)


def check_is_own(celery_task: Any, run: Any) -> None:
    """Refuse a task whose name the app has given to another function before."""
    if getattr(celery_task.run, "__func__", None) is not run:
        message = (
            f"this app has another task with the name {celery_task.name!r}, which "
            "would be run instead. Rename one: class ChargeCard(Task, name=...), or "
            "use one engine for the app."
        )
        raise DefinitionError(message)


# -- JSON as Celery reads it ----------------------------------------------------------

TAGS = {"__type__", "__value__"}
"""What has both keys is read by Celery as a value of a type of its own."""


def has_tags(data: Any) -> bool:
    """Tell whether something that is JSON would be read as something else."""
    if isinstance(data, dict):
        return data.keys() >= TAGS or any(map(has_tags, data.values()))
    return isinstance(data, list) and any(map(has_tags, data))


def check_is_readable(inputs: dict[str, Any]) -> None:
    """Refuse inputs that a worker would not get as they are."""
    for name, value in inputs.items():
        if has_tags(value):
            message = (
                f"the input {name!r} contains the keys '__type__' and '__value__', "
                "by which Celery marks values of its own. Use other keys."
            )
            raise WireError(message)


def storable(data: Any) -> Any:
    """Return data that Celery reads as it is: as text, if it would not."""
    return json.dumps(data) if has_tags(data) else data


def restored(data: Any) -> Any:
    """Return what ``storable`` was given."""
    return json.loads(data) if isinstance(data, str) else data


# -- apps -----------------------------------------------------------------------------


def confirm_messages(sender: Any, **_facts: Any) -> None:
    """Have the broker confirm messages, so that none is lost on its way."""
    options = sender.conf.broker_transport_options
    if "confirm_publish" not in options:
        own = {**options, "confirm_publish": True}
        sender.conf.broker_transport_options = own


def has_backend(app: Any) -> bool:
    """Tell whether results are stored."""
    return not isinstance(app.backend, DisabledBackend)


class CeleryHandle(Handle[Any]):
    """An invocation that was sent to Celery."""

    def __init__(self, sent: Any) -> None:
        super().__init__(sent.id)
        self._sent = sent

    def _read(self, timeout: float | None) -> Any:
        if not isinstance(self._sent, EagerResult):
            require_results(self._sent)
        try:
            answer = self._sent.get(timeout=timeout, propagate=False)
        except CeleryTimeout:
            return None
        if isinstance(answer, TaskFailed):
            return TaskFailed(answer.reason, restored(answer.result))
        return restored(answer)


def require_results(sent: Any) -> None:
    """Refuse to wait for a result that is not stored."""
    if sent.ignored:
        message = "results of this task are not stored. Leave out ignore_result=True."
        raise CmdxError(message)
    if not has_backend(sent.app):
        message = (
            "this Celery app stores no results. Make it with a result backend: "
            "Celery(..., backend=...)."
        )
        raise CmdxError(message)
