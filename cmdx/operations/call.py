"""One caller's attempt at an operation: what it asks for, and how long it waits."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cmdx import remaining
from cmdx.chain import new_id
from cmdx.clock import entropy
from cmdx.declare.checks import check_seconds
from cmdx.operations.errors import OperationIdError
from cmdx.operations.policy import OperationPlan
from cmdx.operations.table import OperationState, Request
from cmdx.wire import WireError, dump_invocation, fingerprint, load_invocation

if TYPE_CHECKING:
    from cmdx import Task
    from cmdx.operations.ledger import Session
    from cmdx.operations.table import OperationRecord
    from cmdx.operations.within import Transaction

ID = re.compile(r"[A-Za-z0-9_:.\-]{1,255}")


class Call:
    """
    One caller's attempt at an operation.

    What happens to it is noted for the answer:

    - ``is_attached``: it has waited for another run, and has not run itself since
    - ``seen``: the version of the store when it last waited
    - ``has_asked``: the store was asked to admit it, and may have done so
    - ``has_run``: it was the owner once, so it sends the signal of a cancel
    - ``stored_inputs``: its inputs as JSON, if it may be run or asked about again
    - ``request.attached_to``: whose run it waited for, or its own that was lost
    - ``request.has_seen_recovery``: it has waited for a recovery, and does not ask
    """

    def __init__(
        self,
        session: Session,
        invocation: Task[Any],
        id: str | None,  # noqa: A002 -- as users write it
        wait: float | None,
        transaction: Transaction | None,
    ) -> None:
        plan = OperationPlan.of(type(invocation))
        self.ledger = session.ledger
        self.transaction = transaction
        self.invocation = invocation
        self.wait = None if wait is None else check_seconds("run()", "wait", wait)
        self.is_attached = False
        self.seen: Any = None
        self.has_asked = False
        self.has_run = False
        self.is_new = id is None
        """Whether nobody else can know its id."""
        self.began = self.ledger.store.now()
        self.runs_left = iter((invocation,))
        self.inputs = copy_of_inputs(invocation)
        self.stored_inputs: dict[str, Any] | None = None
        self.request = Request(
            session=session.name,
            id=new_id() if id is None else check_id(id),
            task=plan.name,
            module=plan.module,
            fingerprint=fingerprint(invocation),
            policy=plan.policy,
            owner="",  # nobody has it; a token is made before anything is written
            has_streams=plan.has_streams,
            is_transactional=transaction is not None,
            can_recover=plan.can_recover,
        )

    def follow(self, record: OperationRecord) -> None:
        """Note whose run, or that a recovery, was waited for, and take a new token."""
        if record.state is OperationState.LIVE:
            facts: dict[str, Any] = {"attached_to": record.owner}
        else:
            facts = {"has_seen_recovery": True}
        self.has_asked = False
        self.request = self.request._replace(
            owner=new_token(),
            has_run=self.has_run,
            has_used_inputs=self.has_run and self.stored_inputs is None,
            **facts,
        )

    def note_run(self, record: OperationRecord) -> None:
        """Note that it is the owner, whose ``work`` may change or use up its inputs."""
        self.has_run, self.is_attached = True, False
        request = self.request
        may_go_on = record.idempotent or record.has_no_effect_unsealed
        if (may_go_on or request.can_recover) and not request.has_streams:
            with suppress(WireError):  # one that a factory would have made
                self.stored_inputs = dump_invocation(self.invocation)

    def next_invocation(self) -> Task[Any]:
        """Return the invocation, or another one with the same inputs if it has run."""
        invocation = next(self.runs_left, None)
        if invocation is not None:
            return invocation
        if self.stored_inputs is not None:
            return load_invocation(self.stored_inputs)
        return type(self.invocation)(self.inputs)

    def remaining(self) -> float:
        """Return the seconds that the caller still wants to wait, or may."""
        limits = [remaining()]
        if self.wait is not None:
            limits.append(self.wait - (self.ledger.store.now() - self.began))
        return min((limit for limit in limits if limit is not None), default=math.inf)


def new_token() -> str:
    """Return the token of an owner, which nobody else can have."""
    return f"{entropy():020x}"


def copy_of_inputs(invocation: Task[Any]) -> Any:
    """Return the inputs that another invocation can be made from."""
    run = invocation._cmdx_
    return dict(run.given if run._context is None else run._context.items())


def check_id(id: object) -> str:  # noqa: A002 -- as users write it
    """Return the id of an operation; refuse anything else."""
    if not isinstance(id, str) or not ID.fullmatch(id):
        message = (
            "the id of an operation is a text of 1 to 255 letters, digits, and -_:. "
            f"only, got {id!r}."
        )
        raise OperationIdError(message)
    return id
