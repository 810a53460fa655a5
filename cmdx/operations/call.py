"""One caller's attempt at an operation: what it asks for, and how long it waits."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from cmdx import remaining
from cmdx.chain import new_id
from cmdx.clock import entropy
from cmdx.declare.checks import check_seconds
from cmdx.operations.errors import OperationIdError
from cmdx.operations.policy import OperationPlan
from cmdx.operations.table import OperationState, Request
from cmdx.wire import fingerprint

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

    - ``is_attached``: it has waited for another run; the answer says so
    - ``has_asked``: the store was asked to admit it, and may have done so
    - ``has_run``: it was the owner once; a cancel is announced by the owner
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
        self.has_asked = False
        self.has_run = False
        self.is_new = id is None
        """Whether nobody else can know its id."""
        self.began = self.ledger.store.now()
        self.runs_left = iter((invocation,))
        self.inputs = copy_of_inputs(invocation)
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
            owner=new_token(), has_run=self.has_run, **facts
        )

    def next_invocation(self) -> Task[Any]:
        """Return the invocation, or another one with the same inputs if it has run."""
        return next(self.runs_left, None) or type(self.invocation)(self.inputs)

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
