"""One event over HTTP: what is sent, and what is made of any answer."""

from __future__ import annotations

import asyncio
import base64
import gc
import hashlib
import hmac
import math
import select
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tracemalloc
import warnings
import weakref
from contextlib import ExitStack, contextmanager, suppress
from email.utils import formatdate
from itertools import repeat
from threading import Event, Thread

import pytest

from cmdx import CmdxError, Task, clock
from cmdx.delivery import (
    Courier,
    CourierState,
    Endpoint,
    connections,
    sending,
    verify,
)
from cmdx.delivery.guard import Guard
from cmdx.delivery.sending import Deliver, Exchange, Request, exchange_of
from cmdx.queue import JobState, Queue, job_started
from cmdx.testing import Answer, Receiver

PATIENCE = 30.0
"""Seconds after which something that never comes has failed."""

SHORT = 0.2
"""A timeout, in seconds, of an answer that never comes."""

MEGABYTE = 1_000_000

SECRET = "whsec_" + base64.b64encode(b"a secret of the courier").decode()
OTHER_SECRET = "whsec_" + base64.b64encode(b"a secret of one endpoint").decode()


@pytest.fixture(autouse=True, scope="module")
def collected():
    """Let the collector find connections that were not closed: it warns of them."""
    yield
    gc.collect()


@pytest.fixture
def queue():
    made = Queue(":memory:")
    yield made
    made.store.close()


@pytest.fixture
def hook():
    with Receiver() as receiver:
        yield receiver


def new_courier(queue, url, **options):
    """Return a courier of one endpoint on this machine."""
    endpoint = url if isinstance(url, Endpoint) else Endpoint(url)
    usual = {"retention": 3600, "allow_http": True, "allow": ["127.0.0.1"]}
    return Courier(queue, {"paid": endpoint}, **{**usual, **options})


def attempt_to(queue, url, **options):
    """Send one event, and return the attempt."""
    courier = new_courier(queue, url, **options)
    delivery = courier.send("paid", {"order": 7})
    queue.drain()
    (attempt,) = courier.attempts(delivery.id)
    assert 0 <= attempt.duration < courier.timeout + PATIENCE
    return attempt


def request_to(queue, hook, url="/paid", **options):
    """Send one event, and return the request that came in."""
    attempt_to(queue, f"{hook.url}{url}", **options)
    (got,) = hook.received()
    return got


# -- servers that misbehave ------------------------------------------------------------


class Peer:
    """
    A server that does with each connection what a function does.

    Args:
        behave: Is called with the connection, in a thread, and with the peer.
        context: How connections are encrypted; not at all by default.
    """

    def __init__(self, behave, context=None):
        self.behave = behave
        self.context = context
        self.is_over = Event()
        self.sockets = []
        self.threads = []

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/paid"
        self.secure_url = f"https://127.0.0.1:{self.port}/paid"
        self.accepting = Thread(target=self.accept)
        self.accepting.start()
        return self

    def __exit__(self, *_error):
        self.is_over.set()
        socket.create_connection(("127.0.0.1", self.port)).close()
        self.accepting.join()
        self.listener.close()
        for each in self.sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self.await_all_closed()

    def accept(self):
        while True:
            connection, _ = self.listener.accept()
            if self.is_over.is_set():
                connection.close()
                return
            self.sockets.append(connection)
            self.threads.append(Thread(target=self.handle, args=[connection]))
            self.threads[-1].start()

    def handle(self, connection):
        with suppress(OSError), connection:  # the other side has gone away
            if self.context is None:
                self.behave(connection, self)
                return
            with self.context.wrap_socket(connection, server_side=True) as encrypted:
                self.behave(encrypted, self)

    def await_all_closed(self):
        """Wait until all connections are closed, by one side or the other."""
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()


def read_request(connection):
    """Read one request, and return it; nothing if there is none."""
    request = b""
    while b"\r\n\r\n" not in request:
        part = connection.recv(65536)
        if not part:
            return b""
        request += part
    head, _, body = request.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def sends(*parts):
    """Answer with bytes as they are, and close the connection."""

    def behave(connection, _peer):
        read_request(connection)
        for part in parts:
            connection.sendall(part)

    return behave


def drips(begin):
    """Answer with a begin, and then with one byte after the other, without end."""

    def behave(connection, peer):
        read_request(connection)
        connection.sendall(begin)
        while not peer.is_over.wait(0.01):
            connection.sendall(b"1")

    return behave


def hangs(_connection, peer):
    """Never answer."""
    peer.is_over.wait(PATIENCE)


def resets(begin=b"", when=None):
    """Answer with a begin, and reset the connection when something has happened."""

    def behave(connection, _peer):
        read_request(connection)
        connection.sendall(begin)
        if when is not None:
            assert when.wait(PATIENCE)
        set_reset(connection)

    return behave


