"""
The layout of stored data, and the check that data has it.

It is JSON, so its types are exact. What was edited is refused with its path.

1. what ``dump_invocation`` and ``dump_result`` return    ``StoredInvocation``, ...
2. whether data looks like that                          ``check_layout``
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from functools import cache, partial
from itertools import repeat
from typing import Any, TypeAlias, TypedDict, get_args, get_origin, get_type_hints

from cmdx import Status, Stop  # noqa: TC001 -- looked up when the hints are read
from cmdx.inputs.annotations import union_members
from cmdx.inputs.errors import Invalid
from cmdx.wire.errors import WireError

Check: TypeAlias = Callable[[Any], None]
"""Raises ``Invalid`` if a value does not fit."""


class StoredInvocation(TypedDict):
    """What ``dump_invocation`` returns."""

    task: str
    module: str
    inputs: dict[str, Any]


class StoredError(TypedDict):
    """An exception."""

    type_name: str
    message: str
    traceback: str


class StoredCodedError(StoredError, total=False):
    """The exception behind a failure, with its own code and that of its class."""

    code: str | int
    class_code: str


class StoredAttempt(TypedDict):
    """One call of ``work``."""

    start: float
    duration: float
    error: StoredError | None
    pause: float | None
    rule: str | None


class StoredStatus(TypedDict):
    """What every outcome has."""

    status: Status


class StoredOutcome(StoredStatus, total=False):
    """An outcome, or the one that was replaced by another."""

    reason: str
    metadata: dict[str, Any]
    cause: StoredCodedError


class StoredPlace(TypedDict):
    """Where a task was halted."""

    file: str
    line: int


class StoredGuidance(TypedDict):
    """What a failure says about trying again; no time at all stands for ever."""

    allowed: bool
    strategy: str | None
    after: float | None
    is_endless: bool
    max_attempts: int | None
    unit: str


class StoredRun(TypedDict):
    """What every result has, and every origin of one."""

    task: str
    module: str
    type: str
    tid: str
    cid: str
    outcome: StoredOutcome
    started_at: float
    duration: float


class StoredOrigin(StoredRun, total=False):
    """A failure that another task passed on; its cause may be the fault of the next."""

    xid: str
    errors: list[tuple[str, str, str | None]]
    halted_at: StoredPlace
    guidance: StoredGuidance
    replaced: StoredOutcome
    by_fault: bool


class StoredContext(StoredOrigin):
    """What every result has, but no origin."""

    context: dict[str, Any]


class StoredResult(StoredContext, total=False):
    """What ``dump_result`` returns; facts that a result does not have are left out."""

    value: Any
    lost_value: str
    attempts: list[StoredAttempt]
    retries: int
    stopped: Stop
    strict: bool
    deprecated: bool
    rolled_back: bool
    rollback_error: StoredError
    origins: list[StoredOrigin]
    fault_cause: StoredCodedError


def check_layout(data: Any, kind: Any, writer: str) -> Any:
    """Return *data* if it is a *kind*; refuse what *writer* cannot have made."""
    try:
        layout_check(kind)(data)
    except Invalid as invalid:
        problem = f"{invalid.path} {invalid.message}".strip()
    else:
        return data
    message = (
        f"this is not what {writer} returns: {problem}. "
        "Store it as JSON, and give it back unchanged."
    )
    raise WireError(message)


@cache
def layout_check(kind: Any) -> Check:
    """Return what refuses anything but a *kind*, a TypedDict; more keys may follow."""
    hints = get_type_hints(kind).items()
    fields = {key: plain_types_and_check(hint) for key, hint in hints}

    def check_fields(value: Any) -> None:
        if type(value) is not dict:
            raise Invalid("dict")
        if not kind.__required_keys__ <= value.keys():
            key = min(kind.__required_keys__ - value.keys())
            raise Invalid("required").below(key)
        for key, item in value.items():
            types, check = fields.get(key, ANY_VALUE)
            if types is None or type(item) in types:
                continue
            try:
                check(item)
            except Invalid as invalid:
                raise invalid.below(key) from None

    return check_fields


def plain_types_and_check(hint: Any) -> tuple[frozenset[type] | None, Check]:
    """Return the types whose values fit as they are, None for all; and what checks."""
    if hint is Any:
        return ANY_VALUE
    members = union_members(hint)
    plain = {found for member in members for found in PLAIN_TYPES.get(member, ())}
    checks = [part_check(member) for member in members if member not in PLAIN_TYPES]
    return frozenset(plain), checks[0] if checks else refuse


PLAIN_TYPES: dict[Any, tuple[type, ...]] = {
    str: (str,),
    bool: (bool,),
    int: (int,),
    float: (float, int),
    dict[str, Any]: (dict,),
    type(None): (type(None),),
}
"""The types of JSON values that need no further look, for each annotation."""


def part_check(hint: Any) -> Check:
    """Return what checks a list, a tuple, the member of an enum, or a TypedDict."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (list, tuple):
        parts = [plain_types_and_check(argument) for argument in arguments]
        return partial(check_items, repeat(parts[0]) if origin is list else parts)
    if issubclass(hint, Enum):
        return partial(check_member, hint)
    return layout_check(hint)


def check_items(parts: Iterable[tuple[Any, Check]], value: Any) -> None:
    """Check the items of a list, each by its part."""
    if type(value) is not list:
        raise Invalid("list")
    if isinstance(parts, list) and len(value) != len(parts):
        raise Invalid("length", length=len(parts))
    for number, (item, (types, check)) in enumerate(zip(value, parts, strict=False)):
        if type(item) not in types:
            try:
                check(item)
            except Invalid as invalid:
                raise invalid.below(f"[{number}]") from None


def check_member(kind: type[Enum], value: Any) -> None:
    """Check the value of a member of an enum."""
    if value not in kind._value2member_map_:
        raise Invalid("choice", f"is none of the values of {kind.__name__}")


def refuse(value: Any) -> None:
    """Refuse a value of another type."""
    raise Invalid("type", f"cannot be {type(value).__qualname__}")


ANY_VALUE: tuple[None, Check] = (None, refuse)
"""How a value is checked that may be anything."""
