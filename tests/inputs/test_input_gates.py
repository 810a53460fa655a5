"""``if_`` and ``unless`` of inputs."""

from __future__ import annotations

from typing import Any

import pytest

from cmdx import (
    Task,
    required,
)


@pytest.mark.parametrize(
    ("option", "gate"),
    [
        ("if_", lambda task: task.context.get("strict")),
        ("if_", "is_strict"),
        ("unless", lambda task: not task.context.get("strict")),
        ("unless", "is_lax"),
    ],
    ids=["if_ callable", "if_ method", "unless callable", "unless method"],
)
def test_a_gate_says_whether_an_input_is_required(option, gate):
    class Tell(Task[Any]):
        number: int = required(**{option: gate})

        def is_strict(self):
            return self.context.get("strict")

        def is_lax(self):
            return not self.is_strict()

        def work(self):
            return self.number

    assert Tell.execute({"strict": False}).value is None
    assert Tell.execute({"strict": True}).errors.to_dict() == {
        "number": ["is required"]
    }
    assert Tell.execute({"strict": False, "number": "3"}).value == 3
    assert Tell.execute({"strict": False, "number": "x"}).failed


def test_a_gate_may_look_at_the_inputs_before_it():
    class Ship(Task[Any]):
        pickup: bool = False
        address: str = required(unless=lambda task: task.pickup)

        def work(self):
            return self.address

    assert Ship.execute(pickup="yes").value is None
    assert Ship.execute().errors.to_dict() == {"address": ["is required"]}


@pytest.mark.parametrize(
    ("gates", "needed"),
    [
        ({"if_": True}, True),
        ({"if_": False}, False),
        ({"unless": True}, False),
        ({"unless": False}, True),
        ({"if_": True, "unless": True}, False),
        ({"if_": None, "unless": None}, True),
    ],
)
def test_a_gate_may_be_a_boolean(gates, needed):
    class Tell(Task[Any]):
        number: int = required(**gates)

        def work(self):
            return self.number

    assert Tell.execute().failed is needed
