"""What type checkers say about HTTP answers; checked by them, never run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_type

from cmdx import Fault, Task
from cmdx.web import Problem, problem, statuses


class Greet(Task[str]):
    name: str

    def work(self) -> str:
        return self.name


answer = problem(Greet.execute(name="Ada"))
assert_type(answer, Problem)
assert_type(answer.status, int)
assert_type(answer.headers, Mapping[str, str])
assert_type(answer.body, dict[str, Any])
statuses["declined"] = 402
try:
    Greet.execute_or_raise(name="Ada")
except Fault as fault:
    assert_type(problem(fault), Problem)

problem(Greet)  # type: ignore[arg-type]
problem(Greet.aexecute(name="Ada"))  # type: ignore[arg-type]
answer.status = 200  # type: ignore[misc]
statuses["declined"] = "402"  # type: ignore[assignment]
