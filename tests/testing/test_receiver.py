"""``cmdx.testing.Receiver``: a real server that answers by a script."""

from __future__ import annotations

import gc
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPException
from select import select
from threading import Thread
from urllib.parse import urlsplit

import pytest

from cmdx import CmdxError, clock
from cmdx.testing import Answer, Receiver, instant

PATIENCE = 30.0
"""Seconds after which something that never comes has failed."""

FOREVER = 1000.0
"""Seconds that no test waits."""


@pytest.fixture
def hook():
    with Receiver() as receiver:
        yield receiver


@contextmanager
def connected(hook):
    """Open a connection that is not opened again if the server closes it."""
    connection = HTTPConnection(urlsplit(hook.url).netloc, timeout=PATIENCE)
    connection.connect()
    connection.auto_open = 0
    try:
        yield connection
    finally:
        connection.close()


def ask(connection, path, body=b"{}", headers=None, method="POST", **options):
    """Send a request, and return the answer and its body."""
    connection.request(method, path, body, headers or {}, **options)
    answer = connection.getresponse()
    return answer, answer.read()


def post(hook, path, body=b"{}", headers=None, **options):
    """Send one request on a connection of its own; return the answer and its body."""
    with connected(hook) as connection:
        return ask(connection, path, body, headers, **options)


def status_of(hook, path):
    return post(hook, path)[0].status


def send_raw(hook, request, *, is_all=True):
    """Send bytes as they are, and return all that is answered."""
    address = urlsplit(hook.url)
    with socket.create_connection((address.hostname, address.port), PATIENCE) as peer:
        peer.sendall(request)
        if is_all:
            peer.shutdown(socket.SHUT_WR)
        with peer.makefile("rb") as file:
            return file.read()


# -- the script ------------------------------------------------------------------------


def test_a_receiver_has_a_url_of_this_machine(hook):
    address = urlsplit(hook.url)

    assert (address.scheme, address.hostname) == ("http", "127.0.0.1")
    assert address.port > 0
    assert address.path == ""


def test_a_script_is_answered_in_order_and_then_with_200(hook):
    hook.script("/a", [500, 503, 200, 404])

    assert [status_of(hook, "/a") for _ in range(6)] == [500, 503, 200, 404, 200, 200]


def test_a_path_without_a_script_is_answered_with_200(hook):
    assert status_of(hook, "/a") == 200


def test_each_path_has_a_script_of_its_own(hook):
    hook.script("/a", [500])
    hook.script("/b", [404])

    assert [status_of(hook, path) for path in ("/b", "/a", "/b", "/a")] == [
        404,
        500,
        200,
        200,
    ]


def test_a_path_is_as_it_was_sent_with_its_query(hook):
    hook.script("/a?n=1", [500])

    assert status_of(hook, "/a?n=2") == 200
    assert status_of(hook, "/a?n=1") == 500
    assert hook.count("/a?n=1") == 1
    assert hook.count("/a") == 0


def test_a_second_script_replaces_the_first(hook):
    hook.script("/a", [500, 500, 500])
    status_of(hook, "/a")
    hook.script("/a", [404])

    assert [status_of(hook, "/a"), status_of(hook, "/a")] == [404, 200]


def test_a_script_may_be_given_before_the_block():
    hook = Receiver()
    hook.script("/a", [500])

    with hook:
        assert status_of(hook, "/a") == 500


# -- answers ---------------------------------------------------------------------------


@pytest.mark.parametrize("body", ["sold out ✓", "sold out ✓".encode()])
def test_an_answer_has_a_status_headers_and_a_body(hook, body):
    hook.script("/a", [Answer(409, headers={"X-Left": "0"}, body=body)])

    answer, content = post(hook, "/a")

    assert answer.status == 409
    assert answer.headers["x-left"] == "0"
    assert answer.headers["content-length"] == str(len(content))
    assert content == "sold out ✓".encode()


