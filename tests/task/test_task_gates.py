"""
``if_`` and ``unless`` of everything that has them, but for ``retry_on``.

A gate is the same wherever it stands; what is told to a gate of ``retry_on``, and what
it decides, is in ``tests/retry/test_gates.py``.
"""

from __future__ import annotations

import asyncio
from functools import cached_property, partial

import pytest

from cmdx import (
    DefinitionError,
    Task,
    UnknownContextKey,
    Workflow,
    after_execution,
    around_execution,
    before_execution,
    before_validation,
    group,
    middleware,
    on_complete,
    on_failed,
    on_interrupted,
    on_ko,
    on_ok,
    on_skipped,
    on_success,
    output,
    parallel,
    required,
)


class Asked(Task[None]):
    """Has something to ask, and something that happens if the answer is yes."""

    def work(self):
        pass

    def happen(self):
        self.context.happened = True

    def live(self):
        return self.context.get("live")

    @staticmethod
    def always():
        return True

    @classmethod
    def is_asked(cls):
        return cls.__name__ == "Asked"


class Skips(Asked):
    def work(self):
        self.skip()


class Fails(Asked):
    def work(self):
        self.fail()


class Step(Task[None]):
    def work(self):
        self.context.happened = True


def hooked(decorator, base=Asked):
    def declare(gates):
        hook = decorator(**gates)(lambda task: task.happen())
        return type("Hooked", (base,), {"hook": hook})

    return declare


def wrap(task):
    task.happen()
    yield


def in_around_hook(gates):
    return type("Hooked", (Asked,), {"hook": around_execution(**gates)(wrap)})


def in_middleware(gates):
    return middleware(wrap, **gates)(type("Wrapped", (Asked,), {}))


def in_deprecation(gates):
    keywords = {f"deprecated_{option.strip('_')}": gates[option] for option in gates}
    return type("Old", (Asked,), {}, deprecated=lambda task: task.happen(), **keywords)


def in_steps(listing):
    def declare(gates):
        names = {name: vars(Asked)[name] for name in ("live", "always", "is_asked")}
        return type("Flow", (Workflow,), {**names, "steps": (listing(Step, **gates),)})

    return declare


def in_input(gates):
    names = {"name": required(**gates), "__annotations__": {"name": str}}
    return type("Named", (Asked,), {**names, "__module__": __name__})


def in_output(gates):
    names = {"name": output(**gates), "__annotations__": {"name": str}}
    return type("Named", (Asked,), {**names, "__module__": __name__})


GATED = {
    "before_execution": hooked(before_execution),
    "before_validation": hooked(before_validation),
    "around_execution": in_around_hook,
    "after_execution": hooked(after_execution),
    "on_complete": hooked(on_complete),
    "on_interrupted": hooked(on_interrupted, Skips),
    "on_success": hooked(on_success),
    "on_skipped": hooked(on_skipped, Skips),
    "on_failed": hooked(on_failed, Fails),
    "on_ok": hooked(on_ok),
    "on_ko": hooked(on_ko, Skips),
    "middleware": in_middleware,
    "deprecated": in_deprecation,
    "group": in_steps(group),
    "parallel": in_steps(parallel),
    "required": in_input,
    "output": in_output,
}


@pytest.fixture(params=GATED)
def declare(request):
    """Make a class in which something is gated."""
    return GATED[request.param]


@pytest.fixture(params=[name for name in GATED if name != "required"])
def declare_early(request):
    """Make such a class before it has the method that is named; inputs want it."""
    return GATED[request.param]


def execute(task, **inputs):
    return task.execute(inputs)


def aexecute(task, **inputs):
    return asyncio.run(task.aexecute(inputs))


@pytest.fixture(params=[execute, aexecute])
def run(request):
    return request.param


def happened(result):
    """Tell whether what was gated has happened: an input or output was asked for."""
    return "happened" in result.context or "name" in result.errors


@pytest.mark.parametrize(
    ("gates", "live", "expected"),
    [
        ({}, None, True),
        ({"if_": None, "unless": None}, None, True),
        ({"if_": True}, None, True),
        ({"if_": False}, None, False),
        ({"unless": True}, None, False),
        ({"unless": False}, None, True),
        ({"if_": "live"}, True, True),
        ({"if_": "live"}, False, False),
        ({"unless": "live"}, True, False),
        ({"unless": "live"}, False, True),
        ({"if_": lambda task: task.context.live}, True, True),
        ({"if_": lambda task: task.context.live}, False, False),
        ({"unless": lambda task: task.context.live}, True, False),
        ({"unless": lambda task: task.context.live}, False, True),
        ({"if_": lambda: True}, None, True),
        ({"if_": lambda: False}, None, False),
        ({"if_": "always"}, None, True),
        ({"unless": "always"}, None, False),
        ({"if_": "is_asked"}, None, False),
        ({"unless": "is_asked"}, None, True),
        ({"if_": Asked.live}, True, True),
        ({"if_": Asked.live}, False, False),
        ({"if_": True, "unless": "live"}, True, False),
        ({"if_": True, "unless": "live"}, False, True),
        ({"if_": "live", "unless": "live"}, True, False),
        ({"if_": "live", "unless": False}, True, True),
        ({"if_": lambda: False, "unless": lambda: False}, None, False),
        ({"if_": "live"}, [], False),
        ({"if_": "live"}, "no", True),
        ({"if_": "live"}, 0, False),
    ],
)
def test_it_happens_when_its_gates_agree(run, declare, gates, live, expected):
    result = run(declare(gates), live=live)

    assert happened(result) is expected


