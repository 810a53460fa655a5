"""``alias``: another name for callers."""

from __future__ import annotations

import pytest

from cmdx import (
    Task,
    required,
)


def test_callers_use_the_alias_and_the_task_its_own_name():
    class Tell(Task[str]):
        kind: str = required(alias="type")

        def work(self):
            return self.kind

    assert Tell.execute(type="book").value == "book"
    assert Tell.execute({"type": "book"}).value == "book"
    with pytest.raises(TypeError, match="unexpected input 'kind'"):
        Tell.execute(kind="book")


def test_errors_are_reported_under_the_alias():
    class Tell(Task[int]):
        kind: int = required(alias="type")

        def work(self):
            return self.kind

    assert Tell.execute().errors.to_dict() == {"type": ["is required"]}
    assert Tell.execute(type="x").errors.to_dict() == {
        "type": ["must be a whole number"]
    }


def test_an_alias_may_be_named_like_something_every_task_has():
    class Tell(Task[str]):
        surroundings: str = required(alias="context")

        def work(self):
            return self.surroundings

    assert Tell.execute(context="here").value == "here"
