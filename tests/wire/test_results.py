"""Results come back from JSON; what cannot be stored is left out, never refused."""

from __future__ import annotations

import json
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

import attrs
import pytest

from cmdx import (
    NoValueError,
    RecordedError,
    Task,
    Workflow,
    coercions,
    output,
    retry_on,
)
from cmdx.guidance import Guidance
from cmdx.wire import (
    UnknownTaskError,
    WireError,
    dump_result,
    encodings,
    load_invocation,
    load_result,
)


@attrs.frozen
class Receipt:
    total: Decimal


class Charge(Task[Receipt]):
    amount: Decimal
    note: str = ""
    lock: Any = None
    receipt: Receipt = output()

    def work(self) -> Receipt:
        self.context.other = 7
        self.receipt = Receipt(self.amount)
        return self.receipt


class Refuse(Task[None]):
    def work(self) -> None:
        self.fail("no money", code="broke", who=threading.Lock(), left=Decimal(1))


class Broken(Task[None]):
    def work(self) -> None:
        secret = "hidden"  # noqa: F841, S105 -- a local name
        raise ConnectionError("refused")


class Idle(Task[None]):
    def work(self) -> None:
        self.skip("nothing to do")


@retry_on(ConnectionError, limit=2, delay=0)
class Flaky(Task[int]):
    def work(self) -> int:
        if self.attempt < 2:
            raise ConnectionError("refused")
        return 7


class Busy(Exception):
    guidance = Guidance(allowed=True, strategy="fixed", after=60, max_attempts=3)


class Guided(Task[None]):
    def work(self) -> None:
        raise Busy


class Both(Workflow[None]):
    steps = (Idle, Refuse)


def come_back(result):
    return load_result(json.loads(json.dumps(dump_result(result))))


# -- what comes back ------------------------------------------------------------------


def test_the_value_is_read_back_as_the_task_promises():
    assert come_back(Charge.execute(amount="2.50")).value == Receipt(Decimal("2.50"))


FACTS = [
    "cid", "deprecated", "duration", "guidance", "halted_at", "reason", "retries",
    "rolled_back", "started_at", "state", "status", "stopped", "strict", "tags",
    "task", "tid", "type", "xid",
]  # fmt: skip


@pytest.mark.parametrize("fact", FACTS)
@pytest.mark.parametrize(
    "task", [Refuse, Broken, Idle, Flaky, Guided, Both], ids=lambda task: task.__name__
)
def test_the_facts_of_a_run_come_back(task, fact):
    result = task.execute()

    assert getattr(come_back(result), fact) == getattr(result, fact)


def test_the_chain_is_the_result_itself():
    loaded = come_back(Both.execute())

    assert list(loaded.chain) == [loaded]


def test_the_chain_of_a_nested_result_is_the_result_itself():
    nested = Both.execute().chain[1]
    loaded = come_back(nested)

    assert (loaded.index, loaded.depth, list(loaded.chain)) == (0, 0, [loaded])


class Ask(Task[None]):
    """Raises the fault of another task."""

    def work(self) -> None:
        Refuse.execute_or_raise()


class Pass(Task[None]):
    """Passes on the failure of another task, which passes on that of a third."""

    def work(self) -> None:
        self.throw(Ask.execute(), code="passed")


class Check(Workflow[None]):
    steps = (Charge,)


def test_the_failures_that_were_passed_on_come_back():
    result = Pass.execute()
    loaded = come_back(result)

    assert (loaded.origin, loaded.caused_failure) == (
        result.origin,
        result.caused_failure,
    )
    for origin, stored in ((result, loaded), (result.origin, loaded.origin)):
        assert stored.origin.task is origin.origin.task
        assert stored.origin.halted_at == origin.origin.halted_at
        assert stored.origin.reason == origin.origin.reason
        assert stored.origin.cid == origin.origin.cid
        assert list(stored.origin.chain) == [stored.origin]
    assert loaded.caused_failure.metadata["code"] == "broke"


def test_the_problems_of_a_step_come_back():
    result = Check.execute(amount="x")

    assert list(come_back(result).origin.errors) == list(result.origin.errors)


