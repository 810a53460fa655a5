"""What goes wrong with jobs: raised to callers, or the cause of a failed result."""

from __future__ import annotations

from typing import Any

from cmdx.exceptions import CmdxError, rebuild_error


class JobError(CmdxError):
    """A job cannot be used as it was asked for, or has no outcome of its own."""

    retryable = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from the finished sentence."""
        return rebuild_error, (type(self), self.args, {})


class JobGone(JobError, LookupError):  # noqa: N818 -- named in the contract
    """
    The job is not stored, any more or yet, or is one of another queue.

    Args:
        id: The id.
        is_uncommitted: Whether it was written in a transaction of the user's that was
            not committed.
        queue: The queue that has it, if that is another one.
    """

    def __init__(
        self,
        id: str,  # noqa: A002 -- as users write it
        *,
        is_uncommitted: bool = False,
        queue: str | None = None,
    ) -> None:
        if queue is not None:
            why = (
                f"is in another queue, {queue!r}. Use that one: Queue(..., {queue!r})."
            )
        elif is_uncommitted:
            why = (
                "is not stored: the transaction given as within= was not committed "
                "yet, or was rolled back. Commit it first."
            )
        else:
            why = (
                "is not stored: it has ended and was removed, or there was none. Read "
                "results sooner, or give the queue a longer `keep`."
            )
        super().__init__(f"the job {id!r} {why}")


class JobConflict(JobError):  # noqa: N818 -- named in the contract
    """The id belongs to a job of another task or queue, or with other inputs."""

    def __init__(
        self,
        id: str,  # noqa: A002 -- as users write it
        stored: str,
        task: str,
        queue: str | None = None,
    ) -> None:
        what = f"with other inputs of {stored}" if stored == task else f"for {stored}"
        if queue is not None:
            what = f"in the queue {queue!r}"
        super().__init__(
            f"the job {id!r} was enqueued {what}. Use another id for another job."
        )


class JobCancelled(JobError):  # noqa: N818 -- named in the contract
    """The job was cancelled before it succeeded."""

    def __init__(self, id: str) -> None:  # noqa: A002 -- as users write it
        super().__init__(
            f"the job {id!r} was cancelled. Replay it, or enqueue another one."
        )


class JobCrashed(JobError):  # noqa: N818 -- like those of the contract
    """The processes that ran the job have died each time, or it tried to end them."""

    def __init__(
        self,
        id: str,  # noqa: A002 -- as users write it
        crashes: int,
        why: str | None = None,
    ) -> None:
        if why is None:
            what = f"{crashes} processes died while they ran the job {id!r}"
            cure = "Find out what kills them, then replay it."
        else:
            what = (
                f"the job {id!r} ended without a result {crashes} times in a row, the "
                f"last time by {why}"
            )
            cure = "Let its work raise an Exception instead, then replay it."
        super().__init__(f"{what}, so it is not tried again. {cure}")


class JobIndeterminate(JobError):  # noqa: N818 -- like those of the contract
    """Nobody can know whether the work of the job was done."""

    def __init__(self, id: str) -> None:  # noqa: A002 -- as users write it
        super().__init__(
            f"nobody can know whether the job {id!r} was done: its worker died, was "
            "stopped, or was cut off for longer than its lease, and its task may not "
            "run twice. Look at its effects, then replay it if need be."
        )


class JobDropped(JobError):  # noqa: N818 -- like those of the contract
    """The package that runs the job has given it up."""

    def __init__(self, id: str, why: str) -> None:  # noqa: A002 -- as users write it
        super().__init__(f"the job {id!r} was dropped: {why}. Replay it if need be.")


class JobUnreadable(JobError):  # noqa: N818 -- like those of the contract
    """No worker could make the task of its stored form."""

    def __init__(self, id: str, why: str) -> None:  # noqa: A002 -- as users write it
        super().__init__(f"the job {id!r} cannot be run: {why} Then replay it.")
