"""
The rows about typed inputs.

Three of them: text to a bounded number, text that must be there, and one left out.
"""

from __future__ import annotations

from typing import Annotated

from core import empty
from measuring import Call, Row

from cmdx import Task, optional, required

try:
    import pydantic
except ImportError:
    pydantic = None


class Ordering(Task[None]):
    order_id: int = required(ge=1)
    customer: str = required(presence=True)
    currency: str = optional(default="EUR")

    def work(self):
        return None


ordering = Call(lambda: Ordering.execute(order_id="7", customer="Ada"))


def by_pydantic():
    """The same three, validated without a task around them."""
    if pydantic is None:
        return None

    class Order(pydantic.BaseModel):
        order_id: Annotated[int, pydantic.Field(ge=1)]
        customer: Annotated[str, pydantic.Field(pattern=r"\S")]
        currency: str = "EUR"

    validate = pydantic.TypeAdapter(Order).validate_python
    return Call(lambda: validate({"order_id": "7", "customer": "Ada"})) + empty


ROWS = [
    Row("three inputs", ordering, "empty task", empty, at_most=3),
    Row("three inputs", ordering, "pydantic and empty task", by_pydantic(), at_most=2),
]
