"""A task with one input, for tables of values, and modules made of source."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
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


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Import source as a module of its own."""

    def load(source, name="declared_elsewhere"):
        path = tmp_path / f"{name}.py"
        path.write_text(textwrap.dedent(source), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        loaded = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, loaded)
        spec.loader.exec_module(loaded)
        return loaded

    return load
