"""
The operations that are killed: one task in five kinds.

Each execution has a token that no other one has. It is written down as the effect, and
it is the outcome: so two executions, or two answers, can be told apart.
"""

from __future__ import annotations

import os

from cmdx import Task
from cmdx.operations import connection, operation

from .kinds import KINDS


class Charging:
    """What ``work`` needs of the process it runs in; set once the process is made."""

    process = None


def charge_class(kind):
    name = "durability." + kind.name.replace(", ", ".").replace("=", "")

    @operation(persist=kind.persist, idempotent=kind.idempotent)
    class Charge(Task[str], name=name):
        key: str
        declines: bool

        def work(self):
            process, token = Charging.process, os.urandom(8).hex()
            process.at("before the effect")
            if kind.is_within:
                process.insert_effect(connection(), self.key, token)
            else:
                process.journal.write("effect", self.key, token=token)
            process.at("after the effect")
            if self.declines:
                self.fail(token)
            return token

    return Charge


CLASSES = {kind: charge_class(kind) for kind in KINDS}


def new_charge(kind, key):
    """Return the invocation for a key; every fifth is declined after its effect."""
    declines = key.endswith(("2", "7"))
    return CLASSES[kind](key=key, declines=declines)