def test_a_header_of_an_answer_replaces_the_usual_one(hook):
    hook.script("/a", [Answer(headers={"Content-Length": "2"}, body="ok, and more")])

    answer, content = post(hook, "/a")

    assert answer.headers.get_all("content-length") == ["2"]
    assert content == b"ok"


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_that_may_have_no_body_has_none(hook, status):
    hook.script("/a", [Answer(status, body="nothing")])

    answer = send_raw(hook, b"POST /a HTTP/1.1\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert answer.endswith(b"\r\n\r\n")
    assert b"content-length" not in answer


def test_a_delay_is_in_real_seconds():
    with instant(), Receiver() as hook:
        hook.script("/a", [Answer(delay=0.05)])

        began = time.perf_counter()
        post(hook, "/a")

        assert time.perf_counter() - began > 0.04


def test_a_body_drips_byte_by_byte(hook):
    hook.script("/a", [Answer(drip=0.02, body=b"abcd")])

    began = time.perf_counter()
    answer, content = post(hook, "/a")

    assert (answer.status, content) == (200, b"abcd")
    assert time.perf_counter() - began > 0.05


def test_what_drips_has_come_before_the_rest(hook):
    hook.script("/a", [Answer(drip=FOREVER, body=b"abcd")])

    with connected(hook) as connection:
        connection.request("POST", "/a", b"{}")
        with connection.getresponse() as answer:
            assert answer.read(1) == b"a"


def test_a_connection_is_reset_instead_of_an_answer(hook):
    hook.script("/a", [Answer(500, reset=True)])

    with pytest.raises(ConnectionResetError) as caught:
        post(hook, "/a")

    assert caught.type is ConnectionResetError  # that of a close derives from it
    assert [got.status for got in hook.received("/a")] == [None]
    assert status_of(hook, "/a") == 200


# -- what came in ----------------------------------------------------------------------


def test_a_request_is_recorded_as_it_came(hook):
    hook.script("/a", [500])

    post(hook, "/a", b'{"order": 7}', {"X-Version": "One"})

    (got,) = hook.received("/a")
    assert got.path == "/a"
    assert got.headers["x-version"] == "One"
    assert got.headers["content-length"] == "12"
    assert got.body == b'{"order": 7}'
    assert got.json == {"order": 7}
    assert got.status == 500


def test_a_body_need_not_be_json(hook):
    post(hook, "/a", b"order=7")

    (got,) = hook.received()
    assert got.body == b"order=7"
    with pytest.raises(json.JSONDecodeError):
        _ = got.json


def test_requests_are_recorded_in_order_for_a_path_and_for_all(hook):
    for number, path in enumerated("/a", "/b", "/a"):
        post(hook, path, str(number).encode())

    assert [(got.path, got.json) for got in hook.received()] == [
        ("/a", 0),
        ("/b", 1),
        ("/a", 2),
    ]
    assert [got.json for got in hook.received("/a")] == [0, 2]
    assert hook.received("/c") == []
    assert [hook.count(), hook.count("/a"), hook.count("/c")] == [3, 2, 0]


def enumerated(*paths):
    return zip(range(len(paths)), paths, strict=True)


def test_what_was_received_does_not_change_later(hook):
    post(hook, "/a")
    received = hook.received()
    post(hook, "/a")

    assert len(received) == 1


class StillClock(clock.Clock):
    def time(self):
        return 2.0**30


def test_times_are_those_of_the_clock_of_the_block():
    with clock.use(StillClock()), instant() as virtual, Receiver() as hook:
        post(hook, "/a")
        virtual.advance(3600)
        post(hook, "/a")

    assert [got.at - 2**30 for got in hook.received()] == [0, 3600]


def test_the_clock_is_that_of_the_block_not_of_the_receiver():
    hook = Receiver()
    with clock.use(StillClock()), hook:
        post(hook, "/a")

    assert hook.received()[0].at == 2**30


def test_a_clock_inside_of_the_block_is_not_used():
    with Receiver() as hook:
        before = time.time()
        with clock.use(StillClock()):
            post(hook, "/a")

    assert before <= hook.received()[0].at <= time.time()


# -- requests --------------------------------------------------------------------------


def test_several_threads_send_at_once(hook):
    statuses = list(range(400, 440))
    hook.script("/a", statuses)

    with ThreadPoolExecutor(8) as threads:
        given = list(threads.map(lambda _: status_of(hook, "/a"), statuses))

    assert sorted(given) == statuses
    assert [got.status for got in hook.received()] == statuses


def test_a_slow_answer_does_not_hold_up_others(hook):
    hook.script("/slow", [Answer(delay=FOREVER)])

    with connected(hook) as connection:
        connection.request("POST", "/slow", b"{}")
        hook.wait_for(1, "/slow")

        assert status_of(hook, "/a") == 200


def test_a_connection_is_kept_for_more_requests(hook):
    hook.script("/a", [500, 200])

    with connected(hook) as connection:
        statuses = [ask(connection, "/a")[0].status for _ in range(3)]

    assert statuses == [500, 200, 200]


def test_a_connection_is_closed_if_the_client_says_so(hook):
    with connected(hook) as connection:
        ask(connection, "/a", headers={"Connection": "close"})

        assert connection.sock.recv(1) == b""


def test_a_body_may_come_in_chunks(hook):
    with connected(hook) as connection:
        for _ in range(2):
            ask(connection, "/a", iter([b'{"order"', b": 7}"]), encode_chunked=True)

    assert [got.json for got in hook.received()] == [{"order": 7}] * 2
    assert hook.received()[0].headers["transfer-encoding"] == "chunked"


def test_chunks_may_have_extensions_and_trailers(hook):
    chunks = b"3;name=value\r\nabc\r\nA\r\n0123456789\r\n0\r\nx-sum: 1\r\n\r\n"

    answer = send_raw(
        hook, b"POST /a HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n" + chunks
    )

    assert answer.startswith(b"HTTP/1.1 200 ")
    assert hook.received()[0].body == b"abc0123456789"


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: ten\r\n\r\n0123456789",
        b"Content-Length: -1\r\n\r\n0123456789",
        b"Transfer-Encoding: chunked\r\n\r\nxyz\r\nabc\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n",
    ],
)
def test_a_request_that_is_broken_is_refused_and_not_recorded(hook, rest):
    answer = send_raw(hook, b"POST /a HTTP/1.1\r\n" + rest, is_all=False)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert hook.count() == 0


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 10\r\n\r\nabc",
        b"Transfer-Encoding: chunked\r\n\r\nA\r\nabc",
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ],
)
def test_a_request_that_is_cut_off_is_not_recorded(hook, rest):
    send_raw(hook, b"POST /a HTTP/1.1\r\n" + rest)

    assert hook.count() == 0


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_other_methods_are_refused_and_not_recorded(hook, method):
    hook.script("/a", [500])

    with connected(hook) as connection:
        answer, _ = ask(connection, "/a", b"x" * 100_000, method=method)

        assert (answer.status, answer.headers["allow"]) == (405, "POST")
        assert hook.count() == 0
        assert ask(connection, "/a")[0].status == 500


