"""Whether each step will find its inputs, known before anything runs."""

from __future__ import annotations

import inspect
import warnings

import pytest

from cmdx import (
    Task,
    Workflow,
    group,
    optional,
    output,
    parallel,
    required,
    step,
)


class Find(Task[str]):
    order_id: int
    order: str = output()

    def work(self) -> str: ...


class Charge(Task[None]):
    order: str
    currency: str = "EUR"
    receipt: str = output()

    def work(self) -> None: ...


class Mail(Task[None]):
    receipt: str
    address: str

    def work(self) -> None: ...


class Loose(Task[None]):
    """Declares nothing, so nobody can tell."""

    def work(self) -> None: ...


def missing(*listed, **names):
    workflow = type("Flow", (Workflow,), {"steps": listed, **names})
    return [(each.task, each.input) for each in workflow.wiring()]


# -- what is found --------------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ((Loose,), []),
        ((Find,), [("Find", "order_id")]),
        ((Find, Charge), [("Find", "order_id")]),
        ((Charge, Find), [("Charge", "order"), ("Find", "order_id")]),
        ((Find, Charge, Mail), [("Find", "order_id"), ("Mail", "address")]),
        ((Find, Find), [("Find", "order_id"), ("Find", "order_id")]),
    ],
)
def test_wiring_names_each_input_that_nothing_provides(listed, expected):
    assert missing(*listed) == expected


def test_wiring_says_it_in_words():
    (unwired,) = type("Flow", (Workflow,), {"steps": (Find,)}).wiring()

    assert str(unwired) == "Find needs 'order_id', which nothing before it provides"


def test_the_inputs_of_the_workflow_provide():
    class Flow(Workflow[None]):
        order_id: int = required()
        address: str = "nobody@example.com"
        steps = (Find, Charge, Mail)

    assert Flow.wiring() == []


def test_inputs_are_known_by_the_names_callers_use():
    class Flow(Workflow[None]):
        number: int = required(alias="order_id")
        steps = (Find,)

    class Ask(Task[None]):
        number: int = required(alias="order_id")

        def work(self) -> None: ...

    assert Flow.wiring() == []
    assert missing(Ask) == [("Ask", "order_id")]


@pytest.mark.parametrize(
    "field",
    [
        optional(default=1),
        optional(factory=int),
        required(source=lambda: 1),
        required(if_=lambda: False),
        required(unless=lambda: True),
    ],
)
def test_an_input_that_need_not_be_given_is_not_missed(field):
    names = {"__annotations__": {"number": int}, "number": field}
    names["work"] = lambda _: None

    assert missing(type("Relaxed", (Task,), names)) == []


def test_every_input_of_a_wired_workflow_is_really_there(run):
    class Make(Task[None]):
        order_id: int
        order: str = output()

        def work(self) -> None:
            self.order = f"order {self.order_id}"

    class Ship(Task[str]):
        order: str
        express: bool

        def work(self) -> str:
            return f"{self.order} {self.express}"

    class Flow(Workflow[str]):
        order_id: int = required()
        express: bool = False
        steps = (Make, Ship)

    assert Flow.wiring() == []
    assert run(Flow, order_id=7).value == "order 7 False"


# -- groups ---------------------------------------------------------------------


def test_steps_of_a_group_provide_for_what_follows():
    assert missing(group(Find, group(Charge)), Mail) == [
        ("Find", "order_id"),
        ("Mail", "address"),
    ]


def test_siblings_do_not_provide_for_each_other():
    assert missing(parallel(Find, Charge)) == [
        ("Find", "order_id"),
        ("Charge", "order"),
    ]


def test_siblings_provide_for_what_follows():
    assert missing(parallel(Find, Loose), Charge) == [("Find", "order_id")]


def test_groups_beside_each_other_provide_within_themselves():
    assert missing(parallel(group(Find, Charge), Charge), Mail) == [
        ("Find", "order_id"),
        ("Charge", "order"),
        ("Mail", "address"),
    ]


# -- other names ----------------------------------------------------------------


def test_a_mapped_input_needs_the_other_key():
    renamed = step(Find, map={"order_id": "id"})

    assert missing(renamed) == [("Find", "id")]
    assert missing(output_of("id"), renamed) == []
    assert missing(output_of("order_id"), renamed) == [("Find", "id")]


def output_of(name):
    names = {"__annotations__": {name: int}, name: output(), "work": lambda _: None}
    return type("Give", (Task,), names)


def test_a_mapped_step_still_provides_its_outputs():
    assert missing(output_of("id"), step(Find, map={"order_id": "id"}), Charge) == []


def test_a_step_with_into_provides_that_key_alone():
    found = step(Find, into="found")
    taking = step(Charge, map={"order": "found"})

    assert missing(found, taking) == [("Find", "order_id")]
    assert missing(found, Charge) == [("Find", "order_id"), ("Charge", "order")]


# -- nested workflows -----------------------------------------------------------


class Billing(Workflow[None]):
    order: str = required()
    steps = (Charge,)


def test_a_nested_workflow_needs_its_inputs_and_provides_its_outputs():
    assert missing(Billing, Mail) == [("Billing", "order"), ("Mail", "address")]
    assert missing(Find, Billing) == [("Find", "order_id")]


def test_steps_of_a_nested_workflow_need_what_it_does_not_declare():
    class Open(Workflow[None]):
        steps = (Charge, Mail)

    assert missing(Find, Open) == [("Find", "order_id"), ("Mail", "address")]
    assert missing(output_of("order"), output_of("address"), Open) == []


def test_names_given_to_a_nested_workflow_reach_its_steps():
    class Open(Workflow[None]):
        steps = (Charge,)

    assert missing(output_of("text"), step(Open, map={"order": "text"})) == []
    assert missing(output_of("order"), step(Open, map={"order": "text"})) == [
        ("Charge", "order")
    ]


# -- the warning ----------------------------------------------------------------


@pytest.fixture
def warned():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def test_a_workflow_that_declares_inputs_warns_when_it_is_made(warned):
    here = inspect.currentframe().f_lineno

    class Flow(Workflow[None]):
        order_id: int = required()
        steps = (Find, Mail)

    assert [each.category for each in warned] == [UserWarning, UserWarning]
    message = str(warned[0].message)
    assert message.startswith(f"{Flow.__qualname__}: Mail needs 'receipt', which ")
    assert message.endswith(
        "Declare it as an input of the workflow, or as an output of an earlier step."
    )
    assert {each.filename for each in warned} == {__file__}
    assert {each.lineno for each in warned} == {here + 2}


def test_a_workflow_that_takes_anything_does_not_warn(warned):
    class Flow(Workflow[None]):
        steps = (Find, Mail)

    assert warned == []
    assert len(Flow.wiring()) == 3


def test_a_subclass_is_checked_with_its_own_steps(warned):
    class Longer(Billing):
        steps = (*Billing.steps, Find)

    assert [each.input for each in Longer.wiring()] == ["order_id"]
    assert len(warned) == 1


def test_a_wired_workflow_does_not_warn(warned):
    class Flow(Workflow[None]):
        order_id: int = required()
        steps = (Find, Charge)

    assert warned == []
    assert Flow.wiring() == []


def test_a_warning_can_be_made_an_error():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="Mail needs 'receipt'"):

            class Flow(Workflow[None]):
                address: str = required()
                steps = (Mail,)