def set_reset(connection):
    """Have a connection be reset when it is closed."""
    linger = struct.pack("ii", 1, 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


OK = b"HTTP/1.1 200 OK\r\n"
EMPTY = OK + b"content-length: 0\r\n\r\n"


# -- what is a success -----------------------------------------------------------------


def test_200_and_201_are_the_only_successes(queue, hook):
    courier = new_courier(queue, f"{hook.url}/paid", retention=None)
    hook.script("/paid", range(200, 600))
    for number in range(400):
        courier.send("paid", number)

    asyncio.run(queue.adrain())

    assert hook.count() == 400
    for got in hook.received():
        (attempt,) = courier.attempts(got.headers["webhook-id"])
        is_success = got.status in (200, 201)
        reason = None if is_success else f"it answered with {got.status}"
        assert (attempt.status, attempt.reason) == (got.status, reason)


@pytest.mark.parametrize(
    ("status", "reason"),
    [(204, None), (410, None), (200, "it answered with 200")],
)
def test_what_is_a_success_can_be_chosen(queue, hook, status, reason):
    hook.script("/paid", [status])

    attempt = attempt_to(queue, f"{hook.url}/paid", accept=[204, 410])

    assert (attempt.status, attempt.reason) == (status, reason)


@pytest.mark.parametrize(
    ("duration", "reason"),
    [
        (0.0, None),
        (10.0, None),
        (math.nextafter(10.0, math.inf), "it took longer than 10 s"),
    ],
)
def test_an_answer_at_the_last_moment_is_in_time(queue, duration, reason):
    courier = new_courier(queue, "https://a.example")
    assert sending.refusal(200, 0, duration, courier) == reason


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(queue, hook, status):
    hook.script("/paid", [Answer(status, headers={"location": f"{hook.url}/other"})])

    attempt = attempt_to(queue, f"{hook.url}/paid")

    assert attempt.reason == f"it answered with {status}"
    assert [got.path for got in hook.received()] == ["/paid"]


def test_the_body_of_an_answer_is_kept(queue, hook):
    hook.script("/paid", [Answer(422, body="no such order: ✗")])

    attempt = attempt_to(queue, f"{hook.url}/paid")

    assert (attempt.status, attempt.answer) == (422, "no such order: ✗")


def test_an_answer_in_an_old_form_is_read(queue):
    with Peer(sends(b"HTTP/1.0 200 OK\r\n\r\nthanks")) as peer:
        attempt = attempt_to(queue, peer.url)

    assert (attempt.status, attempt.reason, attempt.answer) == (200, None, "thanks")


def test_what_comes_before_the_answer_is_skipped(queue):
    early = b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n"
    with Peer(sends(early, early, EMPTY)) as peer:
        assert attempt_to(queue, peer.url).status == 200


# -- answers that take too long --------------------------------------------------------


LATE = {
    "nothing": hangs,
    "a drip of the status line": drips(b"HTTP/1.1 2"),
    "a drip of a header": drips(OK + b"x: "),
    "not even a line of HTTP": drips(b"SSH-2.0-"),
    "no end of what comes before": sends(
        b"HTTP/1.1 100 Continue\r\n\r\n" * 3, EMPTY[:9]
    ),
}


@pytest.mark.parametrize("behave", LATE.values(), ids=LATE)
def test_an_answer_that_does_not_come_in_time_is_a_failure(queue, behave):
    def hang_then(connection, peer):
        behave(connection, peer)
        peer.is_over.wait(PATIENCE)

    with Peer(hang_then) as peer:
        attempt = attempt_to(queue, peer.url, timeout=SHORT)

    assert (attempt.status, attempt.reason) == (None, "it took longer than 0.2 s")
    assert attempt.duration >= SHORT


def test_the_timeout_is_for_the_body_too(queue):
    with Peer(drips(OK + b"content-length: 1000\r\n\r\nabc")) as peer:
        attempt = attempt_to(queue, peer.url, timeout=2)

    assert (attempt.status, attempt.reason) == (200, "it took longer than 2 s")
    assert attempt.answer.startswith("abc")


def test_an_answer_a_little_after_the_timeout_is_too_late(queue, hook):
    hook.script("/paid", [Answer(200, delay=SHORT + 0.05)])

    attempt = attempt_to(queue, f"{hook.url}/paid", timeout=SHORT)

    assert attempt.reason == "it took longer than 0.2 s"


def test_the_timeout_is_that_of_the_courier(queue, hook, monkeypatch):
    given = []
    timeout = asyncio.timeout

    def record(seconds):
        given.append(seconds)
        return timeout(seconds)

    monkeypatch.setattr(asyncio, "timeout", record)

    attempt_to(queue, f"{hook.url}/paid", timeout=7.25)

    assert given == [7.25]


@contextmanager
def full_backlog():
    """Listen, but let nobody in; yield the port."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(20):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
            if not select.select([], [client], [], SHORT)[1]:
                yield listener.getsockname()[1]
                return
        pytest.skip("this system lets everybody in")


def test_a_connection_that_is_not_accepted_in_time_is_a_failure(queue):
    with full_backlog() as port:
        attempt = attempt_to(queue, f"http://127.0.0.1:{port}/", timeout=SHORT)

    assert (attempt.status, attempt.reason) == (None, "it took longer than 0.2 s")


def test_a_host_that_is_not_found_in_time_is_a_failure(queue, monkeypatch):
    async def getaddrinfo(*_given, **_options):
        await asyncio.sleep(PATIENCE)

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)

    attempt = attempt_to(queue, "http://hooks.example/", timeout=SHORT)

    assert (attempt.status, attempt.reason) == (None, "it took longer than 0.2 s")


# -- connections that break ------------------------------------------------------------


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        return closed.getsockname()[1]


def test_a_connection_that_is_refused_is_a_failure(queue):
    attempt = attempt_to(queue, f"http://127.0.0.1:{closed_port()}/")

    assert (attempt.status, attempt.reason) == (None, "the connection was refused")


def test_a_host_that_cannot_be_found_is_a_failure(queue, monkeypatch):
    def getaddrinfo(*_given, **_options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    attempt = attempt_to(queue, "http://hooks.example/")

    assert (attempt.status, attempt.reason) == (None, "its host cannot be found")


def test_a_host_in_our_own_network_is_refused(queue, monkeypatch):
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.1.2.3", 80))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_given, **_options: found)

    attempt = attempt_to(queue, "http://hooks.example/")

    assert attempt.reason == (
        "it is refused: the host 'hooks.example' leads to 10.1.2.3, which is private"
    )


def test_an_error_of_the_system_is_told_in_its_words(queue, monkeypatch):
    async def resolve(*_given):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Guard, "resolve", resolve)
    try:
        socket.create_connection(("127.0.0.1", closed_port()))
    except ConnectionRefusedError:  # which is not to be taken for the cause
        attempt = attempt_to(queue, "http://hooks.example/")

    assert attempt.reason == "the connection failed: [Errno 24] Too many open files"


BREAKS = {
    "a close instead of an answer": (
        sends(),
        "its answer cannot be read: Server disconnected without sending a response.",
    ),
    "a close in the middle of the headers": (
        sends(OK + b"x: "),
        "its answer cannot be read: Server disconnected without sending a response.",
    ),
    "a reset instead of an answer": (resets(), "the connection was reset"),
    "a reset in the middle of the headers": (
        resets(OK + b"x: "),
        "the connection was reset",
    ),
}


@pytest.mark.parametrize(("behave", "reason"), BREAKS.values(), ids=BREAKS)
def test_a_connection_that_breaks_is_a_failure(queue, behave, reason):
    with Peer(behave) as peer:
        attempt = attempt_to(queue, peer.url)

    assert (attempt.status, attempt.reason) == (None, reason)
    assert len(peer.sockets) == 1


def test_a_connection_that_is_closed_at_once_is_a_failure(queue):
    with Peer(lambda _connection, _peer: None) as peer:
        attempt = attempt_to(queue, peer.url)

    assert attempt.status is None
    assert attempt.reason in (
        "the connection was reset",
        "its answer cannot be read: Server disconnected without sending a response.",
    )


def test_a_reset_in_the_middle_of_the_body_is_a_failure(queue, monkeypatch):
    head_is_read = Event()

    def wait_in(_headers):
        head_is_read.set()
        return 0.0

    monkeypatch.setattr(sending, "wait_in", wait_in)
    begin = OK + b"content-length: 50\r\n\r\n"
    with Peer(resets(begin, head_is_read)) as peer:
        attempt = attempt_to(queue, peer.url)

    assert (attempt.status, attempt.reason) == (200, "the connection was reset")


def test_a_close_in_the_middle_of_the_body_is_a_failure(queue):
    with Peer(sends(OK + b"content-length: 50\r\n\r\nabc")) as peer:
        attempt = attempt_to(queue, peer.url)

    assert (attempt.status, attempt.answer) == (200, "abc")
    assert attempt.reason == (
        "its answer cannot be read: peer closed connection without sending complete "
        "message body (received 3 bytes, expected 50)"
    )


# -- answers that are no HTTP ----------------------------------------------------------


GARBAGE = {
    "other words": (b"SSH-2.0-OpenSSH_9\r\n\r\n", "illegal status line"),
    "bytes": (b"\0\0\x04\0\0\r\n\r\n", "illegal status line"),
    "a long line": (b"\xff" * 90_000 + b"\r\n\r\n", "illegal status line"),
    "a line without end": (b"x" * MEGABYTE, "Receive buffer too long"),
    "a header of 1 MB": (
        OK + b"x: " + b"y" * MEGABYTE + b"\r\n\r\n",
        "Receive buffer too long",
    ),
    "too many headers": (OK + b"x: y\r\n" * 100_000, "Receive buffer too long"),
    "a length that is none": (OK + b"content-length: -5\r\n\r\n", "bad Content-Length"),
    "two lengths": (
        OK + b"content-length: 5\r\ncontent-length: 6\r\n\r\n",
        "conflicting Content-Length headers",
    ),
    "another protocol": (
        b"HTTP/1.1 101 Fine\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        "without a pending proposal",
    ),
}


@pytest.mark.parametrize(("answer", "words"), GARBAGE.values(), ids=GARBAGE)
def test_an_answer_that_is_no_http_is_a_failure(queue, answer, words):
    with Peer(sends(answer)) as peer:
        attempt = attempt_to(queue, peer.url)

    assert attempt.status is None
    assert attempt.reason.startswith("its answer cannot be read: ")
    assert words in attempt.reason
    assert len(attempt.reason) <= 500


def test_a_body_that_is_no_http_is_a_failure(queue):
    chunks = b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n"
    with Peer(sends(OK + chunks)) as peer:
        attempt = attempt_to(queue, peer.url)

    assert (attempt.status, attempt.answer) == (200, "abc")
    assert "illegal chunk header" in attempt.reason


# -- answers that are too large --------------------------------------------------------


class Flood:
    """Answer with a head, and as much after it as the other side takes."""

    def __init__(self, head, parts):
        self.head = head
        self.parts = parts
        self.sent = 0

    def __call__(self, connection, _peer):
        read_request(connection)
        connection.sendall(self.head)
        for part in self.parts:
            connection.sendall(part)
            self.sent += len(part)


def hundred_megabytes():
    length = b"content-length: 100000000\r\n\r\n"
    return Flood(OK + length, repeat(b"x" * 50_000, 2_000))


def endless_chunks():
    encoding = b"transfer-encoding: chunked\r\n\r\n"
    return Flood(OK + encoding, repeat(b"C350\r\n" + b"x" * 50_000 + b"\r\n"))


def endless_body():
    return Flood(OK + b"\r\n", repeat(b"x" * 50_000))


@pytest.mark.parametrize(
    ("new_flood", "reason"),
    [
        (hundred_megabytes, "its answer is too large: 100000000 bytes"),
        (endless_chunks, None),  # it does not say its size, and is not read to its end
        (endless_body, None),
    ],
)
def test_only_the_begin_of_a_large_answer_is_read(queue, new_flood, reason):
    flood = new_flood()
    with Peer(flood) as peer:
        courier = new_courier(queue, peer.url)
        delivery = courier.send("paid", {"order": 7})
        tracemalloc.start()
        queue.drain()
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        peer.await_all_closed()

    (attempt,) = courier.attempts(delivery.id)
    assert (attempt.status, attempt.reason) == (200, reason)
    assert attempt.answer == "x" * 4096
    assert flood.sent < 50 * MEGABYTE  # what the system has taken and thrown away
    assert most < 5 * MEGABYTE


def test_a_large_answer_that_is_no_success_is_a_failure(queue):
    head = b"HTTP/1.1 500 Oops\r\ncontent-length: 100000000\r\n\r\n"
    with Peer(Flood(head, repeat(b"x" * 50_000, 2_000))) as peer:
        attempt = attempt_to(queue, peer.url)

    assert (attempt.status, attempt.reason) == (500, "it answered with 500")
    assert attempt.answer == "x" * 4096


@pytest.mark.parametrize("size", [0, 4095, 4096, 4097])
def test_4096_bytes_of_an_answer_are_kept(queue, hook, size):
    hook.script("/paid", [Answer(500, body=b"x" * size)])

    attempt = attempt_to(queue, f"{hook.url}/paid")

    assert attempt.answer == "x" * min(size, 4096)


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        (b"caf\xe9 \xff", "caf\ufffd \ufffd"),
        (b"a\0b", "a\\0b"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"\0" * 5000, "\\0" * 4096),
    ],
)
def test_an_answer_that_is_no_text_can_be_shown(queue, hook, body, answer):
    hook.script("/paid", [Answer(500, body=body)])

    assert attempt_to(queue, f"{hook.url}/paid").answer == answer


# -- encryption ------------------------------------------------------------------------

CONFIGURATION = """
[ca]
default_ca = here
[here]
database = index.txt
new_certs_dir = .
default_md = sha256
policy = any
rand_serial = yes
[any]
commonName = supplied
[req]
distinguished_name = any
[extensions]
basicConstraints = critical, CA:TRUE
keyUsage = critical, digitalSignature, keyCertSign
subjectKeyIdentifier = hash
subjectAltName = {names}
"""

GOOD = "IP:127.0.0.1, DNS:hooks.example"


@pytest.fixture
def new_certificate(tmp_path):
    """Make a certificate that has signed itself; return the file, with its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed, which makes the certificates")

    def openssl(*arguments):
        subprocess.run(  # noqa: S603 -- arguments of the tests
            ["openssl", *arguments],  # noqa: S607 -- wherever it is
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )

    def make(names=GOOD, end="20991231235959Z"):
        common = ["-config", "openssl.cnf"]
        (tmp_path / "openssl.cnf").write_text(CONFIGURATION.format(names=names))
        (tmp_path / "index.txt").touch()
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        openssl("req", "-new", *common, *key, "-subj", "/CN=test", *OUTPUT)
        times = ["-startdate", "20000101000000Z", "-enddate", end]
        openssl("ca", "-selfsign", "-batch", "-notext", *common, *times, *INPUT)
        file = tmp_path / "certificate.pem"
        key_text = (tmp_path / "key.pem").read_text()
        file.write_text(key_text + (tmp_path / "signed.pem").read_text())
        return file

    return make


OUTPUT = ["-keyout", "key.pem", "-out", "request.pem"]
INPUT = [
    *("-extensions", "extensions", "-keyfile", "key.pem"),
    *("-in", "request.pem", "-out", "signed.pem"),
]


@pytest.fixture
def trust(monkeypatch):
    """Have a certificate be trusted, as one of the system is."""

    def set_trusted(file):
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        connections.strict_context.cache_clear()

    yield set_trusted
    connections.strict_context.cache_clear()


def server_context(file):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


def test_an_event_is_sent_encrypted(queue, new_certificate, trust):
    file = new_certificate()
    trust(file)

    with Peer(sends(EMPTY), server_context(file)) as peer:
        attempt = attempt_to(queue, peer.secure_url)

    assert (attempt.status, attempt.reason) == (200, None)


def test_the_certificate_is_that_of_the_name_not_of_the_address(
    queue, new_certificate, trust, monkeypatch
):
    file = new_certificate("DNS:hooks.example")
    trust(file)
    names = []
    context = server_context(file)
    context.sni_callback = lambda _socket, name, _context: names.append(name)

    with Peer(sends(EMPTY), context) as peer:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", peer.port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_given, **_options: found)
        attempt = attempt_to(queue, f"https://hooks.example:{peer.port}/")

    assert (attempt.status, attempt.reason) == (200, None)
    assert names == ["hooks.example"]


def test_a_certificate_that_has_signed_itself_is_a_failure(queue, new_certificate):
    with Peer(sends(EMPTY), server_context(new_certificate())) as peer:
        attempt = attempt_to(queue, peer.secure_url)

    assert attempt.status is None
    assert attempt.reason in (
        "its certificate is not valid: self-signed certificate",
        "its certificate is not valid: self signed certificate",  # older systems
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"end": "20010101000000Z"}, "certificate has expired"),
        (
            {"names": "IP:127.0.0.2, DNS:hooks.example"},
            "IP address mismatch, certificate is not valid for '127.0.0.1'.",
        ),
    ],
)
def test_a_bad_certificate_is_a_failure(queue, new_certificate, trust, options, words):
    file = new_certificate(**options)
    trust(file)

    with Peer(sends(EMPTY), server_context(file)) as peer:
        attempt = attempt_to(queue, peer.secure_url)

    assert attempt.status is None
    assert attempt.reason == f"its certificate is not valid: {words}"


