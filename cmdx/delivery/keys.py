"""
The keys of conversations: jobs with one key run one after the other.

An event that overtakes others of its conversation gets another key, which those have
in common that overtake.
"""

from __future__ import annotations

from cmdx.queue.lanes import IN_ORDER, OVERTAKING


def conversation_key(courier: str, conversation: str) -> str:
    """Return the key of a conversation."""
    return f"{IN_ORDER}{courier}/{conversation}"


def overtaking_key(key: str) -> str:
    """Return the key of events that overtake those with a key."""
    return OVERTAKING + key.removeprefix(IN_ORDER)
