"""``if_`` and ``unless`` of ``retry_on``: what they are told, and what they decide."""

from __future__ import annotations

import operator

import pytest

from cmdx import DefinitionError, Stop, Task, retry_on

pytestmark = pytest.mark.usefixtures("instant")


class Down(Task[None]):
    """Raises each time."""

    def work(self) -> None:
        raise TimeoutError("down")


@pytest.mark.parametrize(
    ("gates", "retries"),
    [
        ({"if_": True}, 3),
        ({"if_": False}, 0),
        ({"unless": False}, 3),
        ({"unless": True}, 0),
        ({"if_": True, "unless": False}, 3),
        ({"if_": True, "unless": True}, 0),
        ({"if_": False, "unless": False}, 0),
        ({"if_": False, "unless": True}, 0),
    ],
)
@pytest.mark.parametrize("form", ["literal", "callable", "method"])
def test_both_gates_must_agree(execute, gates, retries, form):  # R-004-12
    forms = {
        "literal": lambda answer: answer,
        "callable": lambda answer: lambda: answer,
        "method": lambda answer: "yes" if answer else "no",
    }
    gates = {option: forms[form](answer) for option, answer in gates.items()}

    @retry_on(TimeoutError, **gates)
    class Charge(Down):
        def yes(self):
            return True

        def no(self):
            return False

    result = execute(Charge)

    assert result.retries == retries
    assert result.stopped is (Stop.EXHAUSTED if retries else Stop.GATE)


@pytest.mark.parametrize(
    ("wanted", "asked"), [(True, ["if_", "unless"] * 3), (False, ["if_"])]
)
def test_if_is_asked_first_and_unless_only_if_it_agrees(execute, wanted, asked):
    trace = []  # R-004-12

    def if_():
        trace.append("if_")
        return wanted

    def unless():
        trace.append("unless")
        return False

    @retry_on(TimeoutError, unless=unless, if_=if_)
    class Charge(Down):
        pass

    execute(Charge)

    assert trace == asked


@pytest.mark.parametrize("answer", [None, 0, "", [], {}, 0.0], ids=repr)
def test_what_python_calls_false_closes_a_gate(execute, answer):
    @retry_on(TimeoutError, if_=lambda: answer)
    class Closed(Down):
        pass

    @retry_on(TimeoutError, unless=lambda: answer)
    class Open(Down):
        pass

    assert (execute(Closed).retries, execute(Open).retries) == (0, 3)


@pytest.mark.parametrize("answer", [1, "no", [0], object], ids=repr)
def test_what_python_calls_true_opens_a_gate(execute, answer):
    @retry_on(TimeoutError, if_=lambda: answer)
    class Open(Down):
        pass

    @retry_on(TimeoutError, unless=lambda: answer)
    class Closed(Down):
        pass

    assert (execute(Closed).retries, execute(Open).retries) == (0, 3)


def test_a_gate_is_not_asked_after_the_last_attempt(execute):  # R-004-10
    asked = []

    def gate(_task, _error, attempt):
        asked.append(attempt)
        return True

    @retry_on(TimeoutError, limit=2, if_=gate)
    class Charge(Down):
        pass

    execute(Charge)

    assert asked == [0, 1]


@pytest.mark.parametrize("limit", [0, 3])
def test_a_gate_is_asked_about_listed_errors_only(execute, limit):  # R-004-10
    asked = []

    @retry_on(KeyError, limit=limit, if_=lambda: asked.append(1))
    class Charge(Down):
        pass

    execute(Charge)

    assert asked == []


def test_a_closed_gate_ends_the_run_at_once(execute, instant):  # R-004-11
    @retry_on(TimeoutError, limit=9, if_=lambda _task, _error, attempt: attempt < 2)
    class Charge(Down):
        pass

    result = execute(Charge)

    assert (result.retries, result.stopped) == (2, Stop.GATE)
    assert instant.pauses == [0.5, 0.5]
    assert result.attempts[-1].error is result.cause
    assert isinstance(result.cause, TimeoutError)