def test_nothing_is_sent_to_a_server_with_a_bad_certificate(queue, new_certificate):
    requests = []

    def record(connection, _peer):
        requests.append(read_request(connection))

    with Peer(record, server_context(new_certificate())) as peer:
        attempt_to(queue, peer.secure_url)

    assert not any(requests)


def test_tls_before_1_2_is_a_failure(queue, new_certificate, trust):
    file = new_certificate()
    trust(file)
    context = server_context(file)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1

    with Peer(sends(EMPTY), context) as peer:
        attempt = attempt_to(queue, peer.secure_url)

    assert attempt.status is None
    assert attempt.reason.startswith("the connection could not be encrypted: ")


@pytest.mark.usefixtures("trust")
def test_tls_begins_at_1_2_whatever_the_system_says(monkeypatch):
    lax = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    lax.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    monkeypatch.setattr(ssl, "create_default_context", lambda: lax)
    connections.strict_context.cache_clear()

    assert connections.strict_context().minimum_version == ssl.TLSVersion.TLSv1_2


def answers_plainly(connection, _peer):
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def closes(connection, _peer):
    connection.recv(65536)


def resets_at_once(connection, _peer):
    connection.recv(65536)
    set_reset(connection)


@pytest.mark.parametrize(
    ("behave", "reason"),
    [
        (answers_plainly, "the connection could not be encrypted: "),
        (closes, "the connection failed: it was closed at once"),
        (resets_at_once, "the connection was reset"),
    ],
)
def test_a_server_that_does_not_encrypt_is_a_failure(queue, behave, reason):
    with Peer(behave) as peer:
        attempt = attempt_to(queue, peer.secure_url)

    assert attempt.status is None
    assert attempt.reason.startswith(reason)


