"""A task with one input, for tables of values."""

from __future__ import annotations

from typing import Any

import pytest

from cmdx import Task, required


@pytest.fixture(scope="session")
def taking():
    """Make a task that takes ``x`` of an annotation and returns it."""

    def make(annotation, **options):
        class Taking(Task[Any]):
            x: annotation = required(**options)

            def work(self):
                return self.x

        return Taking

    return make


@pytest.fixture(scope="session")
def problems(taking):
    """List the keys and codes of what is wrong with a value for an annotation."""

    def find(annotation, value, **options):
        result = taking(annotation, **options).execute(x=value)
        assert result.cause is None
        return [(problem.key, problem.code) for problem in result.errors]

    return find