def test_a_client_that_goes_away_is_no_matter(hook, capfd):
    hook.script("/a", [Answer(drip=0.001, body=b"x" * 100_000)])
    with connected(hook) as connection:
        connection.request("POST", "/a", b"{}")
        connection.getresponse().read(1)

    (thread,) = hook._server._connections
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert status_of(hook, "/a") == 200
    assert capfd.readouterr() == ("", "")


def test_what_is_no_request_is_refused_and_nothing_is_printed(hook, capfd):
    assert b" 400 " in send_raw(hook, b"one two three four\r\n\r\n")
    assert hook.count() == 0
    assert capfd.readouterr() == ("", "")


# -- waiting ---------------------------------------------------------------------------


def test_requests_of_another_thread_are_waited_for(hook):
    sender = Thread(target=lambda: [post(hook, "/a"), post(hook, "/b")])
    sender.start()

    hook.wait_for(1, "/b", seconds=PATIENCE)

    assert [got.path for got in hook.received()] == ["/a", "/b"]
    sender.join()


def test_requests_that_have_come_are_not_waited_for(hook):
    post(hook, "/a")
    post(hook, "/b")

    hook.wait_for(2, seconds=0)


def test_requests_that_do_not_come_are_told(hook):
    post(hook, "/a")
    post(hook, "/b")

    with pytest.raises(TimeoutError) as caught:
        hook.wait_for(2, "/a", seconds=0.01)

    assert str(caught.value) == "only 1 of 2 requests have come in"


