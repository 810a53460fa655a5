"""What goes wrong with stored invocations and results."""

from __future__ import annotations

from cmdx.exceptions import CmdxError


class WireError(CmdxError, ValueError):
    """
    A task cannot be stored as JSON, or stored data cannot be read.

    Args:
        problem: What is wrong, as a sentence.
        cure: What to do about it, if that is not said yet.
    """

    def __init__(self, problem: str, cure: str = "") -> None:
        super().__init__(f"{problem} {cure}".rstrip())
        self.problem = problem
        self.cure = cure


class RefusedInputError(WireError):
    """An input that was given is wrong, so a run would refuse it as well."""


class UnknownInputError(WireError):
    """
    Stored data has an input that the task does not declare.

    Args:
        problem: What is wrong, as a sentence.
        cure: What to do about it.
        name: The name of the input.
    """

    def __init__(self, problem: str, cure: str = "", name: str = "") -> None:
        super().__init__(problem, cure)
        self.name = name


class UnknownTaskError(WireError, LookupError):
    """
    Stored data names a task that this process does not have.

    Args:
        problem: What is wrong, as a sentence.
        cure: What to do about it.
        is_gone: Whether the code of this process has no such task; else it may have,
            but its module is not imported.
    """

    def __init__(self, problem: str, cure: str = "", *, is_gone: bool = False) -> None:
        super().__init__(problem, cure)
        self.is_gone = is_gone