def test_the_guidance_of_an_origin_comes_back():
    class Forward(Task[None]):
        def work(self) -> None:
            self.throw(Guided.execute())

    assert come_back(Forward.execute()).origin.guidance == Busy.guidance


def test_a_long_row_of_failures_comes_back():
    class Forward(Task[None]):
        failure: Any

        def work(self) -> None:
            self.throw(self.failure)

    failure = first = Guided.execute()
    for _ in range(sys.getrecursionlimit() + 1):
        failure = Forward.execute(failure=failure)
    loaded = come_back(failure)

    assert loaded.caused_failure == first
    assert loaded.guidance == Busy.guidance


def test_the_context_of_an_origin_is_not_stored():
    assert come_back(Check.execute(amount="x")).origin.context.to_dict() == {}


def test_a_fault_that_was_raised_on_is_a_fault_again():
    loaded = come_back(Ask.execute())

    assert isinstance(loaded.cause, Refuse.Fault)
    assert loaded.cause.result == loaded.origin
    with pytest.raises(Refuse.Fault, match="no money"):
        loaded.or_raise()


def test_a_failure_that_was_stored_without_its_origin_is_raised_as_its_own():
    data = dump_result(Both.execute())
    del data["origins"]

    with pytest.raises(Both.Fault, match="no money"):
        load_result(data).or_raise()


def test_the_code_of_an_enum_is_stored_as_its_value():
    class Code(Enum):
        GONE = "gone"
        LOCKED = 423
        PAIR = (1, 2)

    class Halt(Task[None]):
        code: Any

        def work(self) -> None:
            self.fail(code=self.code)

    codes = [come_back(Halt.execute(code=code)).metadata["code"] for code in Code]
    assert codes == ["gone", 423, "PAIR"]


def test_an_error_is_recorded():
    cause = come_back(Broken.execute()).cause

    assert isinstance(cause, RecordedError)
    assert (cause.type_name, cause.message) == ("ConnectionError", "refused")
    assert "in work" in cause.traceback
    assert "hidden" not in cause.traceback.replace('secret = "hidden"', "")


def test_attempts_come_back_with_recorded_errors():
    result = Flaky.execute()
    loaded = come_back(result)

    assert [attempt.start for attempt in loaded.attempts] == [
        attempt.start for attempt in result.attempts
    ]
    assert [str(attempt.error) for attempt in loaded.attempts] == [
        "refused",
        "refused",
        "None",
    ]


def test_metadata_that_json_does_not_know_is_text():
    metadata = come_back(Refuse.execute()).metadata

    assert metadata["code"] == "broke"
    assert metadata["left"] == "Decimal('1')"
    assert metadata["who"].startswith("<unlocked")


def test_the_context_has_declared_inputs_and_outputs():
    loaded = come_back(Charge.execute(amount="2.50", lock=threading.Lock()))

    assert loaded.context.to_dict() == {
        "amount": Decimal("2.50"),
        "receipt": Receipt(Decimal("2.50")),
    }


def test_problems_come_back():
    result = Charge.execute(amount="x")

    assert list(come_back(result).errors) == list(result.errors)


def test_guidance_comes_back_when_the_pause_has_no_end():
    class Never(Exception):
        guidance = Guidance(allowed=True, after=float("inf"))

    class Wait(Task[None]):
        def work(self) -> None:
            raise Never

    assert come_back(Wait.execute()).guidance == Never.guidance


def test_a_failure_is_raised_as_its_recorded_error():
    with pytest.raises(RecordedError, match="refused"):
        come_back(Broken.execute()).or_raise()


def test_a_halt_is_raised_as_the_fault_of_the_task():
    with pytest.raises(Refuse.Fault, match="no money"):
        come_back(Refuse.execute()).or_raise()


def test_a_loaded_result_can_be_stored_again():
    data = dump_result(Flaky.execute())

    assert dump_result(load_result(data)) == data


# -- whatever user code has left ------------------------------------------------------


class Lazy:
    def __str__(self):
        return "translated later"