def test_a_jitter_is_not_asked_behind_a_closed_gate(execute):  # R-004-11
    asked = []

    @retry_on(TimeoutError, if_=False, jitter=lambda: asked.append(1))
    class Charge(Down):
        pass

    execute(Charge)

    assert asked == []


class Asking:
    """A callable object."""

    def __call__(self, task, error, attempt):
        return record((task, error, attempt))


class Unhashable(Asking):
    __hash__ = None


taken = []


def record(arguments):
    taken.append(arguments)
    return False


def three(task, error, attempt):
    return record((task, error, attempt))


@pytest.mark.parametrize(
    ("gate", "count"),
    [
        (lambda: record(()), 0),
        (lambda error: record((error,)), 1),
        (lambda error, attempt: record((error, attempt)), 2),
        (lambda task, error, attempt: record((task, error, attempt)), 3),
        (lambda error, attempt=None: record((error, attempt)), 2),
        (lambda *arguments: record(arguments), 3),
        (Asking(), 3),
        (Unhashable(), 3),
        (Asking().__call__, 3),
        (three, 3),
    ],
    ids=[
        "none",
        "one",
        "two",
        "three",
        "default",
        "any",
        "object",
        "unhashable object",
        "bound method",
        "function",
    ],
)
@pytest.mark.parametrize("option", ["if_", "unless"])
def test_a_callable_is_given_as_much_as_it_takes(execute, option, gate, count):
    taken.clear()  # R-004-13

    @retry_on(TimeoutError, limit=1, **{option: gate})
    class Charge(Down):
        pass

    result = execute(Charge)

    [arguments] = taken
    facts = (result.attempts[0].error, 0)
    if count == 3:
        task, *told = arguments
        assert isinstance(task, Charge)
        assert tuple(told) == facts
    else:
        assert arguments == facts[:count]


class Methods(Down):
    """Offers methods of every arity."""

    def nothing(self):
        return record((self,))

    def one(self, error):
        return record((self, error))

    def two(self, error, attempt):
        return record((self, error, attempt))

    def _private(self, error, attempt):
        return record((self, error, attempt))

    @staticmethod
    def static(error, attempt):
        return record(("static", error, attempt))

    @staticmethod
    def static_of_one(error):
        return record(("static", error))

    @classmethod
    def of_class(cls, error, attempt):
        return record(("class", error, attempt))


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("nothing", 0),
        ("one", 1),
        ("two", 2),
        ("_private", 2),
        ("static", 2),
        ("static_of_one", 1),
        ("of_class", 2),
    ],
)
@pytest.mark.parametrize("option", ["if_", "unless"])
def test_a_method_is_given_error_and_attempt(execute, option, name, count):
    taken.clear()  # R-004-13

    @retry_on(TimeoutError, limit=1, **{option: name})
    class Charge(Methods):
        pass

    result = execute(Charge)

    [(owner, *arguments)] = taken
    assert owner in ("static", "class") or isinstance(owner, Charge)
    assert arguments == [result.attempts[0].error, 0][:count]


def test_a_gate_is_told_which_attempt_failed_and_why(execute):  # R-004-13
    seen = []

    @retry_on(TimeoutError, limit=3, if_="is_transient")
    class Charge(Task[None]):
        def work(self) -> None:
            raise TimeoutError(f"number {self.attempt}")

        def is_transient(self, error, attempt):
            seen.append((str(error), attempt, self.attempt))
            return True

    execute(Charge)

    assert seen == [("number 0", 0, 0), ("number 1", 1, 1), ("number 2", 2, 2)]


def test_a_subclass_may_override_the_method_a_gate_names(execute):
    @retry_on(TimeoutError, if_="is_transient")
    class Parent(Down):
        def is_transient(self):
            return False

    class Child(Parent):
        def is_transient(self):
            return True

    assert (execute(Parent).retries, execute(Child).retries) == (0, 3)