def test_a_connection_that_is_not_encrypted_in_time_is_closed(queue):
    def read_all(connection, _peer):
        while connection.recv(65536):
            pass

    with Peer(read_all) as peer:
        attempt = attempt_to(queue, peer.secure_url, timeout=SHORT)
        peer.await_all_closed()

    assert (attempt.status, attempt.reason) == (None, "it took longer than 0.2 s")
    gc.collect()  # which warns of what was not closed


# -- what is sent ----------------------------------------------------------------------


def test_an_event_is_posted_as_compact_json(queue, hook):
    courier = new_courier(queue, f"{hook.url}/paid")
    courier.send("paid", {"name": "Zoë", "items": [1, 2.5, None, {"x": True}]})
    queue.drain()

    (got,) = hook.received()
    assert got.status == 200  # as other methods are not
    assert got.body == '{"name":"Zoë","items":[1,2.5,null,{"x":true}]}'.encode()
    assert got.headers["content-length"] == str(len(got.body))


def test_the_head_of_a_request_comes_together_with_its_body(queue):
    parts = []

    def behave(connection, _peer):
        parts.append(connection.recv(65536))
        connection.sendall(OK + b"content-length: 0\r\n\r\n")

    with Peer(behave) as peer:
        attempt = attempt_to(queue, peer.url)

    assert attempt.status == 200
    assert parts[0].endswith(b'\r\n\r\n{"order":7}')