class Unprintable:
    def __str__(self):
        raise RuntimeError

    __repr__ = __str__


class Noting(Task[str], name="test.noting"):
    message: Any

    def work(self) -> str:
        self.errors.add("name", self.message, 7)
        return "done"


@pytest.mark.parametrize(
    ("message", "text"),
    [(5, "5"), (Lazy(), "translated later"), (Unprintable(), "<Unprintable>")],
    ids=["int", "lazy", "unprintable"],
)
def test_the_message_of_a_problem_may_be_any_object(message, text):
    result = Noting.execute(message=message)
    loaded = come_back(result)

    assert loaded.reason == result.reason
    assert list(loaded.errors) == [("name", text, "7")]


def test_the_correlation_id_may_be_any_object():
    class Correlated(Task[str], name="test.correlated", correlation_id=lambda: 42):
        def work(self) -> str:
            return "done"

    loaded = come_back(Correlated.execute())

    assert (loaded.xid, loaded.value) == ("42", "done")


class EmptyError(Exception):
    def __len__(self):
        return 0


def test_an_error_that_is_false_is_not_lost():
    class Undone(Task[None], name="test.undone"):
        def work(self) -> None:
            raise EmptyError

        def rollback(self) -> None:
            raise EmptyError

    loaded = come_back(Undone.execute())

    assert loaded.cause.type_name == "EmptyError"
    assert loaded.rollback_error.type_name == "EmptyError"


def test_a_recorded_error_of_odd_parts_comes_back_as_text():
    class Odd(Task[None], name="test.odd"):
        def work(self) -> None:
            raise RecordedError("Odd", None, Unprintable())

    cause = come_back(Odd.execute()).cause

    assert (cause.type_name, cause.message) == ("Odd", "None")
    assert cause.traceback == "<Unprintable>"


class EqualToNothing(str):
    __slots__ = ()

    def __eq__(self, other):
        raise RuntimeError

    __hash__ = str.__hash__


def test_metadata_whose_keys_cannot_be_compared_is_stored_as_text():
    class Clash(Task[None], name="test.clash"):
        def work(self) -> None:
            self.metadata[EqualToNothing("1")] = "a"
            self.metadata[1] = "b"

    metadata = come_back(Clash.execute()).metadata

    assert dict(metadata) == {"not_stored": "{'1': 'a', 1: 'b'}"}


class Brittle(Task[Any], name="test.brittle"):
    status: str

    def work(self) -> Any:
        if self.status == "failed":
            self.fail("the reason", guidance=Guidance(allowed=True, max_attempts=MANY))
        return 7


MANY = 10**5000


@pytest.mark.parametrize("status", ["failed", "success"])
def test_how_a_run_ended_is_stored_though_nothing_else_can_be(status, monkeypatch):
    result = Brittle.execute(status=status)
    if status == "success":
        monkeypatch.setattr("cmdx.wire.results.context_data", refuse)
    loaded = come_back(result)

    assert (loaded.status, loaded.reason) == (status, result.reason)
    assert (loaded.tid, loaded.cid, loaded.task) == (result.tid, result.cid, Brittle)
    assert loaded.stopped is result.stopped
    assert loaded.metadata["not_stored"].startswith("only how Brittle ended could be")
    if status == "success":
        with pytest.raises(NoValueError, match="because RuntimeError was raised"):
            _ = loaded.value


def refuse(_run):
    raise RuntimeError


@pytest.mark.parametrize("moment", [float("nan"), float("inf")])
def test_a_clock_that_does_not_tell_the_time_leaves_the_outcome_as_it_is(moment):
    result = Idle.execute()
    result._record.run.started_at = moment
    loaded = come_back(result)

    assert (loaded.status, loaded.reason) == (result.status, result.reason)


def test_a_circle_is_no_value_whatever_was_promised():
    class Circle(Task[list[int]], name="test.circle"):
        def work(self) -> list[Any]:
            circle: list[Any] = []
            circle.append(circle)
            return circle

    with pytest.raises(NoValueError, match="could not be stored: it is nested too de"):
        _ = come_back(Circle.execute()).value


