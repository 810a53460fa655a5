"""
A real server for webhooks, on the loopback of this machine.

Each path answers by a script, and 200 when that is over. What came in is recorded, with
the time of the clock that was current when the block was entered.
"""

from __future__ import annotations

import json
import socket
import struct
from collections import deque
from contextlib import suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Condition, Event, Thread
from typing import TYPE_CHECKING, Any

import attrs

from cmdx import clock
from cmdx.exceptions import CmdxError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from email.message import Message
    from io import BufferedIOBase
    from typing import Self

WITHOUT_BODY = (204, 304)
"""Statuses of answers that never have a body."""

RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""Has a socket be reset instead of being closed in order."""


@attrs.frozen
class Answer:
    """
    What a receiver answers to one request.

    Args:
        status: The status.
        headers: Further headers.
        body: The body, unless the status forbids one.
        delay: The real seconds to wait before anything is sent.
        drip: The real seconds to wait after each byte of the body.
        reset: Whether the connection is reset instead.
    """

    status: int = 200
    headers: Mapping[str, str] = attrs.field(factory=dict, kw_only=True)
    body: bytes | str = attrs.field(default=b"", kw_only=True)
    delay: float = attrs.field(default=0.0, kw_only=True)
    drip: float = attrs.field(default=0.0, kw_only=True)
    reset: bool = attrs.field(default=False, kw_only=True)

    @property
    def content(self) -> bytes:
        """The body as bytes."""
        return self.body.encode() if isinstance(self.body, str) else self.body


@attrs.frozen
class Received:
    """One request, as a receiver got it."""

    path: str
    """The path, with its query."""
    headers: Mapping[str, str]
    """By their names in lower case."""
    body: bytes
    """The body."""
    status: int | None
    """What was answered; None if the connection was reset."""
    at: float
    """When it came, in seconds since 1970, by the clock of the block."""

    @property
    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)


class Receiver:
    """
    A server that takes webhooks; use it in a ``with`` block.

    Example::

        with Receiver() as hook:
            hook.script("/paid", [500, 500, 200])
            endpoint = Endpoint(f"{hook.url}/paid")
    """

    def __init__(self) -> None:
        self.url: str = ""
        """Where it listens, such as ``http://127.0.0.1:4711``."""
        self._scripts: dict[str, deque[Answer]] = {}
        self._received: list[Received] = []
        self._changed = Condition()
        self._clock = clock.current.get()
        self._server: Server | None = None

    def __enter__(self) -> Self:
        """Start to listen."""
        if self._server is not None:
            message = "this receiver listens already. Make another one."
            raise CmdxError(message)
        self._clock = clock.current.get()
        server = self._server = Server(self)
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        server.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Listen no longer, and break off answers that are under way."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def script(self, path: str, answers: Iterable[int | Answer]) -> None:
        """
        Say what is answered to the next requests of a path.

        Args:
            path: The path, such as ``"/paid"``; with the query, if there is one.
            answers: A status or an ``Answer`` for each request; those after them get
                200.
        """
        with self._changed:
            self._scripts[path] = deque(map(as_answer, answers))

    def received(self, path: str | None = None) -> list[Received]:
        """Return what came in, in order: for a path, or for all of them."""
        with self._changed:
            return [got for got in self._received if path in (None, got.path)]

    def count(self, path: str | None = None) -> int:
        """Return how many requests came in: for a path, or for all of them."""
        return len(self.received(path))

    def wait_for(
        self, count: int, path: str | None = None, seconds: float = 30.0
    ) -> None:
        """
        Wait until so many requests have come in.

        Args:
            count: How many.
            path: For a path, or for all of them.
            seconds: The real seconds to wait; ``TimeoutError`` is raised then.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.count(path) >= count, seconds):
                message = f"only {self.count(path)} of {count} requests have come in"
                raise TimeoutError(message)

    def _take(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Record a request, and return what is answered."""
        with self._changed:
            script = self._scripts.get(path)
            answer = script.popleft() if script else Answer()
            status = None if answer.reset else answer.status
            moment = self._clock.time()
            self._received.append(Received(path, headers, body, status, moment))
            self._changed.notify_all()
            return answer


