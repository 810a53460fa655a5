"""A result that was stored is the same problem as the one that was not."""

from __future__ import annotations

import json
from enum import Enum, IntEnum, StrEnum
from http import HTTPStatus
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cmdx
from cmdx import Task, Workflow, group, output, required
from cmdx.guidance import Guidance, code_for
from cmdx.operations import Ledger, OperationConflict, StillRunning, operation
from cmdx.queue import Queue
from cmdx.stores import SqliteStore, StoreUnavailable
from cmdx.web import problem
from cmdx.wire import dump_result, load_result

HIDDEN = "refused by 10.0.0.3"  # the text of an exception


def come_back(result):
    return load_result(json.loads(json.dumps(dump_result(result))))


def encode(answer):
    """The body as frameworks send it that escape nothing."""
    return json.dumps(answer.body, ensure_ascii=False, allow_nan=False).encode()


# -- the tasks -------------------------------------------------------------------------


class Serve(Task[None]):
    """Does what it is told."""

    act: Any

    def work(self) -> None:
        self.act(self)


class Seats(Task[None]):
    seats: int = required(ge=1)
    guest: str

    def work(self) -> None: ...


class Receipt(Task[None]):
    receipt: str = output()

    def work(self) -> None: ...


class Refuse(Task[None]):
    def work(self) -> None:
        self.fail("sold out", code="SOLD_OUT", retry_after=7)


class Break(Task[None]):
    def work(self) -> None:
        raise LookupError(HIDDEN)


class Busy(ConnectionError):
    retry_after = 12.3


class Coded(ValueError):
    def __init__(self, code: Any) -> None:
        super().__init__(HIDDEN)
        self.code = code


class Unreadable(ValueError):
    @property
    def code(self) -> str:
        raise RuntimeError


class Code(Enum):
    GONE = "GONE"
    LOCKED = 423
    PAIR = ("sold", "out")
    HALF = 0.5


class Text(StrEnum):
    GONE = "GONE"


class Number(IntEnum):
    LOCKED = 423


def failed(*reason, **metadata):
    return Serve.execute(act=lambda task: task.fail(*reason, **metadata))


def raised(error, **metadata):
    def act(task):
        task.metadata.update(metadata)
        raise error

    return Serve.execute(act=act)


def added(*problem, **metadata):
    def act(task):
        task.metadata.update(metadata)
        task.errors.add(*problem)

    return Serve.execute(act=act)


def thrown(inner, **metadata):
    return Serve.execute(act=lambda task: task.throw(inner, **metadata))


def raised_on(inner, **metadata):
    def act(task):
        task.metadata.update(metadata)
        inner.or_raise()

    return Serve.execute(act=act)


def asked(inner):
    return Serve.execute(act=lambda _task: inner.value)


def in_a_workflow(inner):
    class Ship(Workflow[None]):
        steps = (Serve,)

    class Checkout(Workflow[None]):
        steps = (Ship,)

    return Checkout.execute(act=lambda task: task.throw(inner))


class Collect(Workflow[None]):
    steps = (group(Refuse, Break, Seats, continue_on_failure=True),)


class CollectExceptions(Workflow[None]):
    steps = (group(Break, Refuse, Break, continue_on_failure=True),)


class CollectErrors(Workflow[None]):
    steps = (group(Seats, Break, continue_on_failure=True),)


class Nest(Workflow[None]):
    steps = (Collect,)


