"""What the databases do differently: how a transaction begins, ends and fails."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cmdx.stores.statements import Statements

LOCK_TIMEOUT = 5.0
"""How long a transaction waits for a lock of another connection, in seconds."""


class Database(ABC):
    """What a store asks of its database, for one transaction at a time."""

    name: str
    """The path or the address, without a password."""

    _offset = 0.0
    """How much the clock of the database is ahead, in seconds."""

    @abstractmethod
    def _begin(
        self,
        sync: bool,  # noqa: FBT001 -- called for each transaction, and keywords cost
        relaxed: bool,  # noqa: FBT001
        read_only: bool,  # noqa: FBT001
        /,
    ) -> Statements:
        """Begin a transaction, reconnecting if need be."""

    @abstractmethod
    def _end(self, evidence: list[Any]) -> None:
        """
        Commit, and add to *evidence* what proves it.

        Both in one call of a function that is not written in Python: no signal is
        handled in between.
        """

    @abstractmethod
    def _outcome(self, evidence: list[Any]) -> bool | None:
        """Tell whether the transaction was committed; None if nobody can know."""

    @abstractmethod
    def _has_written(self) -> bool:
        """Tell whether the transaction that was just committed changed anything."""

    @abstractmethod
    def _rollback(self) -> None:
        """Leave the transaction, if there is one, without raising."""

    @abstractmethod
    def _explain(self, error: BaseException) -> BaseException:
        """Return a ``StoreError`` for an error of the driver; others as they are."""

    def _affects_only_writers(self, _error: BaseException) -> bool:
        """Tell whether a transaction that only reads could begin despite this error."""
        return False

    def _most_runs(self, _error: BaseException) -> int:
        """Return how often a unit may be run in all, if it fails by this error."""
        return 1

    def _checkpoint_if_due(self) -> None:  # noqa: B027 -- not every database needs it
        """Shorten the log now and then, when no caller waits for it."""