def test_the_headers_are_these_and_no_others(queue, hook):
    headers = dict(request_to(queue, hook).headers)

    assert headers.pop("host") == hook.url.removeprefix("http://")
    assert headers.pop("webhook-id")
    assert headers.pop("webhook-timestamp").isdigit()
    assert headers == {
        "content-type": "application/json",
        "user-agent": "cmdx",
        "content-length": "11",
    }


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("", "/"),
        ("/", "/"),
        ("/paid?shop=7&x=%20", "/paid?shop=7&x=%20"),
        ("/paid;version=2?a;b", "/paid;version=2?a;b"),
        ("?shop=7", "/?shop=7"),
        ("/paid#part", "/paid"),
    ],
)
def test_the_path_is_sent_as_it_is_in_the_url(queue, hook, url, path):
    assert request_to(queue, hook, url).path == path


def test_the_host_is_sent_as_it_is_in_the_url(queue, hook, monkeypatch):
    port = hook.url.rpartition(":")[2]
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", int(port)))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_given, **_options: found)

    attempt_to(queue, f"http://Hooks.example:{port}/paid")

    assert hook.received()[0].headers["host"] == f"Hooks.example:{port}"


def test_an_endpoint_has_further_headers(queue, hook):
    headers = {"X-Version": "2", "User-Agent": "shop", "authorization": "Bearer 7"}
    attempt_to(queue, Endpoint(f"{hook.url}/paid", headers=headers))

    (got,) = hook.received()
    assert got.headers["x-version"] == "2"
    assert got.headers["user-agent"] == "shop"
    assert got.headers["authorization"] == "Bearer 7"


