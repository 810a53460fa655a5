"""The kinds of operations: the four policies, and ``within=``."""

from __future__ import annotations

import attrs


@attrs.frozen
class Kind:
    """How an operation is run."""

    name: str
    persist: bool
    idempotent: bool
    is_within: bool = False

    @property
    def may_run_again(self):
        """Whether it always comes to an outcome, however often it is killed."""
        return self.idempotent or self.is_within


KINDS = (
    Kind("volatile", persist=False, idempotent=False),
    Kind("volatile, idempotent", persist=False, idempotent=True),
    Kind("persist", persist=True, idempotent=False),
    Kind("persist, idempotent", persist=True, idempotent=True),
    Kind("within=", persist=True, idempotent=False, is_within=True),
)