# -- what cannot be stored ------------------------------------------------------------


class Live(Task[Any]):
    made: Any

    def work(self) -> Any:
        return self.made


def test_a_value_that_cannot_be_stored_leaves_the_outcome_as_it_is():
    loaded = come_back(Live.execute(made={"a": [threading.Lock()]}))

    assert loaded.success
    assert loaded.value_or("gone") == "gone"
    with pytest.raises(NoValueError, match=r"^value\[a\]\[0\] of Live could not be"):
        _ = loaded.value


def test_a_value_of_another_type_is_read_as_the_task_promises():
    class Careless(Task[float], name="test.careless"):
        def work(self) -> float:
            return 7

    value = come_back(Careless.execute()).value

    assert (value, type(value)) == (7.0, float)


class Id(str):
    __slots__ = ()


class Label(Task[str], name="test.label"):
    def work(self) -> str:
        return Id("x")


class Labels(Task[list[str]], name="test.labels"):
    def work(self) -> list[str]:
        return [Id("x")]


class Ordered(Task[dict[str, int]], name="test.ordered"):
    def work(self) -> dict[str, int]:
        return OrderedDict(a=1)


class Pure(Task[PurePath], name="test.pure"):
    def work(self) -> PurePath:
        return PurePosixPath("a")


class IsDone(Task[int], name="test.is_done"):
    def work(self) -> int:
        return True


class Wrong(Task[int], name="test.wrong"):
    def work(self) -> int:
        return {"of": (Decimal(1), "x")}


@pytest.mark.parametrize(
    ("task", "value"),
    [
        (Label, "x"),
        (Labels, ["x"]),
        (Ordered, {"a": 1}),
        (Pure, Path("a")),
        (IsDone, True),
        (Wrong, {"of": (Decimal(1), "x")}),
    ],
    ids=lambda given: getattr(given, "__name__", None),
)
def test_a_value_that_is_not_quite_what_was_promised_is_kept(task, value):
    loaded = come_back(task.execute())

    assert loaded.value == value
    assert type(loaded.value) is type(value)
    assert dump_result(come_back(loaded)) == dump_result(loaded)


def test_an_output_that_is_not_what_was_promised_is_kept():
    class Careless(Task[None], name="test.careless_output"):
        total: int = output()

        def work(self) -> None:
            self.total = True

    assert come_back(Careless.execute()).context.to_dict() == {"total": True}


class Nothing:
    """A class of which there is one value."""


def test_a_value_that_is_encoded_as_null_comes_back():
    class Vanish(Task[Nothing], name="test.vanish"):
        def work(self) -> Nothing:
            return Nothing()

    coercions.register(Nothing, lambda _null: Nothing())
    encodings.register(Nothing, lambda _nothing: None)
    try:
        assert type(come_back(Vanish.execute()).value) is Nothing
    finally:
        coercions.deregister(Nothing)
        encodings.deregister(Nothing)


def test_a_task_that_returns_none_in_place_of_what_it_promised():
    class Forget(Task[int], name="test.forget"):
        def work(self) -> int: ...

    assert come_back(Forget.execute()).value is None


def test_a_subclass_is_lost_where_nothing_is_promised():
    with pytest.raises(NoValueError, match=r"^value\[a\] of Live could not be stored"):
        _ = come_back(Live.execute(made={"a": Id("x")})).value


def test_iterators_inside_a_value_are_not_used_up():
    class Rows(Task[list[list[int]]], name="test.rows"):
        def work(self) -> list[list[int]]:
            return [iter([1, 2])]

    result = Rows.execute()
    loaded = come_back(result)

    assert list(result.value[0]) == [1, 2]
    with pytest.raises(NoValueError, match=r"value\[0\] of .*Rows could not be stored"):
        _ = loaded.value


class Brief:
    """A model of another library."""

    is_readable = True

    def model_dump(self, **_options):
        return {"text": "brief"}

    @classmethod
    def model_validate(cls, _data):
        if not cls.is_readable:
            raise RuntimeError
        return cls()


