"""
Connections to endpoints: who opens them, keeps them for the next event and closes them.

A connection goes only to an address that was judged. It is kept for a second after its
event, and is closed with the event loop that it belongs to.
"""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cmdx.exceptions import CmdxError
from cmdx.extras import how_to_install

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator

    import httpcore

    from cmdx.delivery.guard import Guard
    from cmdx.delivery.sending import Request

KEEP_ALIVE = 1.0
"""Seconds that a connection is kept for the next event. Servers close theirs later, so
that no event is sent on a connection that is being closed."""

CONNECT_PATIENCE = 2.0
"""Seconds for a connection to an address, if the host has others."""

END_OF_HEAD = b"\r\n\r\n"

MOST_KEPT = 8
"""How many connections to one server are kept."""


class Connections:
    """
    The connections of one event loop that wait for the next event.

    The pool of the library looks at all of its connections several times for each
    request, which takes longer than the request.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._kept: dict[str, list[httpcore.AsyncHTTPConnection]] = {}
        """By the beginning of the URL that says the server."""
        self._timer: asyncio.TimerHandle | None = None
        """When those are closed that nobody has used again."""
        self._closing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def post(self, request: Request) -> AsyncIterator[httpcore.Response]:
        """Send a request, and yield its response; what is not read is not received."""
        url = parsed_url(request.url)
        kept = self._kept.setdefault(str(url.origin), [])
        connection = await self._take(kept, url.origin)
        try:
            async with connection.stream(
                "POST", url, headers=all_headers(request), content=request.body
            ) as response:
                yield response
        finally:
            await self._give_back(kept, connection)

    async def aclose(self) -> None:
        """Close all of them."""
        if self._timer is not None:
            self._timer.cancel()
        for kept in self._kept.values():
            while kept:
                await kept.pop().aclose()

    async def close_expired(self) -> None:
        """Close those that were kept long enough."""
        for kept in [*self._kept.values()]:
            expired = [connection for connection in kept if connection.has_expired()]
            kept[:] = [connection for connection in kept if connection not in expired]
            for connection in expired:
                await connection.aclose()
        if any(self._kept.values()) and self._timer is None:
            self._plan_closing()

    async def _take(
        self, kept: list[httpcore.AsyncHTTPConnection], origin: httpcore.Origin
    ) -> httpcore.AsyncHTTPConnection:
        """Return a connection that was kept, or a new one."""
        while kept:
            connection = kept.pop()
            if connection.is_idle() and not connection.has_expired():
                return connection
            await connection.aclose()
        found: httpcore.AsyncHTTPConnection = import_httpcore().AsyncHTTPConnection(
            origin,
            ssl_context=strict_context() if origin.scheme == b"https" else None,
            keepalive_expiry=KEEP_ALIVE,
            network_backend=guarded_backend(self._guard),
        )
        return found

    async def _give_back(
        self,
        kept: list[httpcore.AsyncHTTPConnection],
        connection: httpcore.AsyncHTTPConnection,
    ) -> None:
        """Keep a connection for the next event, if it can be used again."""
        if connection.is_idle() and len(kept) < MOST_KEPT:
            kept.append(connection)
            if self._timer is None:
                self._plan_closing()
        else:
            await connection.aclose()

    def _plan_closing(self) -> None:
        """Have connections be closed that nobody uses, also if no other event comes."""
        import asyncio

        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(2 * KEEP_ALIVE, self._begin_closing, loop)

    def _begin_closing(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        self._closing = loop.create_task(self.close_expired())


def all_headers(request: Request) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request, with that of the host."""
    host = urlsplit(request.url).netloc.encode()
    given = ((name.encode(), value.encode()) for name, value in request.headers.items())
    return [(b"host", host), *given]


@lru_cache
def parsed_url(text: str) -> httpcore.URL:
    """Return a URL for the library, which would leave out what follows a semicolon."""
    parts = urlsplit(text)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    url: httpcore.URL = import_httpcore().URL(
        scheme=parts.scheme, host=parts.hostname or "", port=parts.port, target=target
    )
    return url


# -- one set for each event loop ------------------------------------------------------

_of_loops: dict[asyncio.AbstractEventLoop, dict[Guard, Any]] = {}
"""The connections of each event loop, by their guards, and what keeps them."""


async def connections_of(guard: Guard) -> Connections:
    """Return the connections of this event loop, which are closed with it."""
    import asyncio

    loop = asyncio.get_running_loop()
    found = _of_loops.setdefault(loop, {})
    if guard not in found:
        keeper = keep_connections(loop, guard)
        found[guard] = (keeper, await anext(keeper))
    connections: Connections = found[guard][1]
    return connections


async def keep_connections(
    loop: asyncio.AbstractEventLoop, guard: Guard
) -> AsyncIterator[Connections]:
    """
    Yield connections, and close them when the event loop shuts down.

    It is a generator, because a loop closes its asynchronous generators before it ends,
    and has no other way to be told.
    """
    connections = Connections(guard)
    try:
        yield connections
    finally:
        _of_loops.pop(loop, None)  # the generator refers to it, so it would stay
        await connections.aclose()


@lru_cache
def strict_context() -> ssl.SSLContext:
    """Return how connections are encrypted; reading all certificates takes long."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


@lru_cache
def guarded_backend(guard: Guard) -> Any:
    """Return what opens connections, only to addresses that were judged."""
    http = import_httpcore()

    class GuardedBackend(http.AnyIOBackend):  # type: ignore[misc,name-defined]
        async def connect_tcp(self, host: str, port: int, **options: Any) -> Any:
            connect = super().connect_tcp
            *others, last = await guard.resolve(host, port)
            limited = {**options, "timeout": CONNECT_PATIENCE}
            for address in others:  # such as one of IPv6, which has no route here
                with suppress(http.ConnectError, http.ConnectTimeout):
                    return Connection(await connect(address, port, **limited))
            return Connection(await connect(last, port, **options))

    return GuardedBackend()


class Connection:
    """
    A connection of the library, but for two things.

    The head of a request goes out together with its body, because two packets take
    twice as long. And it is closed if it is not encrypted in time.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        """Be the connection of the library in all else."""
        return getattr(self._stream, name)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 -- as the library calls it
        """Send a part of a request; each has a body, which is JSON."""
        if buffer.endswith(END_OF_HEAD):
            self._head = buffer
        elif buffer:
            head, self._head = self._head, b""
            await self._stream.write(head + buffer, timeout)

    async def start_tls(self, *given: Any, **options: Any) -> Connection:
        """Encrypt the connection."""
        try:
            return Connection(await self._stream.start_tls(*given, **options))
        except BaseException:  # such as the end of the time, unlike the library
            await self._stream.aclose()
            raise


def import_httpcore() -> Any:
    """Import the library that speaks HTTP, which is an extra."""
    try:
        import anyio  # noqa: F401 -- it needs that
        import httpcore
    except ImportError:
        cure = how_to_install("delivery")
        message = f"deliveries need httpcore and anyio. {cure}."
        raise CmdxError(message) from None
    return httpcore
