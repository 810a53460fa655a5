"""What goes wrong with deliveries before they are stored."""

from __future__ import annotations

from cmdx.exceptions import CmdxError


class DeliveryError(CmdxError, ValueError):
    """An event cannot be sent as it was given."""
