"""Results as people see them: one line, a tree, and marks that can be printed."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass

import pytest

from cmdx import Task, Workflow, parallel, required

pytestmark = pytest.mark.usefixtures("instant")


class Reserve(Task[None]):
    def work(self):
        return None

    def rollback(self):
        return None


class Stuck(Reserve):
    def rollback(self):
        raise OSError("the warehouse does not answer")


class Charge(Task[None]):
    def work(self):
        self.fail("card declined")


class Idle(Task[None]):
    def work(self):
        self.skip("nothing to do")


class Left(Task[None]):
    def work(self):
        self.context.side = type(self).__name__


class Right(Left):
    pass


@dataclass
class Size:
    width: int


def flow(*steps):
    return type("Order", (Workflow,), {"steps": steps})


def rows_of(result):
    """Return the rows of the tree, with single spaces."""
    return [" ".join(row.split()) for row in result.chain.tree().splitlines()]


def test_the_tree_tells_which_steps_were_rolled_back():
    assert rows_of(flow(Reserve, Charge).execute()) == [
        "✗ Order 0 µs card declined",
        "├─ ✓ Reserve 0 µs rolled back",
        "└─ ✗ Charge 0 µs card declined",
    ]


def test_the_tree_tells_which_rollbacks_failed():
    assert rows_of(flow(Stuck, Charge).execute()) == [
        "✗ Order 0 µs card declined",
        "├─ ✓ Stuck 0 µs rollback failed: OSError: the warehouse does not answer",
        "└─ ✗ Charge 0 µs card declined",
    ]


def test_tree_and_line_tell_conflicting_writes():
    result = flow(parallel(Left, Right)).execute()

    assert repr(result) == "✓ Order 0 µs: conflicting writes: side"
    assert rows_of(result)[0] == "✓ Order 0 µs conflicting writes: side"


def test_the_line_tells_what_became_of_the_rollback():
    class Undone(Charge, Reserve):
        pass

    class Broken(Charge, Stuck):
        pass

    name = Undone.__qualname__
    assert repr(Undone.execute()) == f"✗ {name} 0 µs: card declined, rolled back"
    assert repr(Broken.execute()).endswith(
        "card declined, rollback failed: OSError: the warehouse does not answer"
    )


def test_the_line_lists_the_valid_inputs_if_one_is_missing():
    class Greet(Task[str]):
        name: str
        language: str = required(alias="lang")
        hour: int = required(source=lambda: 9)
        loud: bool = False

        def work(self):
            return self.name

    result = Greet.execute({})
    name = Greet.__qualname__

    assert repr(result) == (
        f"✗ {name} 0 µs: name is required. lang is required. "
        "Valid inputs: name, lang, loud."
    )
    assert result.reason == "name is required. lang is required"
    assert result.summary() == result.reason
    assert rows_of(result) == [f"✗ {name} 0 µs {result.reason}"]


@pytest.mark.parametrize(
    "given", [{"size": "big"}, {"size": {}}, {"size": {"width": 7}, "number": "x"}]
)
def test_the_line_lists_no_inputs_if_a_given_one_is_wrong(given):
    class Draw(Task[None]):
        size: Size
        number: int = 1

        def work(self): ...

    assert "Valid inputs" not in repr(Draw.execute(given))


def test_the_data_tells_all_of_it():
    order = flow(Reserve, parallel(Left, Right), Charge).execute()
    reserve = order.chain[1]

    facts = order.to_dict()

    assert facts["compensated"] == [["Reserve", reserve.tid]]
    assert facts["conflicts"] == [{"key": "side", "tasks": ["Left", "Right"]}]
    assert reserve.to_dict()["rolled_back"] is True
    assert facts["guidance"] is None
    assert facts["replaced"] is None


def test_the_data_tells_what_the_other_side_said_about_trying_again():
    class Limited(Exception):
        retry_after = 7

    class Ask(Task[None]):
        def work(self):
            raise Limited

    facts = Ask.execute().to_dict()["guidance"]

    assert (facts["allowed"], facts["after"]) == (True, 7)
    assert facts.keys() == {"allowed", "strategy", "after", "max_attempts"}


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "no such thing"])
def test_marks_are_ascii_where_the_terminal_has_no_others(monkeypatch, encoding):
    class Narrow(io.StringIO):
        pass

    Narrow.encoding = encoding
    result = flow(Reserve, Idle, Charge).execute()
    monkeypatch.setattr(sys, "stdout", Narrow())

    assert repr(result) == "x Order 0 us: card declined"
    assert rows_of(result) == [
        "x Order 0 us card declined",
        "|- + Reserve 0 us rolled back",
        "|- o Idle 0 us nothing to do",
        "`- x Charge 0 us card declined",
    ]


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_a_result_can_be_printed_whatever_the_encoding(monkeypatch, encoding):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    result = flow(Reserve, Charge).execute()
    monkeypatch.setattr(sys, "stdout", stream)

    print(result, result.chain.tree(), result.mark)  # noqa: T201 -- that is the point
    stream.flush()

    assert b"card declined" in stream.buffer.getvalue()


def test_marks_are_unicode_where_there_is_no_stdout_at_all(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)

    assert repr(Charge.execute()).startswith("✗ ")


def test_asking_a_result_for_its_truth_names_the_cures():
    for task in (Reserve, Idle, Charge):
        with pytest.raises(TypeError) as refused:
            bool(task.execute())

        assert str(refused.value) == (
            "a result has no truth value. Use .success, .ok or .failed; compare an "
            "attribute that may be None with `is not None`."
        )