def test_no_proxy_is_taken_from_the_environment(queue, hook, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    assert request_to(queue, hook).path == "/paid"


# -- signatures ------------------------------------------------------------------------


def hmac_of(algorithm, key, content):
    return base64.b64encode(hmac.new(key, content, algorithm).digest()).decode()


def test_an_event_is_signed_by_the_standard(queue, hook):
    got = request_to(queue, hook, secret=SECRET)

    id_, moment = got.headers["webhook-id"], got.headers["webhook-timestamp"]
    content = f"{id_}.{moment}.".encode() + got.body
    expected = hmac_of(hashlib.sha256, b"a secret of the courier", content)
    assert got.headers["webhook-signature"] == f"v1,{expected}"
    assert verify(got.headers, got.body, SECRET)


def test_an_event_is_signed_by_each_secret(queue, hook):
    got = request_to(queue, hook, secret=[SECRET, OTHER_SECRET])

    assert len(got.headers["webhook-signature"].split(" ")) == 2
    assert verify(got.headers, got.body, SECRET)
    assert verify(got.headers, got.body, OTHER_SECRET)


@pytest.mark.parametrize("signing", ["sha1", "sha256"])
def test_an_event_is_signed_as_the_vendor_does(queue, hook, signing):
    got = request_to(queue, hook, secret=SECRET, signing=signing)

    expected = hmac_of(getattr(hashlib, signing), SECRET.encode(), got.body)
    assert got.headers["x-liveperson-signature"] == f"{signing}={expected}"
    assert not [name for name in got.headers if name.startswith("webhook-")]


@pytest.mark.parametrize(
    ("signing", "names"),
    [
        ("standard", ["webhook-id", "webhook-timestamp"]),
        ("sha1", []),
        ("sha256", []),
    ],
)
def test_without_a_secret_nothing_is_signed(queue, hook, signing, names):
    got = request_to(queue, hook, signing=signing)

    found = [name for name in got.headers if name.startswith(("webhook-", "x-"))]
    assert sorted(found) == names


def test_the_secret_of_an_endpoint_goes_before_that_of_the_courier(queue, hook):
    endpoint = Endpoint(f"{hook.url}/paid", secret=OTHER_SECRET)
    attempt_to(queue, endpoint, secret=SECRET)

    (got,) = hook.received()
    assert verify(got.headers, got.body, OTHER_SECRET)
    assert not verify(got.headers, got.body, SECRET)


def test_the_id_is_the_same_in_each_attempt_and_the_time_is_not(hook, instant):
    queue = Queue(":memory:")
    endpoint = Endpoint(f"{hook.url}/paid", max_retries=2)
    courier = new_courier(queue, endpoint, retention=None, secret=SECRET)
    hook.script("/paid", [500, 500, 200])
    delivery = courier.send("paid", {"order": 7})

    queue.drain(ahead=60)

    received = hook.received()
    assert [got.headers["webhook-id"] for got in received] == [delivery.id] * 3
    times = [int(got.headers["webhook-timestamp"]) for got in received]
    assert times[0] + 30 <= times[1]
    assert times[1] + 30 <= times[2]
    for got in received:
        assert verify(got.headers, got.body, SECRET)
    assert instant.slept == 60
    queue.store.close()


# -- connections -----------------------------------------------------------------------


def answers_all(connection, _peer):
    """Answer all requests of a connection, until the other side closes it."""
    while read_request(connection):
        connection.sendall(EMPTY)


@pytest.fixture
def kept_long(monkeypatch):
    """Keep connections long enough even if this machine is busy."""
    monkeypatch.setattr(connections, "KEEP_ALIVE", PATIENCE)


patient = pytest.mark.usefixtures("kept_long")


@patient
def test_events_share_a_connection_that_is_closed_with_the_loop(queue):
    with Peer(answers_all) as peer:
        courier = new_courier(queue, peer.url)
        for number in range(5):
            courier.send("paid", number)

        assert asyncio.run(queue.adrain()) == 5

        peer.await_all_closed()
        assert len(peer.sockets) == 1


def test_a_connection_that_is_not_used_again_is_closed_while_the_worker_runs(
    queue, monkeypatch
):
    monkeypatch.setattr(connections, "KEEP_ALIVE", 0.05)
    with Peer(answers_all) as peer, queue.worker():
        courier = new_courier(queue, peer.url)
        assert courier.send("paid", 1).wait(PATIENCE).state == "done"

        peer.await_all_closed()  # though no other event is sent


@patient
def test_a_worker_keeps_the_connection_and_closes_it_when_it_stops(queue):
    with Peer(answers_all) as peer:
        courier = new_courier(queue, peer.url)
        with queue.worker():
            for number in range(3):
                courier.send("paid", number).wait(PATIENCE)

        peer.await_all_closed()
        assert len(peer.sockets) == 1


@patient
def test_two_couriers_with_the_same_rules_share_connections(queue):
    with Peer(answers_all) as peer:
        for name in ("one", "two"):
            new_courier(queue, peer.url, name=name).send("paid", 1)

        asyncio.run(queue.adrain())

        assert len(peer.sockets) == 1


@patient
def test_two_couriers_with_other_rules_share_none(queue):
    with Peer(answers_all) as peer:
        for allow in (["127.0.0.1"], ["127.0.0.0/8"]):
            new_courier(queue, peer.url, name=allow[0][:9], allow=allow).send("paid", 1)

        asyncio.run(queue.adrain())

        peer.await_all_closed()
        assert len(peer.sockets) == 2


def test_a_connection_that_has_been_idle_is_not_used_again(queue, monkeypatch):
    monkeypatch.setattr(connections, "KEEP_ALIVE", 0.0)
    with Peer(answers_all) as peer:
        courier = new_courier(queue, peer.url)
        courier.send("paid", 1)
        courier.send("paid", 2)

        asyncio.run(queue.adrain())

        assert len(peer.sockets) == 2


@patient
def test_a_connection_that_the_server_has_closed_is_not_used_again(queue):
    with Peer(sends(EMPTY)) as peer:
        courier = new_courier(queue, peer.url)

        async def send_both():
            for number in range(2):
                delivery = courier.send("paid", number)
                await queue.adrain()
                await asyncio.to_thread(peer.await_all_closed)
                (attempt,) = courier.attempts(delivery.id)
                assert attempt.reason is None

        asyncio.run(send_both())

        assert len(peer.sockets) == 2


def test_an_event_loop_of_the_user_is_not_kept(queue, hook):
    courier = new_courier(queue, f"{hook.url}/paid")

    async def send_twice():
        for number in range(2):
            await courier.asend("paid", number)
            assert await queue.adrain() == 1
        return weakref.ref(asyncio.get_running_loop())

    loop = asyncio.run(send_twice())
    gc.collect()

    assert hook.count() == 2
    assert loop() is None


def test_an_event_that_is_cancelled_leaves_no_connection(queue):
    is_there = Event()

    def read_all(connection, _peer):
        while connection.recv(65536):
            is_there.set()

    with Peer(read_all) as peer:
        courier = new_courier(queue, peer.secure_url, timeout=PATIENCE)
        delivery = courier.send("paid", 1)

        async def cancel():
            draining = asyncio.create_task(queue.adrain())
            await asyncio.to_thread(is_there.wait, PATIENCE)
            draining.cancel()
            with pytest.raises(asyncio.CancelledError):
                await draining
            await asyncio.to_thread(peer.await_all_closed)

        asyncio.run(cancel())

    assert delivery.refresh().state == JobState.READY


# -- Retry-After -----------------------------------------------------------------------


class StillClock(clock.Clock):
    def time(self):
        return 2.0**30


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("120", 120.0),
        ("0", 0.0),
        ("1.5", 1.5),
        (formatdate(2**30 + 90, usegmt=True), 90.0),
        (formatdate(2**30 - 90, usegmt=True), 0.0),
        ("9" * 400, math.inf),
        ("Fri, 31 Dec 99999 23:59:59 GMT", math.inf),
        ("-5", 0.0),
        ("soon", 0.0),
        ("Fri, 99 Foo 2004", 0.0),
        ("nan", 0.0),
        ("inf", 0.0),
        ("\xff\xfe", 0.0),
        ("", 0.0),
        (None, 0.0),
    ],
)
def test_an_endpoint_can_ask_to_wait(queue, hook, value, wait):
    courier = new_courier(queue, f"{hook.url}/paid")
    headers = {} if value is None else {"Retry-After": value}
    hook.script("/paid", [Answer(503, headers=headers)])
    request = Request.of(courier.endpoints["paid"], b"{}", {})

    with clock.use(StillClock()):
        exchange = asyncio.run(sending.exchange_with(courier, request, 0.0))

    assert (exchange.status, exchange.wait) == (503, wait)


