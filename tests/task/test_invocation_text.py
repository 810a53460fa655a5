"""An invocation as people see it: one line with its inputs."""

from __future__ import annotations

from datetime import date
from enum import Enum
from pathlib import PurePosixPath
from typing import Any

import pytest

from cmdx import Context, Task, Workflow, parallel, required


class Size(Enum):
    BIG = "big"


class Login:
    def __repr__(self):
        return "Login(password='hunter2')"


class Greet(Task[str]):
    name: Any
    times: int = required(alias="n")
    hour: int = required(source=lambda: 9)
    loud: bool = False

    def work(self) -> str:
        return repr(self)


class Open(Task[str]):
    def work(self) -> str:
        return repr(self)


def test_an_invocation_shows_its_inputs_on_one_line():
    assert repr(Greet(name="Ada", n=2)) == "Greet(name='Ada', n=2)"
    assert repr(Greet({"loud": True, "other": 1}, name="A")) == (
        "Greet(name='A', loud=True)"
    )
    assert repr(Greet()) == str(Greet()) == "Greet()"


def test_a_task_without_declared_inputs_shows_all_it_was_given():
    assert repr(Open(b=1, a=[1, 2])) == "Open(b=1, a=[1, 2])"


def test_a_shared_context_shows_the_inputs_alone():
    context = Context(name="Ada", other=1)

    assert repr(Greet(context)) == "Greet(name='Ada')"


def test_a_task_that_runs_or_has_run_shows_no_inputs(run):
    assert run(Greet, name="Ada", n="2").value == "Greet(...)"

    task = Open(x=1)
    assert task.run().value == repr(task) == "Open(...)"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (date(2026, 5, 1), "datetime.date(2026, 5, 1)"),
        (PurePosixPath("/tmp/a"), "PurePosixPath('/tmp/a')"),  # noqa: S108 -- text
        (Size.BIG, "Size.BIG"),
        ("two\nlines", r"'two\nlines'"),
        ("x" * 100, f"'{'x' * 59}…"),
        (("a",), "('a',)"),
        (Login(), "<Login>"),
        ([Login()], "[<Login>]"),
        (
            {"user": "ada", "password": "hunter2"},
            "{'user': 'ada', 'password': (hidden)}",
        ),
        ("amqp://ada:hunter2@host/x", "'amqp://***@host/x'"),
        (f"amqp://ada:{'hunter2' * 20}@host/x", "'amqp://***@host/x'"),
    ],
)
def test_values_are_shown_without_what_may_be_secret(value, text):
    assert repr(Open(x=value)) == f"Open(x={text})"


@pytest.mark.parametrize("name", ["password", "api_key", "AuthToken", "client_secret"])
def test_an_input_that_is_called_like_a_secret_is_hidden(name):
    assert repr(Open(**{name: "hunter2"})) == f"Open({name}=(hidden))"


def test_showing_a_parallel_step_leaves_the_values_to_its_siblings():
    class Flow(Workflow[None]):
        steps = (parallel(Open, Greet),)

    result = Flow.execute(name=["Ada"], n=1)

    assert result.success
    assert result.conflicts == ()
