"""What a task leaves in the context, and when it must."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

import pytest

from cmdx import Context, Task, on_failed, on_success, output, required, retry_on
from cmdx.declare.blueprint import Blueprint

T = TypeVar("T")


class Make(Task[str]):
    """Sets what it is told to."""

    total: int = output(description="the sum")
    note: str = output()

    def work(self) -> str:
        for name, value in self.context.get("set", {}).items():
            setattr(self, name, value)
        return "done"


def test_an_output_lives_in_the_context():
    result = Make.execute(set={"total": 3, "note": "a"})

    assert result.success
    assert result.context.total == 3
    assert result.context["note"] == "a"


def test_an_output_is_read_from_the_context():
    class Read(Make):
        def work(self):
            self.total = 1
            self.context.total = 2
            self.note = "a"
            return self.total

    assert Read.execute().value == 2


def test_an_output_set_in_the_context_is_set():
    class Put(Make):
        def work(self):
            self.context.update(total=1, note="a")

    assert Put.execute().success


def test_every_output_that_is_not_set_is_reported():
    result = Make.execute()

    assert result.failed
    assert [tuple(problem) for problem in result.errors] == [
        ("total", "must be set in the context", "unset"),
        ("note", "must be set in the context", "unset"),
    ]
    assert result.reason == str(result.errors)


def test_one_output_that_is_not_set_is_reported():
    assert Make.execute(set={"total": 0}).errors.to_dict() == {
        "note": ["must be set in the context"]
    }


@pytest.mark.parametrize("value", [None, 0, "", False, []])
def test_an_output_is_set_by_whatever_value(value):
    assert Make.execute(set={"total": value, "note": value}).success


def test_an_output_is_not_coerced():
    assert Make.execute(set={"total": "3", "note": 4}).context.total == "3"


def test_an_output_that_an_earlier_task_has_set_is_set():
    shared = Context(total=1, note="a")

    assert Make.execute(shared).success


def test_reading_an_output_too_early_says_how_to_set_it():
    class Read(Make):
        def work(self):
            return self.total

    result = Read.execute()

    assert isinstance(result.cause, AttributeError)
    assert "self.total = ..." in str(result.cause)


def test_an_output_that_is_not_set_is_no_attribute():
    class Ask(Make):
        def work(self):
            self.note = "a"
            asked = hasattr(self, "total"), getattr(self, "total", 7)
            self.total = 1
            return asked

    assert Ask.execute().value == (False, 7)


def test_an_output_can_be_taken_back():
    class Undo(Make):
        def work(self):
            self.total, self.note = 1, "a"
            del self.total

    assert Undo.execute().errors.to_dict() == {"total": ["must be set in the context"]}


def test_an_output_can_be_read_on_the_class():
    assert Make.total.description == "the sum"
    assert Make.total.name == "total"


@pytest.mark.parametrize("halt", ["succeed", "skip", "fail"])
def test_outputs_are_not_verified_after_a_halt(halt):
    class Halt(Make):
        def work(self):
            getattr(self, halt)("enough")

    result = Halt.execute()

    assert result.reason == "enough"
    assert not result.errors


def test_outputs_are_not_verified_after_an_exception():
    class Raise(Make):
        def work(self):
            raise LookupError("gone")

    result = Raise.execute()

    assert result.reason == "[LookupError] gone"
    assert not result.errors


def test_outputs_are_not_verified_when_the_inputs_are_wrong():
    class Take(Make):
        number: int = required()

    assert list(Take.execute().errors.to_dict()) == ["number"]


def test_outputs_are_verified_once_after_all_attempts(instant):
    @retry_on(LookupError, limit=2)
    class Flaky(Make):
        def work(self):
            if self.attempt == 0:
                self.total = 1
                raise LookupError
            self.note = "a"

    result = Flaky.execute()

    assert result.success
    assert result.retries == 1
    assert result.context.to_dict() == {"total": 1, "note": "a"}
    assert instant.pauses == [0.5]


def test_a_missing_output_is_not_retried(instant):
    @retry_on(Exception, limit=3)
    class Forget(Make):
        pass

    result = Forget.execute()

    assert result.failed
    assert result.retries == 0
    assert instant.pauses == []


def test_a_missing_output_rolls_back_and_runs_the_callbacks_of_a_failure():
    seen = []

    class Forget(Make):
        def rollback(self):
            seen.append("rollback")

        @on_success
        def good(self):
            seen.append("success")

        @on_failed
        def bad(self):
            seen.append("failed")

    assert Forget.execute().rolled_back
    assert seen == ["rollback", "failed"]


@pytest.mark.parametrize(
    ("gates", "needed"),
    [
        ({"if_": lambda task: task.context.get("live")}, False),
        ({"if_": "is_live"}, False),
        ({"unless": lambda task: not task.context.get("live")}, False),
        ({"unless": "is_live"}, True),
        ({"if_": True}, True),
        ({"if_": False}, False),
        ({"unless": True}, False),
        ({"if_": True, "unless": "is_live"}, True),
    ],
)
def test_a_gate_says_whether_an_output_must_be_set(gates, needed):
    class Maybe(Task[None]):
        total: int = output(**gates)

        def is_live(self):
            return self.context.get("live")

        def work(self):
            pass

    assert Maybe.execute().failed is needed


@pytest.mark.parametrize("hooked", [False, True], ids=["bare", "hooked"])
def test_a_gate_of_an_output_that_raises_fails_the_task(hooked):
    seen = []

    class Broken(Task[None]):
        total: int = output(if_=lambda task: task.context["missing"])

        def work(self):
            pass

        def rollback(self):
            seen.append("rollback")

    if hooked:

        class Broken(Broken):
            @on_failed
            def note(self):
                seen.append("failed")

    result = Broken.execute()

    assert result.reason == "[KeyError] 'missing'"
    assert isinstance(result.cause, KeyError)
    assert seen == ["rollback", "failed"][: 1 + hooked]


def test_an_async_task_verifies_its_outputs():
    class Forget(Make):
        async def work(self):
            await asyncio.sleep(0)

    result = asyncio.run(Forget.aexecute())

    assert list(result.errors.to_dict()) == ["total", "note"]


def test_an_output_and_an_input_may_share_nothing_but_the_context():
    class Double(Task[None]):
        number: int
        doubled: int = output()

        def work(self):
            self.doubled = 2 * self.number

    class Read(Task[int]):
        doubled: int

        def work(self):
            return self.doubled

    assert Read.execute(Double.execute(number="4")).value == 8


def test_runs_do_not_share_their_outputs():
    first = Make.execute(set={"total": 1, "note": "a"})
    second = Make.execute(set={"total": 2})

    assert first.context.total == 1
    assert second.context.total == 2
    assert second.failed


# -- what classes share ----------------------------------------------------------------


def test_a_generic_output_has_a_type_of_its_own_in_each_class():
    class Base(Task[None], Generic[T]):
        total: T = output(description="all of it")

        def work(self): ...

    class Whole(Base[int]):
        pass

    class Text(Base[str]):
        pass

    whole, text = Blueprint.of(Whole), Blueprint.of(Text)
    assert whole.fields.outputs["total"].annotation is int
    assert text.fields.outputs["total"].annotation is str


def test_one_output_may_stand_under_several_names():
    count = output()

    class Both(Task[None]):
        one: int = count
        other: int = count

        def work(self):
            self.one, self.other = 1, 2

    assert Both.execute().context == {"one": 1, "other": 2}


def test_blueprints_of_the_same_class_are_equal():
    @retry_on(OSError)
    class Parent(Task[int], tags=("shop",)):
        number: int = required(ge=1)
        text: str = "a"
        total: int = output()

        @on_success
        def note(self): ...

        def work(self): ...

    class Child(Parent):
        number = 5

    assert Blueprint.of(Parent) == Blueprint.of(Parent)
    assert Blueprint.of(Child) != Blueprint.of(Parent)
    assert Blueprint.of(Child).fields != Blueprint.of(Parent).fields