def test_a_gate_may_read_the_context(execute):
    @retry_on(TimeoutError, if_=lambda task, _error, _attempt: task.context.patient)
    class Charge(Down):
        pass

    assert execute(Charge, patient=True).retries == 3
    assert execute(Charge, patient=False).retries == 0


@pytest.mark.parametrize("option", ["if_", "unless"])
@pytest.mark.parametrize("named", [False, True], ids=["callable", "method"])
def test_an_error_of_a_gate_replaces_the_error_and_is_not_retried(
    execute, instant, option, named
):  # R-004-14
    raised = TimeoutError("of the gate")

    def ask(*_):
        raise raised

    @retry_on(TimeoutError, **{option: "ask" if named else ask})
    class Charge(Down):
        pass

    if named:
        Charge.ask = ask

    result = execute(Charge)

    assert result.cause is raised
    assert raised.__context__ is result.attempts[-1].error
    assert result.replaced.cause is result.attempts[-1].error
    assert (result.reason, result.stopped) == ("[TimeoutError] of the gate", "gate")
    assert (result.retries, instant.pauses) == (0, [])
    assert [str(each.error) for each in result.attempts] == ["down"]


def test_an_error_of_a_gate_leaves_a_strict_run(execute):  # R-004-14
    raised = ZeroDivisionError("of the gate")

    def ask():
        raise raised

    @retry_on(TimeoutError, if_=ask)
    class Charge(Down):
        pass

    with pytest.raises(ZeroDivisionError) as caught:
        execute.or_raise(Charge)

    assert caught.value is raised


@pytest.mark.parametrize("option", ["if_", "unless"])
def test_a_gate_may_halt_the_task(execute, instant, option):
    @retry_on(TimeoutError, **{option: lambda task, *_: task.skip("no", code=7)})
    class Charge(Down):
        pass

    result = execute(Charge)

    assert (result.skipped, result.reason) == (True, "no")
    assert (result.stopped, result.metadata["code"]) == (Stop.HALTED, 7)
    assert (result.retries, instant.pauses, result.cause) == (0, [], None)
    assert result.replaced.reason == "[TimeoutError] down"


@pytest.mark.parametrize("halt", ["succeed", "fail"])
def test_a_gate_may_end_the_task_either_way(execute, halt):
    @retry_on(TimeoutError, if_=lambda task, *_: getattr(task, halt)("decided"))
    class Charge(Down):
        pass

    result = execute(Charge)

    assert (result.success, result.reason) == (halt == "succeed", "decided")


def test_an_interruption_in_a_gate_leaves_execute(execute):
    def ask():
        raise KeyboardInterrupt

    @retry_on(TimeoutError, if_=ask)
    class Charge(Down):
        pass

    with pytest.raises(KeyboardInterrupt):
        execute(Charge)


# -- inheritance ----------------------------------------------------------------------


def test_a_later_gate_also_governs_earlier_exceptions(execute):  # R-004-4
    @retry_on(KeyError, if_=False)
    @retry_on(TimeoutError)
    class Charge(Down):
        pass

    assert execute(Charge).retries == 0


def test_a_subclass_can_clear_an_inherited_gate(execute):  # R-004-12
    @retry_on(TimeoutError, if_=False)
    class Parent(Down):
        pass

    @retry_on(if_=None)
    class Child(Parent):
        pass

    assert execute(Parent).retries == 0
    assert execute(Child).retries == 3


# -- misuse ---------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["if_", "unless"])
@pytest.mark.parametrize("gate", [1, 0, 0.5, [], {}, b"yes"], ids=repr)
def test_a_gate_is_a_truth_value_a_name_or_a_callable(option, gate):  # R-004-13
    with pytest.raises(DefinitionError) as refused:
        retry_on(TimeoutError, **{option: gate})

    message = str(refused.value)
    assert f"retry_on: {option} must be True, False, the name of a method" in message
    assert f"got {gate!r}" in message