HALTS = {
    "reason": failed("no such order"),
    "nothing": failed(),
    "status": failed("no such order", code=404),
    "status of the library": failed("no", code=HTTPStatus.CONFLICT),
    "listed code": failed("no", code="NOT_FOUND"),
    "other code": failed("no", code="declined"),
    "other number": failed("no", code=1017),
    "no code": failed("no", code=None),
    "false code": failed("no", code=False),
    "list": failed("no", code=["SOLD_OUT"]),
    "object": failed("no", code=object()),
    "class": failed("no", code=LookupError),
    "bytes": failed("no", code=b"GONE"),
    "huge number": failed("no", code=10**5000),
    "enum": failed("no", code=Code.GONE),
    "enum of numbers": failed("no", code=Code.LOCKED),
    "enum of pairs": failed("no", code=Code.PAIR),
    "enum of fractions": failed("no", code=Code.HALF),
    "enum of texts": failed("no", code=Text.GONE),
    "enum of ints": failed("no", code=Number.LOCKED),
    "wait": failed("busy", retry_after=30),
    "wait with a code": failed("busy", code="busy", retry_after=2.5),
    "guidance": failed("busy", guidance=Guidance(True, "fixed", 4)),
    "endless guidance": failed("busy", guidance=Guidance(True, after=float("inf"))),
    "no retry": failed("no", code="UNAVAILABLE", guidance=Guidance(False)),
    "row of the code": failed("slow", code="RATE_LIMITED"),
    "exception": failed(LookupError(HIDDEN)),
    "coded exception": failed(Coded("NOT_FOUND")),
    "exception with a code": failed(LookupError(HIDDEN), code=409),
    "lone surrogate": failed("\ud800 no \udc00", code="\ud800"),
    "pair of surrogates": failed("\ud83d\ude00"),
}
ERRORS = {
    "inputs": Seats.execute(seats=0),
    "added": added("seats", "are all taken", "taken"),
    "added with a code": added("seats", "are all taken", code=409),
    "added objects": added(7, LookupError("are all taken"), Code.GONE),
    "surrogates": added("\ud800", "\udfff"),
    "unset output": Receipt.execute(),
}
EXCEPTIONS = {
    "any": raised(LookupError(HIDDEN)),
    "connection": raised(ConnectionResetError(HIDDEN)),
    "timeout": raised(TimeoutError(HIDDEN)),
    "deadline": raised(cmdx.DeadlineExceeded(HIDDEN)),
    "conflict": raised(OperationConflict("id", "a", "b")),
    "running": raised(StillRunning("id", 5)),
    "store": raised(StoreUnavailable("it is locked", "Wait")),
    "code": raised(Coded("NOT_FOUND")),
    "enum": raised(Coded(Code.GONE)),
    "code of its own": raised(Coded("ORDERS_SOLD_OUT")),
    "odd code": raised(Coded("23505")),
    "status": raised(Coded(404)),
    "dependency": raised(Coded("DEPENDENCY_ERROR")),
    "unreadable": raised(Unreadable(HIDDEN)),
    "wait": raised(Busy(HIDDEN)),
    "code in the metadata": raised(LookupError(HIDDEN), code="declined"),
}
WORKFLOWS = {
    "collected": Collect.execute(),
    "collected exceptions": CollectExceptions.execute(),
    "collected errors": CollectErrors.execute(),
    "nested": Nest.execute(),
}
TO_PASS_ON = {
    "status": HALTS["status"],
    "enum": HALTS["enum"],
    "wait": HALTS["wait"],
    "inputs": ERRORS["inputs"],
    "unset output": ERRORS["unset output"],
    "code of an exception": EXCEPTIONS["code"],
    "deadline": EXCEPTIONS["deadline"],
    "wait of an exception": EXCEPTIONS["wait"],
    "collected": WORKFLOWS["collected"],
}
PASSED_ON = {
    f"{name}, {way.__name__}": way(failure)
    for name, failure in TO_PASS_ON.items()
    for way in (thrown, raised_on, asked, in_a_workflow)
}
RECODED = {
    "thrown with a code": thrown(failed("no such order", code=404), code=409),
    "thrown twice": thrown(thrown(failed("no", code="GONE"), code="NOT_FOUND")),
    "raised on with a code": raised_on(raised(Coded("NOT_FOUND")), code="declined"),
    "thrown with a wait": thrown(raised(LookupError(HIDDEN)), retry_after=3),
    "replay of another": thrown(come_back(thrown(failed("no", code="GONE")))),
}
TABLE = {
    f"{kind}: {name}": failure
    for kind, failures in {
        "halt": HALTS,
        "errors": ERRORS,
        "raised": EXCEPTIONS,
        "workflow": WORKFLOWS,
        "passed on": PASSED_ON,
        "another code": RECODED,
    }.items()
    for name, failure in failures.items()
}
every_failure = pytest.mark.parametrize("result", TABLE.values(), ids=TABLE.keys())