def test_an_endpoint_that_asks_to_wait_without_end_is_tried_again(hook, instant):
    queue = Queue(":memory:")
    courier = new_courier(queue, f"{hook.url}/paid")
    hook.script("/paid", [Answer(503, headers={"Retry-After": "9" * 400})])
    courier.send("paid", {"order": 7})

    queue.drain(ahead=299)
    assert hook.count() == 1
    queue.drain(ahead=2)
    assert [got.status for got in hook.received()] == [503, 200]

    assert instant.slept == 301
    assert courier.state == CourierState.UP
    queue.store.close()


# -- the task --------------------------------------------------------------------------


INPUTS = {"courier": "default", "event_type": "paid", "body": "{}"}


def test_a_delivery_that_is_run_inline_fails_with_a_sentence():
    result = asyncio.run(Deliver.aexecute(**INPUTS))

    assert result.failed
    assert result.reason == "a delivery is sent by a worker. Use Courier.send()."


def test_a_delivery_that_is_enqueued_as_a_task_fails_with_a_sentence(queue):
    job = queue.enqueue(Deliver(**INPUTS))
    queue.drain()

    assert job.refresh().state == JobState.DEAD
    assert job.reason == "a delivery is sent by a worker. Use Courier.send()."


def test_an_endpoint_that_goes_away_before_the_event_is_sent_is_a_failure(queue, hook):
    courier = new_courier(queue, f"{hook.url}/paid")
    delivery = courier.send("paid", {"order": 7})

    def forget(_sender, **_facts):
        Courier(queue, {"left": Endpoint("https://a.example")})

    with job_started.connected_to(forget):
        queue.drain()

    (attempt,) = courier.attempts(delivery.id)
    assert attempt.reason == "no endpoint is left for events of type 'paid'"
    assert hook.count() == 0


