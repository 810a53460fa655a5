"""Results come back from JSON; what cannot be stored is left out, never refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import attrs
import pytest

from cmdx import NoValueError, RecordedError, Task, Workflow, output, retry_on
from cmdx.guidance import Guidance
from cmdx.wire import (
    UnknownTaskError,
    WireError,
    dump_result,
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
