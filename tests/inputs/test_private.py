"""Annotations that are not inputs: ``private``, ``output`` and ``ClassVar``."""

from __future__ import annotations

import typing as t
from typing import ClassVar, Final

import pytest

from cmdx import (
    Task,
    output,
    private,
)


def test_private_marks_an_annotation_that_is_no_field():
    class Count(Task[int]):
        step: int
        total: int = private()
        _cache: dict[str, int] = private()

        def work(self):
            self.total = self.step
            self._cache = {}
            return self.total

    assert Count.execute(step=2).value == 2
    with pytest.raises(TypeError, match="unexpected input 'total'"):
        Count.execute(step=2, total=3)


def test_a_private_name_has_no_value_until_it_is_set():
    class Count(Task[int]):
        total: int = private()

        def work(self):
            return self.total

    assert isinstance(Count.execute().cause, AttributeError)


def test_an_output_is_no_input():
    class Make(Task[None]):
        size: int = 1
        made: str = output()

        def work(self):
            self.made = "it"

    with pytest.raises(TypeError, match="unexpected input 'made'"):
        Make.execute(made="it")


def test_a_class_variable_is_no_field():
    class Count(Task[int]):
        step: int
        limit: ClassVar[int] = 3
        anything: ClassVar = 4

        def work(self):
            return self.limit + self.anything

    assert Count.execute(step=1).value == 7
    with pytest.raises(TypeError, match="unexpected input 'limit'"):
        Count.execute(step=1, limit=9)


def test_a_class_variable_is_known_by_whatever_name_typing_has():
    class Count(Task[int]):
        step: int
        limit: t.ClassVar[int] = 3

        def work(self):
            return self.limit

    assert list(Count.inputs_schema()["properties"]) == ["step"]


def test_a_class_variable_is_known_without_postponed_annotations(module):
    loaded = module("""
        import typing
        from typing import ClassVar
        from cmdx import Task

        class Count(Task[int]):
            step: int
            limit: ClassVar[int] = 3
            other: typing.ClassVar[list] = []
            quoted: "ClassVar[int]" = 5
    """)

    assert list(loaded.Count.inputs_schema()["properties"]) == ["step"]


def test_a_final_annotation_with_a_value_is_a_field_with_a_default():
    class Tell(Task[int]):
        number: Final[int] = 3

        def work(self):
            return self.number

    assert Tell.execute(number="4").value == 4
