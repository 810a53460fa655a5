"""
Sending one event to its endpoint.

1. the endpoint and its secret are looked up, the request is signed     ``Deliver``
2. a connection is opened, or one that was kept is used   ``cmdx.delivery.connections``
3. the request is sent, and the begin of the answer is read     ``exchange_with``
4. whatever went wrong has a reason in words                    ``reason_of``

One timeout is around all of it. The library that speaks HTTP follows no redirect, and
takes no proxy from the environment.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from cmdx import Task, clock
from cmdx.delivery.connections import connections_of, import_httpcore
from cmdx.delivery.guard import AddressRefused
from cmdx.delivery.records import number_of
from cmdx.delivery.signing import signature_headers
from cmdx.guidance.parse import seconds_of
from cmdx.queue.jobs import current_leg
from cmdx.queue.lanes import lane_of
from cmdx.queue.table import storable_text
from cmdx.wire.results import result_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import httpcore

    from cmdx import Result
    from cmdx.delivery.courier import Courier
    from cmdx.delivery.endpoints import Endpoint

MOST_OF_ANSWER = 4096
"""How many bytes of an answer are read."""

LARGEST_ANSWER = 10_000_000
"""Bytes that an answer may announce; what has more is no answer to a webhook."""

LONGEST_REASON = 500
"""Characters; what is not HTTP is quoted in it."""


Headers: TypeAlias = "list[tuple[bytes, bytes]]"


@attrs.frozen
class Exchange:
    """What came of sending an event once."""

    sent_at: float
    duration: float
    status: int | None
    reason: str | None
    """Why it failed; None if the endpoint has accepted the event."""
    answer: str = ""
    """The begin of what the endpoint has answered."""
    wait: float = 0.0
    """The seconds that the endpoint asks to wait, by ``Retry-After``."""
    text: str = ""
    """The result of the run, as it is stored with an event that was accepted."""

    @property
    def is_accepted(self) -> bool:
        """Whether the endpoint has accepted the event."""
        return self.reason is None


def exchange_of(result: Result[Any], note: Exchange | None) -> Exchange:
    """Return what came of a run; a run that was not even begun has failed too."""
    if note is None or (result.failed and note.is_accepted):
        reason = result.reason or "it was not sent"
        moment = clock.current.get().time()
        note = Exchange(moment, result.duration, None, storable_text(reason))
    return note if result.failed else attrs.evolve(note, text=result_text(result))


class Deliver(Task[int], name="cmdx.delivery"):
    """Send one event to its endpoint."""

    courier: str
    event_type: str
    body: str
    conversation: str | None = None

    async def work(self) -> int:
        """Send it, and return the status of the answer."""
        leg = current_leg.get()
        if leg is None or leg.record.lane is None:
            self.fail("a delivery is sent by a worker. Use Courier.send().")
        lane: Any = lane_of(leg.queue, leg.record.lane)
        courier: Courier = lane.couriers[number_of(leg.record.lane)]
        endpoint = courier.endpoints.get(self.event_type)
        if endpoint is None:
            self.fail(f"no endpoint is left for events of type {self.event_type!r}")
        self.metadata.update(
            courier=self.courier, event_type=self.event_type, delivery=leg.record.id
        )
        sent_at = leg.queue.store.now()
        keys = courier.signing_keys_of(self.event_type)
        signed = signature_headers(
            courier.signing, keys, leg.record.id, int(sent_at), self.body.encode()
        )
        request = Request.of(endpoint, self.body.encode(), signed)
        exchange = leg.note = await exchange_with(courier, request, sent_at)
        if exchange.reason is not None:
            self.fail(exchange.reason, status=exchange.status)
        return exchange.status or 0


@attrs.frozen
class Request:
    """What is sent."""

    url: str
    headers: Mapping[str, str]
    body: bytes

    @classmethod
    def of(cls, endpoint: Endpoint, body: bytes, signed: Mapping[str, str]) -> Request:
        """Return the request to an endpoint."""
        own = {name.lower(): value for name, value in (endpoint.headers or {}).items()}
        usual = {"content-type": "application/json", "user-agent": "cmdx"}
        return cls(endpoint.url, {**usual, **own, **signed}, body)


# -- the exchange ---------------------------------------------------------------------


async def exchange_with(courier: Courier, request: Request, sent_at: float) -> Exchange:
    """Send a request; nothing is raised because of what the other side does."""
    import asyncio

    began = clock.Clock.monotonic()
    status, wait, size, reason = None, 0.0, 0, None
    answer = bytearray()  # what was read counts, whatever happens then
    scope = asyncio.timeout(courier.timeout)
    try:
        async with scope:
            connections = await connections_of(courier.guard)
            async with connections.post(request) as response:
                status = response.status
                wait, size = wait_in(response.headers), size_in(response.headers)
                await read_begin(response, answer)
    except Exception as error:
        is_late = scope.expired()
        reason = late_text(courier.timeout) if is_late else reason_of(error)
    duration = clock.Clock.monotonic() - began
    if reason is None:
        reason = refusal(status, size, duration, courier)
    return Exchange(
        sent_at,
        duration,
        status,
        storable_text(reason),
        storable_text(answer.decode("utf-8", "replace")) or "",
        wait,
    )


def refusal(
    status: int | None, size: int, duration: float, courier: Courier
) -> str | None:
    """Return why an answer is no success; None if it is one, at the last moment too."""
    if duration > courier.timeout:
        return late_text(courier.timeout)
    if status not in courier.accept:
        return f"it answered with {status}"
    if size > LARGEST_ANSWER:
        return f"its answer is too large: {size} bytes"
    return None


def late_text(timeout: float) -> str:
    """Say that an answer came too late, or not at all."""
    return f"it took longer than {timeout:g} s"


async def read_begin(response: httpcore.Response, answer: bytearray) -> None:
    """Read the first bytes of an answer; the rest is not read."""
    async for chunk in response.aiter_stream():
        answer += chunk[: MOST_OF_ANSWER - len(answer)]
        if len(answer) == MOST_OF_ANSWER:
            return


def wait_in(headers: Headers) -> float:
    """Return the seconds that an answer asks to wait."""
    return max(seconds_of(header_in(headers, b"retry-after")) or 0.0, 0.0)


def size_in(headers: Headers) -> int:
    """Return the size that an answer announces; the library refuses what is none."""
    return int(header_in(headers, b"content-length") or 0)


def header_in(headers: Headers, wanted: bytes) -> str:
    """Return the value of a header; nothing if it is not there."""
    values = (value for name, value in headers if name.lower() == wanted)
    return next(values, b"").decode("latin-1")


REASONS: tuple[tuple[type[Exception], str], ...] = (
    (AddressRefused, "it is refused: {0}"),
    (ssl.SSLCertVerificationError, "its certificate is not valid: {0.verify_message}"),
    (ssl.SSLError, "the connection could not be encrypted: {0}"),
    (socket.gaierror, "its host cannot be found"),
    (ConnectionRefusedError, "the connection was refused"),
    (ConnectionError, "the connection was reset"),
)
"""What errors mean; the first one that fits."""


def reason_of(error: Exception) -> str:
    """Say in words why an event could not be sent, or its answer not be read."""
    if isinstance(error, import_httpcore().RemoteProtocolError):
        return f"its answer cannot be read: {error}"[:LONGEST_REASON]
    causes = list(causes_of(error))
    for cause in causes:
        for kind, words in REASONS:
            if isinstance(cause, kind):
                return words.format(cause)[:LONGEST_REASON]
    words = str(causes[-1]) or words_of(causes[-1])
    return f"the connection failed: {words}"[:LONGEST_REASON]


def causes_of(error: Exception) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    cause: BaseException | None = error
    if isinstance(error, import_httpcore().NetworkError):
        yield error
        cause = error.__context__  # the library hides what it has wrapped
    while cause is not None:
        yield cause
        cause = cause.__cause__


def words_of(error: BaseException) -> str:
    """Return words for an error that has none."""
    import anyio

    is_end = isinstance(error, anyio.EndOfStream)
    return "it was closed at once" if is_end else type(error).__name__