class Broken(Task[int]):
    def work(self) -> int:
        self.fail("broken\0")


class Fine(Task[int]):
    def work(self) -> int:
        return 200


SENT = Exchange(1.0, 0.5, 200, None, "thanks")


def test_a_run_that_fails_without_an_exchange_has_failed():
    exchange = exchange_of(Broken.execute(), None)

    assert (exchange.status, exchange.reason) == (None, "broken\\0")
    assert not exchange.is_accepted


def test_a_run_that_fails_after_the_exchange_has_failed():
    exchange = exchange_of(Broken.execute(), SENT)

    assert not exchange.is_accepted


def test_a_run_that_was_replaced_has_sent_nothing():
    assert exchange_of(Fine.execute(), None).reason == "it was not sent"


def test_the_result_of_a_success_is_stored_with_it():
    exchange = exchange_of(Fine.execute(), SENT)

    assert exchange.is_accepted
    assert exchange.answer == "thanks"
    assert '"value":200' in exchange.text.replace(" ", "")


@pytest.mark.parametrize("name", ["httpcore", "anyio"])
def test_a_courier_needs_its_extra(queue, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(CmdxError) as caught:
        new_courier(queue, "https://hooks.example/")

    assert str(caught.value) == (
        "deliveries need httpcore and anyio. Install what the extra 'delivery' of "
        'pycmdx has: pip install "httpcore[asyncio]>=1.0.5" "sniffio>=1.3".'
    )