def test_if_is_asked_before_unless_and_unless_only_if_it_matters(run, declare):
    asked = []

    def if_(task):
        asked.append("if_")
        return task.context.live

    def unless():
        asked.append("unless")
        return False

    task = declare({"unless": unless, "if_": if_})

    assert not happened(run(task, live=False))
    assert asked == ["if_"]
    assert happened(run(task, live=True))
    assert asked == ["if_", "if_", "unless"]


def test_a_gate_is_asked_anew_for_each_run(run, declare):
    task = declare({"if_": "live"})

    assert [happened(run(task, live=live)) for live in (1, 0, 1)] == [True, False, True]


def test_a_gate_may_name_a_method_that_a_subclass_overrides(run, declare):
    task = declare({"if_": "live"})
    child = type("Child", (task,), {"live": lambda _: True})

    assert not happened(run(task))
    assert happened(run(child))


def test_a_gate_may_name_a_method_that_only_a_subclass_has(run, declare_early):
    task = declare_early({"if_": "later"})
    child = type("Child", (task,), {"later": lambda _: True})

    assert happened(run(child))


def test_a_gate_that_raises_fails_the_task(run, declare):
    def ask(task):
        return task.context.nowhere

    result = run(declare({"if_": ask}))

    assert isinstance(result.cause, UnknownContextKey)
    assert result.reason.startswith("[UnknownContextKey] ")
    assert not happened(result)


@pytest.mark.parametrize(
    ("halt", "status"),
    [("succeed", "success"), ("skip", "skipped"), ("fail", "failed")],
)
def test_a_gate_may_halt_the_task(run, declare, halt, status):
    result = run(declare({"if_": lambda task: getattr(task, halt)("enough", code=1)}))

    assert (result.status, result.reason) == (status, "enough")
    assert result.metadata == {"code": 1}
    assert not happened(result)


def test_an_interrupt_in_a_gate_leaves_execute(run, declare):
    def ask():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(declare({"unless": ask}))


# -- misuse -------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["if_", "unless"])
@pytest.mark.parametrize("gate", [3, 0, 1, 0.5, [], ("live",), b"live"], ids=repr)
def test_what_is_no_gate_is_refused_when_it_is_declared(declare, option, gate):
    with pytest.raises(DefinitionError) as refused:
        declare({option: gate})

    message = str(refused.value)
    assert f"{option.rstrip('_')}" in message
    assert "must be True, False, the name of a method or a callable" in message
    assert f"got {gate!r}" in message


def test_a_gate_that_takes_more_than_the_task_is_refused_when_declared(declare):
    with pytest.raises(DefinitionError, match=r"takes 2 arguments.*Take fewer"):
        declare({"if_": lambda _task, _error: True})


async def ask_async(*_arguments):
    return False


class AsksAsync:
    async def __call__(self, _task):
        return False


@pytest.mark.parametrize(
    "gate",
    [
        ask_async,
        partial(ask_async, 1),
        partial(partial(ask_async, 1), 2),
        AsksAsync(),
        partial(AsksAsync()),
        AsksAsync().__call__,
    ],
    ids=["function", "partial", "nested", "object", "partial object", "method"],
)
def test_a_gate_that_awaits_is_refused_when_it_is_declared(declare, gate):
    with pytest.raises(DefinitionError, match=r"is async.*plain function"):
        declare({"unless": gate})


def test_a_class_is_a_gate_even_if_its_instances_await(run, declare):
    assert happened(run(declare({"if_": AsksAsync})))


def test_a_gate_that_names_no_method_is_refused_when_the_class_is_used(run, declare):
    with pytest.raises(DefinitionError) as refused:
        run(declare({"if_": "lvie"}))

    message = str(refused.value)
    assert "names 'lvie', which is not a method of" in message
    assert "did you mean 'live'?" in message


@pytest.mark.parametrize("decorate", [property, cached_property])
def test_a_gate_that_names_a_property_is_refused_with_the_cure(declare_early, decorate):
    task = declare_early({"if_": "is_live"})
    child = type("Child", (task,), {"is_live": decorate(lambda _: True)})

    with pytest.raises(DefinitionError) as refused:
        child.execute()

    message = str(refused.value)
    assert "'is_live', which is a property of Child. Make it a method" in message
    assert "did you mean" not in message


def test_a_gate_that_names_something_else_is_refused_when_used(declare_early):
    task = type("Odd", (declare_early({"if_": "limit"}),), {"limit": 5})

    with pytest.raises(DefinitionError, match="'limit', which is not a method") as told:
        task.execute()
    assert "did you mean" not in str(told.value)


def test_a_method_that_takes_more_than_self_is_refused_when_used(declare_early):
    ask = lambda _self, _error: True
    task = type("Odd", (declare_early({"if_": "ask"}),), {"ask": ask})

    with pytest.raises(DefinitionError, match="Take fewer arguments"):
        task.execute()
