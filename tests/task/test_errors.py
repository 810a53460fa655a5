"""``Errors``: the problems a task finds."""

from __future__ import annotations

import copy
import pickle

import pytest

from cmdx import Errors, Task


@pytest.fixture
def errors():
    """Two problems of one key, and one of another."""
    made = Errors()
    made.add("name", "is too long", code="length")
    made.add("age", "is no number")
    made.add("name", "is not polite")
    return made


def test_messages_are_found_by_key(errors):
    assert errors["name"] == ["is too long", "is not polite"]
    assert errors["age"] == ["is no number"]


def test_a_key_without_problems_has_no_messages(errors):
    assert errors["email"] == []
    assert "email" not in errors
    assert errors.to_dict().keys() == {"name", "age"}


def test_a_key_with_problems_is_in_them(errors):
    assert "name" in errors
    assert "age" in errors


def test_iteration_tells_key_message_and_code_in_the_order_they_were_found(errors):
    told = [(problem.key, problem.message, problem.code) for problem in errors]

    assert told == [
        ("name", "is too long", "length"),
        ("age", "is no number", None),
        ("name", "is not polite", None),
    ]


def test_they_are_counted_and_empty_ones_are_false(errors):
    assert len(errors) == 3
    assert errors
    assert not Errors()


def test_the_same_problem_is_kept_once(errors):
    errors.add("name", "is too long")

    assert errors["name"] == ["is too long", "is not polite"]
    assert len(errors) == 3


def test_to_dict_has_the_messages_by_key(errors):
    assert errors.to_dict() == {
        "name": ["is too long", "is not polite"],
        "age": ["is no number"],
    }


def test_changing_what_they_hand_out_does_not_change_them(errors):
    errors.to_dict()["name"].append("is a test")
    errors["name"].append("is a test")
    errors.full_messages().append("is a test")

    assert errors["name"] == ["is too long", "is not polite"]
    assert len(errors.full_messages()) == 3


def test_full_messages_are_sentences_with_the_key(errors):
    assert errors.full_messages() == [
        "name is too long",
        "age is no number",
        "name is not polite",
    ]


def test_their_text_says_everything(errors):
    assert str(errors) == "name is too long. age is no number. name is not polite"
    assert str(Errors()) == ""


def test_clearing_them_forgets_all(errors):
    errors.clear()

    assert not errors
    assert errors.to_dict() == {}


def test_merging_adds_the_problems_of_others_with_their_codes(errors):
    others = Errors()
    others.add("name", "is too long", code="other")
    others.add("email", "is no address", code="format")

    errors.merge(others)

    assert [tuple(problem) for problem in errors][2:] == [
        ("name", "is not polite", None),
        ("email", "is no address", "format"),
    ]
    assert len(others) == 2


@pytest.mark.parametrize(
    ("key", "found"),
    [("zip", "address.zip"), ("lines.zip", "address.lines.zip"), ("[2]", "address[2]")],
)
def test_merging_puts_a_prefix_before_the_keys(key, found):
    others, errors = Errors(), Errors()
    others.add(key, "is wrong")

    errors.merge(others, prefix="address")

    assert errors.keys() == [found]


def test_merging_takes_the_messages_by_key_that_to_dict_returns(errors):
    copied = Errors()
    copied.merge(errors.to_dict(), prefix="user")

    assert copied.to_dict() == {
        "user.name": ["is too long", "is not polite"],
        "user.age": ["is no number"],
    }


def test_errors_can_be_merged_with_themselves(errors):
    errors.merge(errors, "again")

    assert errors.keys() == ["name", "age", "again.name", "again.age"]


@pytest.mark.parametrize(
    "other", [{"name": "is too long"}, {"name": [3]}, ["name"], None, "name"]
)
def test_anything_else_cannot_be_merged(errors, other):
    with pytest.raises(TypeError, match="keys to lists of messages"):
        errors.merge(other)

    assert len(errors) == 3


def test_a_result_is_told_apart_from_its_errors(errors):
    class Fine(Task[None]):
        def work(self): ...

    with pytest.raises(TypeError, match=r"such as result\.errors"):
        errors.merge(Fine.execute())


def test_deleting_removes_the_problems_of_a_key_and_returns_the_messages(errors):
    assert errors.delete("name") == ["is too long", "is not polite"]
    assert errors.to_dict() == {"age": ["is no number"]}


def test_deleting_a_key_without_problems_changes_nothing(errors):
    assert errors.delete("email") == []
    assert len(errors) == 3


def test_a_task_whose_problems_were_deleted_does_not_fail(run):
    class Mends(Task[None]):
        def work(self):
            self.errors.add("name", "is too long")
            self.errors.delete("name")

    assert run(Mends).success


def test_each_key_is_listed_once_in_the_order_they_were_found(errors):
    assert errors.keys() == ["name", "age"]
    assert Errors().keys() == []


@pytest.mark.parametrize(
    "change",
    [
        lambda errors: errors.add("name", "is new"),
        lambda errors: errors.merge({}),
        lambda errors: errors.delete("name"),
        lambda errors: errors.clear(),
    ],
)
def test_the_errors_of_a_result_refuse_changes(change):
    class Fine(Task[None]):
        def work(self): ...

    with pytest.raises(TypeError, match="cannot be changed"):
        change(Fine.execute().errors)


def test_a_parent_collects_the_errors_of_its_children(run):
    class Line(Task[None]):
        amount: int

        def work(self): ...

    class Order(Task[None]):
        def work(self):
            for number, amount in enumerate(["1", "x"]):
                result = Line.execute({"amount": amount})
                self.errors.merge(result.errors, prefix=f"lines[{number}]")

    (problem,) = run(Order).errors
    assert (problem.key, problem.code) == ("lines[1].amount", "int")


def test_problems_can_be_added_while_iterating(errors):
    for problem in errors:
        errors.add(f"{problem.key} again", problem.message)

    assert len(errors) == 6


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda errors: pickle.loads(pickle.dumps(errors))],
)
def test_they_can_be_copied_and_pickled(errors, copied):
    twin = copied(errors)

    assert [tuple(problem) for problem in twin] == [tuple(each) for each in errors]


def test_the_reason_of_a_task_that_they_fail_is_their_text(run):
    class Invalid(Task[None]):
        def work(self):
            self.errors.add("name", "is too long", code="length")
            self.errors.add("age", "is no number")

    result = run(Invalid)

    assert result.reason == str(result.errors) == "name is too long. age is no number"
    assert [problem.code for problem in result.errors] == ["length", None]


def test_a_task_that_only_looks_at_its_errors_does_not_fail(run):
    class Careful(Task[bool]):
        def work(self):
            return bool(self.errors)

    assert run(Careful).value is False