@pytest.mark.parametrize("option", ["if_", "unless"])
def test_a_gate_must_not_insist_on_more_than_it_is_given(option):
    with pytest.raises(DefinitionError) as refused:
        retry_on(TimeoutError, **{option: lambda _task, _error, _attempt, _more: True})

    message = str(refused.value)
    assert f"retry_on: {option}" in message
    assert "takes 4 arguments, but is called with 3" in message
    assert "Take fewer" in message


@pytest.mark.parametrize("option", ["if_", "unless"])
def test_a_gate_must_not_require_a_keyword(option):
    def is_worth_it(error, *, least):
        return error.status >= least

    with pytest.raises(DefinitionError) as refused:
        retry_on(TimeoutError, **{option: is_worth_it})

    message = str(refused.value)
    assert "requires the keyword argument 'least', but is called without it" in message
    assert "or give them defaults" in message


def test_a_named_gate_must_not_require_a_keyword():
    @retry_on(TimeoutError, if_="is_worth_it")
    class Charge(Down):
        def is_worth_it(self, error, *, least):
            return error.status >= least

    with pytest.raises(DefinitionError, match="requires the keyword argument 'least'"):
        Charge.execute()


class Refused(Exception):
    def __init__(self, status):
        super().__init__(status)
        self.status = status


@pytest.mark.parametrize(
    "gate", [operator.attrgetter("status"), operator.attrgetter("status.real"), bool]
)
@pytest.mark.parametrize("named", [False, True])
def test_a_gate_without_a_readable_signature_is_given_the_error(execute, gate, named):
    @retry_on(Refused, limit=2, if_="is_bad" if named else gate)
    class Charge(Task[None]):
        is_bad = gate

        def work(self):
            raise Refused(self.context.status)

    assert execute(Charge, status=503).retries == 2
    assert execute(Charge, status=0).retries == (2 if gate is bool else 0)


def test_an_object_of_the_class_can_be_named_as_a_gate(execute):
    class AtLeast:
        def __init__(self, least):
            self.least = least

        def __call__(self, error):
            return error.status >= self.least

    @retry_on(Refused, limit=2, if_="is_bad")
    class Charge(Task[None]):
        is_bad = AtLeast(500)

        def work(self):
            raise Refused(self.context.status)

    assert execute(Charge, status=503).retries == 2
    assert execute(Charge, status=404).retries == 0


@pytest.mark.parametrize("option", ["if_", "unless"])
def test_a_gate_must_not_be_async(option):
    async def ask(_task, _error, _attempt):
        return True

    with pytest.raises(DefinitionError, match=f"{option}: .*is async.*plain function"):
        retry_on(TimeoutError, **{option: ask})


@pytest.mark.parametrize("option", ["if_", "unless"])
def test_a_gate_that_names_no_method_is_refused_when_the_task_is_run(execute, option):
    @retry_on(TimeoutError, **{option: "is_transient"})
    class Charge(Down):
        def is_transiend(self):
            return True

    with pytest.raises(DefinitionError) as refused:
        execute(Charge)

    message = str(refused.value)
    assert f"{option} names 'is_transient', which is not a method of" in message
    assert "did you mean 'is_transiend'?" in message
    assert "or give a callable" in message


def test_a_gate_that_names_something_other_than_a_method_is_refused():
    @retry_on(TimeoutError, if_="limit")
    class Charge(Down):
        limit = 5

    with pytest.raises(DefinitionError, match="names 'limit', which is not a method"):
        Charge.execute()


def test_a_named_gate_must_not_insist_on_more_than_it_is_given():
    @retry_on(TimeoutError, if_="is_transient")
    class Charge(Down):
        def is_transient(self, _error, _attempt, _more):
            return True

    with pytest.raises(DefinitionError, match="Take fewer arguments"):
        Charge.execute()


def test_a_subclass_may_define_the_method_a_gate_names():
    @retry_on(TimeoutError, if_="is_transient")
    class Parent(Down):
        pass

    class Child(Parent):
        def is_transient(self):
            return True

    assert Child.execute().retries == 3
