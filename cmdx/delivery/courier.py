"""
``Courier``: what people call to send webhooks.

1. an event becomes a job of the queue, with a key         ``Courier.send``
2. a worker claims it, if the state of the courier says so  ``cmdx.delivery.lane``
3. it is sent, signed, to an address that was judged      ``cmdx.delivery.sending``
4. what came of it may change the state                  ``cmdx.delivery.machine``
5. somebody looks at it, or replays it               ``Courier.deliveries``, …

A courier with a retention keeps events in order and waits for endpoints that fail. One
without sends each event again some times, 30 s apart.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cmdx.declare.checks import check_count, check_seconds
from cmdx.delivery import records
from cmdx.delivery.checks import (
    check_mapping,
    check_name,
    check_options,
    check_queue,
    check_rate,
)
from cmdx.delivery.connections import import_httpcore
from cmdx.delivery.deliveries import Delivery, DeliveryAttempt
from cmdx.delivery.endpoints import (
    check_endpoint,
    check_retention,
    check_url,
    read_configuration,
)
from cmdx.delivery.events import (
    TASK,
    check_delivery_id,
    event_row,
    job_filters,
    send_within,
    sending,
)
from cmdx.delivery.guard import Guard, checked_allow
from cmdx.delivery.lane import CourierLane
from cmdx.delivery.signing import checked_secrets
from cmdx.exceptions import DefinitionError
from cmdx.queue import Job, JobGone, actions
from cmdx.queue.enqueue import check_text
from cmdx.queue.filters import with_dead
from cmdx.queue.lanes import lane_beside
from cmdx.queue.outbox import outbox_of
from cmdx.run.lifecycle import drive

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from typing import Self, Unpack

    from cmdx.delivery.endpoints import Endpoint
    from cmdx.delivery.events import DeliveryFilters
    from cmdx.delivery.machine import CourierState
    from cmdx.delivery.signing import Secrets, Signing
    from cmdx.queue import Queue
    from cmdx.queue.actions import Action
    from cmdx.queue.table import JobRecord
    from cmdx.stores import Statements


class Courier:
    """
    Sends events to endpoints, in order and again if need be.

    Example::

        courier = Courier(queue, {"paid": Endpoint("https://a.example/hook")},
                          retention=86_400, secret="whsec_…")
        courier.send("paid", {"order": 7}, conversation="customer-3")

    Args:
        queue: The queue that stores the events, and whose workers send them.
        endpoints: Where the events of each type are sent.
        name: The name of the courier; all that have it share one state.
        retention: The seconds that events are kept that cannot be sent: 2 to 259200.
            Without it they are sent again as often as *max_retries* of their endpoint
            says, in no particular order.
        secret: The secret of signatures, or several of which the first is the newest.
        signing: ``"standard"`` (Standard Webhooks), ``"sha1"`` or ``"sha256"``.
        timeout: The seconds that an endpoint has to answer.
        recovery_rate: How many events per second an endpoint gets at the most while
            stored events are being sent.
        accept: The statuses that mean success.
        allow: Addresses, networks or names of your own network that may be sent to.
        allow_http: Whether URLs may begin with ``http://``.
    """

    def __init__(  # noqa: PLR0913 -- by keyword
        self,
        queue: Queue,
        endpoints: Mapping[str, Endpoint],
        *,
        name: str = "default",
        retention: float | None = None,
        secret: Secrets | None = None,
        signing: Signing = "standard",
        timeout: float = 10.0,
        recovery_rate: float | None = None,
        accept: Sequence[int] = (200, 201),
        allow: Iterable[str] = (),
        allow_http: bool = False,
    ) -> None:
        import_httpcore()
        self.queue = check_queue(queue)
        self.name = check_name(name)
        check_options(signing=signing, accept=accept, allow_http=allow_http)
        self.guard = Guard.of(allow)
        checked = {
            check_text("event type", event_type, where="Courier"): check_endpoint(
                f"Courier: {event_type}", endpoint, self.guard, allow_http=allow_http
            )
            for event_type, endpoint in check_mapping(endpoints).items()
        }
        self.endpoints: Mapping[str, Endpoint] = MappingProxyType(checked)
        self.retention = check_retention("Courier: retention", retention)
        self.signing: Signing = signing
        self._signing_keys = checked_secrets("Courier", secret, signing)
        self._own_signing_keys = {
            event_type: checked_secrets(f"Courier: {event_type}", given, signing)
            for event_type, endpoint in self.endpoints.items()
            if (given := endpoint.secret) is not None
        }
        self.timeout = check_seconds("Courier", "timeout", timeout, above_zero=True)
        self.recovery_rate = check_rate(recovery_rate)
        self.accept = tuple(map(int, accept))
        self._record = self._register()
        self.gone_types: AbstractSet[str] = (
            self._record.tracks.keys() - self.endpoints.keys()
        )
        """Types of events that it had before it was made, and has no endpoint for."""

    @classmethod
    def from_config(
        cls, queue: Queue, config: Mapping[str, Any], **options: Any
    ) -> Self:
        """
        Return a courier for the configuration of an app install, as JSON.

        Args:
            queue: As for ``Courier``.
            config: The object with ``capabilities.webhooks``.
            options: Further options of ``Courier``, such as *secret*.
        """
        read = read_configuration(config)
        if "retention" in options:
            message = (
                "from_config: the retention is capabilities.webhooks.retry."
                "retention_time. Leave out retention=."
            )
            raise DefinitionError(message)
        if "allow" in options:  # it is read twice
            options["allow"] = checked_allow(options["allow"])
        guard = Guard.of(options.get("allow", ()))
        for name, endpoint in read.endpoints.items():
            where = f"capabilities.webhooks.{name}.endpoint"
            allow_http = options.get("allow_http", False)
            check_url(where, endpoint.url, guard, allow_http=allow_http)
        return cls(queue, read.endpoints, retention=read.retention, **options)

    def __repr__(self) -> str:
        """Show the queue and the name."""
        return f"Courier({self.queue!r}, {self.name!r})"

    def rank_of(self, event_type: str) -> int:
        """Return what waiting events of a type are found by."""
        return self._record.rank_of(event_type)

    def signing_keys_of(self, event_type: str) -> tuple[bytes, ...]:
        """Return the keys that sign the events of a type."""
        return self._own_signing_keys.get(event_type, self._signing_keys)

    def _register(self) -> records.CourierRecord:
        """Store the courier if it is new, and let the workers of this process know."""
        queue, name, event_types = self.queue.name, self.name, list(self.endpoints)

        def register(statements: Statements) -> records.CourierRecord:
            return records.register_courier(statements, queue, name, event_types)

        record = self.queue.store.transact(register)
        self._lane().couriers[record.number] = self
        return record

    def _lane(self) -> CourierLane:
        return lane_beside(self.queue, CourierLane, CourierLane)

    @property
    def _newest(self) -> Courier:
        """The courier of this name that was made last in this process, and sends."""
        return self._lane().couriers[self._record.number]

    # -- sending --------------------------------------------------------------------

    def send(
        self,
        event_type: str,
        payload: Any,
        *,
        conversation: str | None = None,
        id: str | None = None,  # noqa: A002 -- as users write it
        within: Any = None,
    ) -> Delivery:
        """
        Store an event, to be sent by a worker.

        Args:
            event_type: The type, which has an endpoint.
            payload: What JSON knows; it becomes the body.
            conversation: Events of one conversation are sent in order, if the courier
                has a retention. Without one, the event is on its own.
            id: The id of the webhook. An event that has it already is returned; if it
                is another one, ``JobConflict`` is raised.
            within: Your own connection to the database of the queue. The event is
                stored in its transaction, and is there if you commit.
        """
        row, task = event_row(self, event_type, payload, conversation, id)
        has_id = id is not None
        if within is not None:
            store = self.queue.store
            outbox = drive(outbox_of(within, store, awaits=False, twin="asend()"))
            found = drive(send_within(outbox, row, has_id=has_id))
            return Delivery(actions.uncommitted(self.queue, found, row, task))
        return Delivery(self.queue._do(sending(self.queue, row, task, has_id=has_id)))

    async def asend(
        self,
        event_type: str,
        payload: Any,
        *,
        conversation: str | None = None,
        id: str | None = None,  # noqa: A002 -- as users write it
        within: Any = None,
    ) -> Delivery:
        """
        Do what ``send`` does, without blocking the event loop.

        *within* may be an asynchronous connection.
        """
        row, task = event_row(self, event_type, payload, conversation, id)
        has_id = id is not None
        if within is not None:
            outbox = await outbox_of(within, self.queue.store, awaits=True)
            found = await send_within(outbox, row, has_id=has_id)
            return Delivery(actions.uncommitted(self.queue, found, row, task))
        action = sending(self.queue, row, task, has_id=has_id)
        return Delivery(await self.queue._ado(action))

    # -- looking --------------------------------------------------------------------

    @property
    def state(self) -> CourierState:
        """What is known about the endpoints: ``"up"``, ``"failed"`` and so on."""
        return self.queue.store.transact(self._read_state, read_only=True)

    async def astate(self) -> CourierState:
        """Return what ``state`` is, without blocking the event loop."""
        return await self.queue.store.atransact(self._read_state, read_only=True)

    def _read_state(self, statements: Statements) -> CourierState:
        return records.read_state(statements, self.queue.name, self.name)

    def deliveries(
        self, *, limit: int = 100, **filters: Unpack[DeliveryFilters]
    ) -> list[Delivery]:
        """
        Return the oldest deliveries that match all filters.

        Args:
            limit: How many at the most.
            state: The state of the job: ``"dead"`` for those that were dropped.
            event_type: The type.
            conversation: The conversation.
            since: Those whose ``send`` was called at this time or later: a datetime
                with a time zone, or seconds since 1970.
            until: Those whose ``send`` was called before this time.
        """
        found = self.queue._do(self._finding(limit, filters))
        return list(map(Delivery, found))

    async def adeliveries(
        self, *, limit: int = 100, **filters: Unpack[DeliveryFilters]
    ) -> list[Delivery]:
        """Do what ``deliveries`` does, without blocking the event loop."""
        found = await self.queue._ado(self._finding(limit, filters))
        return list(map(Delivery, found))

    def _finding(
        self, limit: int, filters: DeliveryFilters
    ) -> Action[list[JobRecord], list[Job[Any]]]:
        check_count("deliveries", "limit", limit, least=0)
        return actions.finding(
            self.queue, limit, job_filters("deliveries", self.name, filters)
        )

    def get(self, id: str) -> Delivery | None:  # noqa: A002 -- as users write it
        """Return a delivery by its id; None if there is none."""
        return self._own(self.queue.get(check_delivery_id(id)))

    async def aget(self, id: str) -> Delivery | None:  # noqa: A002 -- as users write it
        """Do what ``get`` does, without blocking the event loop."""
        return self._own(await self.queue.aget(check_delivery_id(id)))

    def _own(self, job: Job[Any] | None) -> Delivery | None:
        if job is None or job.task != TASK:
            return None
        delivery = Delivery(job)
        return delivery if delivery.courier == self.name else None

    def _delivery_of(self, record: JobRecord) -> Delivery:
        return Delivery(Job(self.queue, record))

    def attempts(self, id: str) -> list[DeliveryAttempt]:  # noqa: A002 -- as users write it
        """Return the attempts to send an event, the first one first."""
        found = self._require(id, self.get(id))
        return self.queue.store.transact(reading_attempts(found), read_only=True)

    async def aattempts(self, id: str) -> list[DeliveryAttempt]:  # noqa: A002 -- as users write it
        """Do what ``attempts`` does, without blocking the event loop."""
        found = self._require(id, await self.aget(id))
        store = self.queue.store
        return await store.atransact(reading_attempts(found), read_only=True)

    def _require(self, id_: str, found: Delivery | None) -> Delivery:
        if found is None:
            raise JobGone(id_)
        return found

    # -- replaying ------------------------------------------------------------------

    def replay(self, id: str) -> Delivery:  # noqa: A002 -- as users write it
        """
        Have an event be sent again, with the same id, and return it.

        It goes to the end of its conversation. One that has not ended is returned as it
        is.
        """
        self._require(id, self.get(id))
        return Delivery(self.queue.replay(id))

    async def areplay(self, id: str) -> Delivery:  # noqa: A002 -- as users write it
        """Do what ``replay`` does, without blocking the event loop."""
        self._require(id, await self.aget(id))
        return Delivery(await self.queue.areplay(id))

    def replay_all(self, **filters: Unpack[DeliveryFilters]) -> int:
        """
        Have all dropped events that match be sent again, and return how many.

        They are chosen by *event_type*, *conversation*, *since* and *until*, as for
        ``deliveries``. With *state* they are those in another state.
        """
        return actions.count_replayed(self.queue._do(self._replaying(filters)))

    async def areplay_all(self, **filters: Unpack[DeliveryFilters]) -> int:
        """Do what ``replay_all`` does, without blocking the event loop."""
        replayed = await self.queue._ado(self._replaying(filters))
        return actions.count_replayed(replayed)

    def _replaying(self, filters: DeliveryFilters) -> Any:
        dead = with_dead(job_filters("replay_all", self.name, filters))
        return actions.replaying(self.queue, dead, of_lanes=True)


def reading_attempts(delivery: Delivery) -> Any:
    """Return the unit that reads the attempts of a delivery."""

    def read(statements: Statements) -> list[DeliveryAttempt]:
        rows = statements.execute(records.ATTEMPTS_OF, delivery=delivery.id)
        return [DeliveryAttempt(*row) for row in rows]

    return read
