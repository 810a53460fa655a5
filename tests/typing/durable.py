"""What type checkers say about operations and jobs; checked by them, never run."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 -- read by checkers alone
from typing import TYPE_CHECKING, Any, assert_type

from cmdx import Result, RetryOptions, Task, required
from cmdx.engines import EngineMessage, Handle, current_message
from cmdx.operations import Ledger, Operation, operation
from cmdx.queue import Job, JobState, Queue, Schedule, Worker, current_job, queued

if TYPE_CHECKING:
    from cmdx.engines.dramatiq import DramatiqEngine


class Receipt:
    amount: int = 0


@operation(persist=True)
@queued(priority=5, key=lambda task: str(task.order_id), timeout=30)
class Charge(Task[Receipt]):
    order_id: int = required()

    def work(self) -> Receipt:
        assert_type(current_job(), Job[Any] | None)
        return Receipt()


# -- operations -------------------------------------------------------------------

session = Ledger("app.db").session("checkout")
assert_type(session.run(Charge(order_id=7), id="charge-7"), Result[Receipt])
assert_type(session.get("charge-7"), Operation | None)
session.run(Charge, id="charge-7")  # type: ignore[arg-type]
session.run(Charge(order_id="x"))  # type: ignore[arg-type]


# -- jobs -------------------------------------------------------------------------

queue = Queue("app.db", retry=RetryOptions(max_attempts=5))
job = queue.enqueue(Charge(order_id=7), after=60, unique="charge-7", until="started")
assert_type(job, Job[Receipt])
assert_type(job.wait(5), Result[Receipt])
assert_type(job.wait(5).value, Receipt)
assert_type(job.result, Result[Receipt] | None)
assert_type(job.state, JobState)
assert_type(queue.enqueue_many([Charge(order_id=7)]), list[Job[Receipt]])
assert_type(queue.counts(), dict[JobState, int])
assert_type(queue.find(state="dead", task=Charge, limit=5), list[Job[Any]])
assert_type(queue.schedule(Charge(order_id=7), cron="@daily"), Schedule)
assert_type(queue.worker(threads=4), Worker)
assert_type(queue.drain(ahead=60), int)

queue.enqueue(Charge)  # type: ignore[arg-type]
queue.enqueue(Charge(order_id=7), delay=60)  # type: ignore[call-arg]
queue.enqueue(Charge(order_id=7), at="tomorrow")  # type: ignore[arg-type]
queue.enqueue(Charge(order_id=7), until="then")  # type: ignore[arg-type]
queue.enqueue_many([Charge(order_id=7)], key="k")  # type: ignore[call-arg]
queue.find(status="dead")  # type: ignore[call-arg]
queue.schedule(Charge(order_id=7), cron=5)  # type: ignore[arg-type]


# -- engines ----------------------------------------------------------------------


def enqueue_on(engine: DramatiqEngine) -> None:
    engine.register(Charge, queue_name="payments")
    handle = engine.enqueue(Charge(order_id=7), after=60, priority=5)
    assert_type(handle, Handle[Receipt])
    assert_type(handle.wait(5), Result[Receipt])
    assert_type(handle.wait(5).value, Receipt)
    assert_type(current_message(), EngineMessage | None)
    engine.enqueue(Charge)  # type: ignore[arg-type]
    engine.enqueue(Charge(order_id=7), countdown=60)  # type: ignore[call-arg]
    engine.register(Charge(order_id=7))  # type: ignore[arg-type]


async def awaited(when: datetime) -> None:
    queued_job = await queue.aenqueue(Charge(order_id=7), at=when)
    assert_type(queued_job, Job[Receipt])
    assert_type((await queued_job).value, Receipt)
    assert_type(await queue.acancel(queued_job.id), bool)
    assert_type(await session.arun(Charge(order_id=7)), Result[Receipt])


@queued(prio=5)  # type: ignore[call-arg]
class Wrong(Task[None]):
    def work(self) -> None: ...
