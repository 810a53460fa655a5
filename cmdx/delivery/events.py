"""
From an event to the row of a job.

What is wrong with an event is said before anything is stored.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypedDict

import attrs

from cmdx.declare.checks import check_names
from cmdx.delivery.errors import DeliveryError
from cmdx.delivery.keys import conversation_key
from cmdx.delivery.records import FORGET_ATTEMPTS
from cmdx.delivery.sending import Deliver
from cmdx.exceptions import DefinitionError
from cmdx.queue import actions
from cmdx.queue.enqueue import new_row
from cmdx.queue.outbox import write_in_outbox
from cmdx.queue.table import JobState, storable_text

if TYPE_CHECKING:
    from datetime import datetime

    from cmdx.delivery.courier import Courier
    from cmdx.queue import Job, Queue
    from cmdx.queue.actions import Action
    from cmdx.queue.enqueue import Row
    from cmdx.queue.filters import JobFilters
    from cmdx.queue.outbox import Outbox
    from cmdx.queue.table import JobRecord
    from cmdx.stores import Statements

LARGEST_BODY = 256 * 1024
"""Bytes."""

LONGEST_CONVERSATION = 180
"""Characters; the key has the name of the courier, too."""

WEBHOOK_ID = re.compile(r"[A-Za-z0-9_:-]{1,255}")
"""What can be in a header, and has no dot, which separates it from the timestamp."""

TASK = "cmdx.delivery"
"""The name of the task that all deliveries are jobs of."""


def event_row(
    courier: Courier,
    event_type: str,
    payload: Any,
    conversation: str | None,
    id_: str | None,
) -> tuple[Row, Deliver]:
    """Return the row of an event, and its task; refuse one that could not be sent."""
    check_type(courier, event_type)
    task = Deliver(
        courier=courier.name,
        event_type=event_type,
        body=body_of(payload),
        conversation=check_conversation(conversation),
    )
    options = {"key": key_of(courier._newest, conversation), "id": check_id(id_)}
    now, rank = courier.queue.store.now(), courier.rank_of(event_type)
    return new_row(courier.queue, task, options, now, lane=rank), task


def check_type(courier: Courier, event_type: object) -> None:
    """Refuse a type that the courier, or the one in its place, has no endpoint for."""
    name, known = courier.name, ", ".join(courier.endpoints)
    if not isinstance(event_type, str) or event_type not in courier.endpoints:
        message = (
            f"the courier {name!r} has no endpoint for {event_type!r}; it has {known}. "
            "Add one, or use one of these types."
        )
        raise DeliveryError(message)
    if event_type not in courier._newest.endpoints:
        message = (
            f"another courier {name!r} was made later in this process and took the "
            f"place of this one. It has no endpoint for {event_type!r}. Give it one, "
            "or give one of the two another name."
        )
        raise DeliveryError(message)


def key_of(courier: Courier, conversation: str | None) -> str | None:
    """Return the key of a conversation; without a retention there is no order."""
    if conversation is None or courier.retention is None:
        return None
    return conversation_key(courier.name, conversation)


def check_id(id_: object) -> str | None:
    """Return the id of a webhook; refuse one that cannot be in a header."""
    if id_ is None:
        return None
    if not isinstance(id_, str) or not WEBHOOK_ID.fullmatch(id_):
        message = f"send: id must be 1 to 255 letters, digits and -_:, got {id_!r}."
        raise DeliveryError(message)
    return id_


def check_conversation(conversation: Any) -> str | None:
    """Return a conversation; refuse one that cannot be part of a key."""
    if conversation is None:
        return None
    longest = LONGEST_CONVERSATION
    is_text = isinstance(conversation, str) and 1 <= len(conversation) <= longest
    if not is_text or storable_text(conversation) != conversation:
        message = (
            f"send: conversation must be a text of 1 to {longest} characters that can "
            f"be stored, got {conversation!r}."
        )
        raise DeliveryError(message)
    text: str = conversation
    return text


def body_of(payload: Any) -> str:
    """Return a payload as JSON; refuse one that is none, or is too large."""
    try:
        body = json.dumps(
            payload, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
        size = len(body.encode())
    except (TypeError, ValueError, RecursionError) as error:
        message = (
            f"send: the payload cannot be written as JSON: {error}. Give what JSON "
            "knows: texts, numbers, lists and dictionaries with texts as keys."
        )
        raise DeliveryError(message) from None
    if size > LARGEST_BODY:
        message = (
            f"send: the payload takes {size} bytes as JSON, and at most {LARGEST_BODY} "
            "are sent. Send a link to it instead."
        )
        raise DeliveryError(message)
    return body


# -- storing --------------------------------------------------------------------------


def sending(
    queue: Queue, row: Row, task: Deliver, *, has_id: bool
) -> Action[JobRecord | None, Job[int]]:
    """
    Store an event, unless there is one with its id.

    Attempts that an event of this id has left, which was removed, are not its own.
    """
    action = actions.enqueuing(queue, row, task, may_exist=has_id)
    if not has_id:
        return action

    def write(statements: Statements) -> JobRecord | None:
        found = action.unit(statements)
        if found is None:
            statements.execute(FORGET_ATTEMPTS, delivery=row["id"])
        else:
            take_equal_inputs(row, found)
        return found

    return attrs.evolve(action, unit=write)


async def send_within(outbox: Outbox, row: Row, *, has_id: bool) -> JobRecord | None:
    """Do what ``sending`` does, by the connection of the caller."""
    found = await write_in_outbox(outbox, row, may_exist=has_id)
    if found is not None:
        take_equal_inputs(row, found)
    elif has_id:
        await outbox.execute(FORGET_ATTEMPTS, delivery=row["id"])
    return found


def take_equal_inputs(row: Row, found: JobRecord) -> None:
    """Take over the inputs of an event whose payload has the same keys and values."""
    if found.task == TASK and plain_form(found.inputs) == plain_form(row["inputs"]):
        row["inputs"] = found.inputs


def plain_form(inputs: str) -> str | None:
    """Return the inputs of an event, with the keys of its payload in order."""
    try:
        values = json.loads(inputs)
        values["body"] = json.loads(values["body"])
        return json.dumps(values, sort_keys=True)
    except (TypeError, ValueError, KeyError):  # somebody has edited it
        return None


# -- looking --------------------------------------------------------------------------


class DeliveryFilters(TypedDict, total=False):
    """What deliveries can be looked for by."""

    state: JobState | str | None
    event_type: str | None
    conversation: str | None
    since: datetime | float | None
    """Those whose ``send`` was called at this time or later."""
    until: datetime | float | None
    """Those whose ``send`` was called before this time."""


def job_filters(where: str, courier: str, filters: DeliveryFilters) -> JobFilters:
    """Return the filters of a queue for those of deliveries."""
    check_names(where, filters, DeliveryFilters.__annotations__)
    given = {name: value for name, value in filters.items() if value is not None}
    check_state(where, given.get("state"))
    inputs: dict[str, Any] = {"courier": courier}
    for name in ("event_type", "conversation"):
        if name in given:
            inputs[name] = given.pop(name)
    return {**given, "task": TASK, "inputs": inputs}  # type: ignore[typeddict-item]


def check_state(where: str, state: object) -> None:
    """Refuse what is no state of a job, such as ``"dropped"``."""
    if state is not None and state not in tuple(JobState):
        message = (
            f"{where}: state is one of {', '.join(JobState)}, got {state!r}. Events "
            "that were dropped are dead."
        )
        raise DefinitionError(message)


def check_delivery_id(id_: object) -> str:
    """Return the id of a delivery; refuse anything else, such as the delivery."""
    if isinstance(id_, str):
        return id_
    message = f"a delivery is named by its id, such as delivery.id, got {id_!r}."
    raise TypeError(message)