def test_a_value_whose_class_raises_leaves_the_outcome_as_it_is(monkeypatch):
    class Summarise(Task[Brief], name="test.summarise"):
        def work(self) -> Brief:
            return Brief()

    result = Summarise.execute()
    data = dump_result(result)
    monkeypatch.setattr(Brief, "is_readable", False)

    assert load_result(data).success
    with pytest.raises(NoValueError, match="was stored, but raised RuntimeError"):
        _ = load_result(data).value
    with pytest.raises(NoValueError, match="not be stored: it raised RuntimeError"):
        _ = come_back(result).value


def test_the_value_of_a_workflow_that_promises_none_comes_back():
    class Last(Workflow[None], name="test.last"):
        steps = (Flaky,)

    assert come_back(Last.execute()).value == 7


def test_an_iterator_is_not_used_up():
    class Count(Task[Iterator[int]], name="test.count"):
        def work(self) -> Iterator[int]:
            return iter([1, 2])

    result = Count.execute()
    dump_result(result)

    assert list(result.value) == [1, 2]


def test_a_deep_value_comes_back_whole():
    deep: list[Any] = []
    for _ in range(150):
        deep = [deep]

    assert come_back(Live.execute(made=deep)).value == deep


def test_the_result_of_a_class_that_cannot_be_found_is_stored():
    class Local(Task[int]):
        def work(self) -> int:
            return 7

    loaded = come_back(Local.execute())

    assert loaded.value == 7
    assert loaded.task.__name__ == "Local"
    assert loaded.task is not Local


# -- hostile data ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"outcome": {"status": "odd"}},
        {"outcome": None},
        {"tid": None},
        {"duration": "long"},
        {"attempts": [7]},
        {"errors": [["key"]]},
        {"guidance": {"allowed": "x"}},
        {"retries": []},
        {"context": []},
        {"halted_at": "here"},
        {"origins": {}},
        {"origins": [{}]},
        {"origins": [{"task": "shop:Pay"}]},
    ],
    ids=repr,
)
def test_an_edited_result_is_refused(change):
    data = {**dump_result(Refuse.execute()), **change}

    with pytest.raises(WireError, match="this is not what dump_result returns"):
        load_result(data)


@pytest.mark.parametrize("data", [None, {}, [], "text"], ids=repr)
def test_what_no_dump_looks_like_is_refused(data):
    with pytest.raises(WireError, match="this is not what dump_result returns"):
        load_result(data)


EVERY_RESULT_HAS = [
    "task", "module", "type", "tid", "cid", "outcome", "context", "started_at",
    "duration",
]  # fmt: skip


@pytest.mark.parametrize("key", EVERY_RESULT_HAS)
def test_a_result_without_what_all_have_is_refused(key):
    data = dump_result(Idle.execute())
    del data[key]

    with pytest.raises(WireError, match=f"{key} is required"):
        load_result(data)


def test_keys_that_a_later_version_may_add_are_ignored():
    data = dump_result(Broken.execute())
    parts = [data, data["outcome"], data["outcome"]["cause"]]
    for part in (*parts, data["attempts"][0], data["attempts"][0]["error"]):
        part["later"] = 7

    assert str(load_result(data).cause) == "refused"


def test_guidance_that_nobody_gives_is_refused():
    data = dump_result(Guided.execute())
    data["guidance"]["strategy"] = "never"

    with pytest.raises(WireError, match="strategy must be"):
        load_result(data)


def test_an_edited_value_is_no_value():
    data = {**dump_result(Charge.execute(amount=1)), "value": {"total": "x"}}

    with pytest.raises(NoValueError, match=r"value\.total of Charge was stored, but"):
        _ = load_result(data).value


def test_the_class_that_stands_for_an_unknown_one_does_not_allow_imports():
    names = {"task": "antigravity:Fly", "module": "antigravity"}
    loaded = load_result({**dump_result(Refuse.execute()), **names})

    with pytest.raises(UnknownTaskError, match="has no task of antigravity"):
        load_invocation({**names, "inputs": {}})
    assert loaded.task.__name__ == "Fly"
