"""Annotations with names that are defined later, or elsewhere."""

from __future__ import annotations

import re
from abc import ABCMeta
from typing import Any

import attrs
import pytest
from declared import refused

from cmdx import (
    DefinitionError,
    Task,
    optional,
)


class Naming(type):
    """A metaclass in Python, which stands between a class statement and the task."""

    def __new__(cls, name, bases, names, **keywords):
        return super().__new__(cls, name, bases, names, **keywords)


@pytest.mark.parametrize("metaclass", [ABCMeta, Naming])
def test_a_metaclass_does_not_hide_the_names_of_the_function(metaclass):
    class Point:
        pass

    class Tell(Task[Any], metaclass=metaclass):
        point: Point

        def work(self):
            return self.point

    point = Point()
    assert Tell.execute(point=point).value is point


class Maker:
    """Defines a task in a method that is named like one of a metaclass."""

    def __call__(self):
        class Point:
            pass

        class Tell(Task[Any]):
            point: Point

            def work(self):
                return self.point

        return Tell.execute(point=Point()).success


def test_a_class_in_a_method_called_like_one_of_a_metaclass_sees_its_names():
    assert Maker()()


def test_a_class_in_a_function_may_use_the_names_of_the_function():
    @attrs.frozen
    class Point:
        x: int

    class Tell(Task[int]):
        point: Point
        points: list[Point] = optional(factory=list)

        def work(self):
            return self.point.x + sum(point.x for point in self.points)

    assert Tell.execute(point={"x": "3"}, points=[{"x": 4}]).value == 7


def test_a_class_in_a_function_may_use_its_names_without_postponed_annotations(
    module,
):
    loaded = module("""
        import attrs
        from cmdx import Task, optional

        def make():
            @attrs.frozen
            class Point:
                x: int

            class Tell(Task[int]):
                point: Point
                quoted: "Point | None" = None
                inside: list["Point"] = optional(factory=list)

                def work(self):
                    return self.point.x + sum(point.x for point in self.inside)

            return Tell
    """)

    task = loaded.make()
    assert task.execute(point={"x": 3}, inside=[{"x": "4"}]).value == 7
    assert "inside[0].x" in task.execute(point={"x": 3}, inside=[{}]).errors


FORWARD = """
    {future}
    from typing import Annotated, Optional, Union

    import attrs

    from cmdx import Task

    class Tell(Task[int]):
        later: {annotation}

        def work(self):
            return self.later

    @attrs.frozen
    class Later:
        x: int
"""


@pytest.mark.parametrize(
    "annotation",
    [
        '"Later"',
        '"Later | None"',
        'list["Later"]',
        'Optional["Later"]',
        'Union["Later", int]',
        'Annotated["Later", "a note"]',
        'dict[str, list["Later"]]',
    ],
)
@pytest.mark.parametrize("future", ["", "from __future__ import annotations"])
def test_an_annotation_may_name_a_class_that_is_defined_later(
    module, future, annotation
):
    loaded = module(FORWARD.format(future=future, annotation=annotation))

    wrap = {"list": lambda value: [value], "dict": lambda value: {"k": [value]}}
    kind = re.match(r"\w*", annotation).group()
    value = wrap.get(kind, lambda value: value)({"x": "3"})
    made = loaded.Tell.execute(later=value).value

    assert "Later(x=3)" in repr(made)


def test_postponed_annotations_may_name_a_class_that_is_defined_later(module):
    loaded = module(
        FORWARD.format(
            future="from __future__ import annotations", annotation="list[Later]"
        )
    )

    assert repr(loaded.Tell.execute(later=[{"x": 1}]).value) == "[Later(x=1)]"


def test_a_name_that_never_comes_is_refused_when_the_task_is_first_run(module):
    loaded = module("""
        from cmdx import Task

        class Tell(Task[int]):
            later: "Never"

            def work(self):
                return self.later
    """)

    with refused("Tell.later", "Never", "TYPE_CHECKING?", "coerce=False") as caught:
        loaded.Tell.execute(later=3)
    assert type(caught.value) is DefinitionError


@pytest.mark.parametrize("annotation", ["date | None", "list[date]", "None | date"])
def test_the_name_that_never_comes_is_named_alone(module, annotation):
    loaded = module(f"""
        from __future__ import annotations
        from typing import TYPE_CHECKING
        from cmdx import Task

        if TYPE_CHECKING:
            from datetime import date

        class Tell(Task[int]):
            later: {annotation}

            def work(self):
                return self.later
    """)

    with refused("Tell.later: name 'date' is not defined"):
        loaded.Tell.execute(later=3)


def test_a_name_for_type_checkers_alone_is_enough_when_nothing_is_coerced(module):
    loaded = module("""
        from __future__ import annotations
        from typing import TYPE_CHECKING
        from cmdx import Task, required

        if TYPE_CHECKING:
            from somewhere import Later

        class Tell(Task[int]):
            later: Later = required(coerce=False)

            def work(self):
                return self.later
    """)

    assert loaded.Tell.execute(later=3).value == 3


def test_a_model_may_name_a_class_that_is_defined_later(module):
    loaded = module("""
        from __future__ import annotations

        import attrs

        from cmdx import Task

        @attrs.frozen
        class Outer:
            inner: Inner

        class Tell(Task[int]):
            outer: Outer

            def work(self):
                return self.outer.inner.x

        @attrs.frozen
        class Inner:
            x: int
    """)

    assert loaded.Tell.execute(outer={"inner": {"x": "3"}}).value == 3


def test_a_model_that_names_what_only_its_function_knows_is_refused_with_a_cure():
    @attrs.frozen
    class Inner:
        x: int

    @attrs.frozen
    class Outer:
        inner: Inner

    class Tell(Task[int]):
        outer: Outer

        def work(self):
            return self.outer.inner.x

    with refused("Tell.outer", "Inner", "not defined", "coerce="):
        Tell.execute(outer={"inner": {"x": "3"}})