def as_answer(given: int | Answer) -> Answer:
    """Return an answer, which may be given by its status alone."""
    return given if isinstance(given, Answer) else Answer(given)


# -- the server -----------------------------------------------------------------------


class Server(ThreadingHTTPServer):
    """A server with a thread for each connection; all end with it."""

    request_queue_size = 128

    def __init__(self, receiver: Receiver) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.receiver = receiver
        self.closing = Event()
        self._thread = Thread(target=self.serve_forever, args=[0.01], daemon=True)
        self._connections: dict[Thread, socket.socket] = {}

    def server_bind(self) -> None:
        """Take a port, and do not look up the name of this machine, as others do."""
        TCPServer.server_bind(self)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Close the port and all connections, and wait until all threads have ended."""
        self.closing.set()
        self.shutdown()
        self._thread.join()
        self.server_close()
        for thread, connection in self._connections.items():
            with suppress(OSError):  # it is closed
                connection.shutdown(socket.SHUT_RDWR)
            thread.join()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle the requests of a connection, in a thread."""
        connections = self._connections.items()
        self._connections = {old: kept for old, kept in connections if old.is_alive()}
        thread = Thread(
            target=self.process_request_thread,
            args=[request, client_address],
            daemon=True,
        )
        self._connections[thread] = request
        thread.start()

    def handle_error(self, *_request: Any, **_named: Any) -> None:
        """Be silent about clients that have gone away."""


class Handler(BaseHTTPRequestHandler):
    """What answers the requests of one connection."""

    server: Any
    """The ``Server``."""
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Record a request, and answer as the script says."""
        try:
            body = body_of(self.rfile, self.headers)
        except ValueError:
            self.close_connection = True
            self.send_answer(Answer(400))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer: Answer = self.server.receiver._take(self.path, headers, body)
        self.pause(answer.delay)
        if answer.reset:
            self.reset_connection()
        else:
            self.send_answer(answer)

    def refuse(self) -> None:
        """Refuse another method."""
        body_of(self.rfile, self.headers)  # or the client might see a reset instead
        self.send_answer(Answer(405, headers={"allow": "POST"}))

    do_GET = do_HEAD = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = refuse  # noqa: N815

    def pause(self, seconds: float) -> None:
        """Wait, but not longer than the server is there."""
        if self.server.closing.wait(min(seconds, clock.FOREVER)):
            message = "the receiver is closed"
            raise ConnectionAbortedError(message)

    def reset_connection(self) -> None:
        """Reset the connection instead of an answer."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.connection.close()

    def send_answer(self, answer: Answer) -> None:
        """Send an answer, byte by byte if it says so."""
        content = b"" if answer.status in WITHOUT_BODY else answer.content
        head = head_of(answer, len(content))
        if not answer.drip:
            self.wfile.write(head + content)
            return
        self.wfile.write(head)
        for number in range(len(content)):
            self.wfile.write(content[number : number + 1])
            self.pause(answer.drip)

    def log_message(self, *_facts: Any, **_named: Any) -> None:
        """Be silent."""


def head_of(answer: Answer, length: int) -> bytes:
    """Return the begin of an answer, with its headers."""
    headers = {"date": formatdate(usegmt=True)}
    if answer.status not in WITHOUT_BODY:
        headers["content-length"] = str(length)
    headers |= {name.lower(): value for name, value in answer.headers.items()}
    lines = [f"HTTP/1.1 {answer.status} -"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def body_of(file: BufferedIOBase, headers: Message) -> bytes:
    """Read the body of a request; raise ``ValueError`` if it is not all there."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return b"".join(chunks_of(file))
    return read_exactly(file, int(headers.get("content-length", "0")))


def chunks_of(file: BufferedIOBase) -> Iterator[bytes]:
    """Yield the chunks of a body that has no length."""
    while size := int(file.readline().partition(b";")[0], 16):
        yield read_exactly(file, size)
        file.readline()
    while file.readline().strip():
        """Skip what follows the body."""


def read_exactly(file: BufferedIOBase, size: int) -> bytes:
    """Read so many bytes; raise ``ValueError`` if there are fewer."""
    found = file.read(size) if size > 0 else b""
    if len(found) != size:
        message = "the client has gone away"
        raise ValueError(message)
    return found