# -- the equation ----------------------------------------------------------------------


@every_failure
def test_a_stored_failure_is_the_same_problem(result):
    assert problem(come_back(result)) == problem(result)


@every_failure
def test_a_failure_that_was_stored_twice_is_the_same_problem(result):
    loaded = come_back(result)

    assert problem(come_back(loaded)) == problem(result)
    assert dump_result(come_back(loaded)) == dump_result(loaded)


@every_failure
def test_a_stored_failure_has_the_same_code(result):
    assert code_for(come_back(result)) == code_for(result)


@every_failure
def test_the_text_of_an_exception_is_never_told(result):
    for told in (result, come_back(result)):
        assert HIDDEN.encode() not in encode(problem(told))


# -- whatever happens ------------------------------------------------------------------


texts = st.text(st.characters(), max_size=3) | st.sampled_from(["\ud800", "GONE", ""])
codes = st.one_of(
    texts,
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([404, *Code, Text.GONE, Number.LOCKED, "RATE_LIMITED"]),
    st.floats(),
    st.decimals(),
    st.tuples(texts),
    st.builds(object),
)
waits = st.sampled_from([None, 0, 0.5, 30, "60", Guidance(False), object()])
notes = st.fixed_dictionaries({}, optional={"code": codes, "retry_after": waits})
exceptions = st.one_of(
    st.builds(Coded, codes),
    st.sampled_from([LookupError, ConnectionError, Busy, Unreadable]).map(
        lambda kind: kind(HIDDEN)
    ),
)
own_failures = st.one_of(
    st.builds(lambda reason, given: failed(reason, **given), texts, notes),
    st.builds(lambda error, given: failed(error, **given), exceptions, notes),
    st.builds(lambda error, given: raised(error, **given), exceptions, notes),
    st.builds(lambda key, text, given: added(key, text, **given), texts, texts, notes),
)
failures = st.recursive(
    own_failures,
    lambda inner: st.one_of(
        st.builds(lambda failure, given: thrown(failure, **given), inner, notes),
        st.builds(lambda failure, given: raised_on(failure, **given), inner, notes),
        inner.map(asked),
        inner.map(in_a_workflow),
        inner.map(come_back),
    ),
    max_leaves=4,
)


@settings(deadline=None, max_examples=50)
@given(failures)
def test_any_failure_is_the_same_problem_when_it_was_stored(result):
    answer = problem(result)

    assert problem(come_back(result)) == answer
    assert json.loads(encode(answer)) == answer.body
    assert HIDDEN.encode() not in encode(answer)


# -- what was stored elsewhere ---------------------------------------------------------


@operation(persist=True)
class Checkout(Workflow[None], name="web.checkout"):
    steps = (group(Refuse, Break, continue_on_failure=True),)


def test_a_replayed_workflow_is_the_same_problem():
    session = Ledger(SqliteStore()).session("shop")
    first, replayed = (session.run(Checkout(), id="one") for _ in range(2))

    assert replayed.operation.replayed
    assert problem(replayed) == problem(first)
    assert problem(replayed).body["code"] == "SOLD_OUT"


def test_the_result_of_a_job_is_the_same_problem():
    queue = Queue(SqliteStore())
    job = queue.enqueue(Checkout())
    queue.drain()

    assert problem(job.refresh().result) == problem(Checkout.execute())


# -- older data, and data that says little ---------------------------------------------


def test_a_failure_that_was_stored_without_its_origin_tells_no_exception():
    data = dump_result(thrown(raised(LookupError(HIDDEN))))
    (origin,) = data.pop("origins")
    data["fault_cause"] = origin["outcome"]["cause"]

    assert problem(load_result(data)) == problem(raised(LookupError(HIDDEN)))


@pytest.mark.parametrize("way", [lambda result: result, thrown], ids=["own", "thrown"])
def test_the_short_form_of_a_failure_tells_no_exception(way):
    unstorable = Guidance(True, "fixed", 4, max_attempts=10**5000)
    loaded = come_back(way(raised(LookupError(HIDDEN), guidance=unstorable)))

    assert "not_stored" in loaded.metadata
    assert HIDDEN.encode() not in encode(problem(loaded))