# -- blocks ----------------------------------------------------------------------------


def test_two_receivers_have_nothing_in_common():
    with Receiver() as one, Receiver() as other:
        one.script("/a", [500])

        assert one.url != other.url
        assert status_of(other, "/a") == 200
        assert (one.count(), other.count()) == (0, 1)


def test_a_receiver_can_be_used_for_a_second_block():
    hook = Receiver()

    for _ in range(2):
        with hook:
            assert status_of(hook, "/a") == 200

    assert hook.count("/a") == 2


def test_a_receiver_that_listens_cannot_be_entered_again(hook):
    with pytest.raises(CmdxError) as caught, hook:
        pass

    assert str(caught.value) == "this receiver listens already. Make another one."


def test_the_port_is_closed_after_the_block():
    with Receiver() as hook:
        pass

    with pytest.raises(ConnectionRefusedError), connected(hook):
        pass


def test_what_was_received_can_be_read_after_the_block():
    with Receiver() as hook:
        post(hook, "/a")

    assert hook.count("/a") == 1


LONG_ANSWERS = {
    "a delay": Answer(delay=FOREVER),
    "a delay before a reset": Answer(delay=FOREVER, reset=True),
    "a drip": Answer(drip=FOREVER, body=b"abc"),
    "a body that nobody reads": Answer(body=bytes(50_000_000)),
}


@pytest.mark.parametrize("answer", LONG_ANSWERS.values(), ids=LONG_ANSWERS)
def test_the_end_of_the_block_ends_an_answer_under_way_and_all_threads(answer):
    before = set(threading.enumerate())
    with ExitStack() as stack:
        with Receiver() as hook:
            hook.script("/a", [answer])
            connection = stack.enter_context(connected(hook))
            connection.request("POST", "/a", b"{}")
            hook.wait_for(1)

        assert set(threading.enumerate()) <= before  # those of other tests may end
        with pytest.raises((HTTPException, ConnectionError)):
            connection.getresponse().read()
    gc.collect()  # which warns of what was not closed


def test_a_delay_may_be_without_end(hook):
    hook.script("/a", [Answer(delay=1e300)])

    with connected(hook) as connection:
        connection.request("POST", "/a", b"{}")
        hook.wait_for(1)

        assert select([connection.sock], [], [], 0.05)[0] == []


def test_the_end_of_the_block_closes_connections_that_are_idle():
    before = set(threading.enumerate())
    with ExitStack() as stack:
        with Receiver() as hook:
            connection = stack.enter_context(connected(hook))
            ask(connection, "/a")

        assert set(threading.enumerate()) <= before  # those of other tests may end
        assert connection.sock.recv(1) == b""
    gc.collect()


def test_threads_of_connections_that_were_closed_are_forgotten(hook):
    for _ in range(3):
        post(hook, "/a", headers={"Connection": "close"})
        for thread in hook._server._connections:
            thread.join(PATIENCE)

    assert len(hook._server._connections) == 1


def test_an_error_in_the_block_closes_the_port_too():
    hook = Receiver()
    with pytest.raises(ZeroDivisionError), hook:
        _ = 1 / 0

    with pytest.raises(ConnectionRefusedError), connected(hook):
        pass
