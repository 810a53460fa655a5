"""What goes wrong with stored invocations and results."""

from __future__ import annotations

from cmdx.exceptions import CmdxError


class WireError(CmdxError, ValueError):
    """A task cannot be stored as JSON, or stored data cannot be read."""


class RefusedInputError(WireError):
    """An input that was given is wrong, so a run would refuse it as well."""


class UnknownTaskError(WireError, LookupError):
    """Stored data names a task that this process does not have."""
