"""
What a caller is told in place of an outcome.

Each is the cause of a failed result. None of them says that trying again may help, but
``StillRunning`` says when to ask again. The one that may be retried is
``cmdx.stores.StoreUnavailable``. The attribute ``code`` is what callers in other
programs are told, by ``cmdx.guidance`` and ``cmdx.web``.
"""

from __future__ import annotations

import re
from typing import Any

from cmdx.exceptions import CmdxError, rebuild_error


class OperationError(CmdxError):
    """An operation has no outcome for this caller."""

    retryable = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from the finished sentence."""
        return rebuild_error, (type(self), self.args, {})


class OperationConflict(OperationError):  # noqa: N818 -- named in the contract
    """The id belongs to another task, or to other inputs."""

    code = "IDEMPOTENCY_CONFLICT"

    def __init__(self, id: str, stored: str, task: str) -> None:  # noqa: A002 -- as users write it
        if stored == task:
            what = f"the operation {id!r} was started with other inputs of {task}. "
            cure = "Use a new id for a new intention."
        else:
            what = f"the operation {id!r} was started by {stored}, not by {task}. "
            cure = (
                "Use a new id for a new intention. A class that is to keep its "
                'operations when it is moved or renamed needs the keyword name="...".'
            )
        super().__init__(what + cure)


class Indeterminate(OperationError):  # noqa: N818 -- named in the contract
    """
    Nobody can know whether the work was done.

    Args:
        id: The id of the operation.
        why: What happened to it.
        can_ask: Whether a ``recover()`` of the task would be asked.
    """

    code = "OUTCOME_UNKNOWN"

    def __init__(
        self,
        id: str,  # noqa: A002 -- as users write it
        why: str,
        *,
        can_ask: bool = True,
    ) -> None:
        cure = ", or give the task a recover() that does" if can_ask else ""
        super().__init__(
            f"nobody can know whether the operation {id!r} was done: "
            f"{without_full_stop(why)}. "
            f"Look at its effects{cure}."
        )


class OperationCancelled(OperationError):  # noqa: N818 -- named in the contract
    """The operation was cancelled while this caller was waiting for it."""

    def __init__(self, id: str) -> None:  # noqa: A002 -- as users write it
        super().__init__(
            f"the operation {id!r} was cancelled or interrupted before it ended. "
            "Use a new id to start over, or the same one if it is idempotent."
        )


class OperationExpired(OperationError):  # noqa: N818 -- named in the contract
    """The outcome is no longer kept, and the id is not used again."""

    code = "IDEMPOTENCY_EXPIRED"

    def __init__(self, id: str) -> None:  # noqa: A002 -- as users write it
        super().__init__(
            f"the operation {id!r} ended so long ago that its outcome is no longer "
            "kept. Look at its effects before you use a new id, and declare a longer "
            "`keep` for the next time."
        )


class StillRunning(OperationError):  # noqa: N818 -- named in the contract
    """The operation did not end within the time this caller wanted to wait."""

    code = "IDEMPOTENCY_PROCESSING"
    retry_after = 1.0

    def __init__(self, id: str, seconds: float) -> None:  # noqa: A002 -- as users write it
        super().__init__(
            f"the operation {id!r} is still running after {seconds:.2g} s. "
            "Ask again with the same id."
        )


class OperationIdError(CmdxError, ValueError):
    """An id or the name of a session cannot be used."""


def without_full_stop(text: str) -> str:
    """Return *text* without a full stop at its end, or before its last parenthesis."""
    return re.sub(r"(?<!\.)\.(\)?)$", r"\1", text)
