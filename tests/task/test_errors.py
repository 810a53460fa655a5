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
