"""
The keys of conversations: jobs with one key run one after the other.

An event that overtakes others of its conversation gets another key, which those have
in common that overtake.
"""

from __future__ import annotations

IN_ORDER, OVERTAKING = "courier/", "courier-overtaking/"
"""What the two kinds of keys begin with."""


def conversation_key(courier: str, conversation: str) -> str:
    """Return the key of a conversation."""
    return f"{IN_ORDER}{courier}/{conversation}"


def overtaking_key(key: str) -> str:
    """Return the key of events that overtake those with a key."""
    return OVERTAKING + key.removeprefix(IN_ORDER)


def key_in_order(key: str) -> str:
    """Return the key of a conversation, for that of events that overtake."""
    return IN_ORDER + key.removeprefix(OVERTAKING).removeprefix(IN_ORDER)
