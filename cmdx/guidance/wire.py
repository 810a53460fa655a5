"""
Requests and responses taken apart; nothing here minds what it is given.

A response has ``errors`` when it is a failure, of which the first one decides, and
``extensions``: entries with a ``urn`` and ``data``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cmdx.guidance.codes import RATE_LIMITED
from cmdx.guidance.meaning import seconds_in

PREFIX = "urn:forrst:ext:"
RETRY = f"{PREFIX}retry"
RATE_LIMIT = f"{PREFIX}rate-limit"
DEADLINE = f"{PREFIX}deadline"

PROTOCOL = {"name": "forrst", "version": "0.1.0"}

Entry = Mapping[str, Any]


def extensions_of(message: object) -> list[Entry]:
    """Return the entries of a request or a response."""
    entries = message.get("extensions") if isinstance(message, Mapping) else None
    if not isinstance(entries, list | tuple):
        return []
    return [entry for entry in entries if isinstance(entry, Mapping)]


def part(message: object, urn: str, name: str) -> Mapping[str, Any] | None:
    """Return the ``data`` or ``options`` of the first entry of an extension."""
    for entry in extensions_of(message):
        if entry.get("urn") == urn:
            found = entry.get(name)
            return found if isinstance(found, Mapping) else {}
    return None


def has_failed(response: object) -> bool:
    """Tell whether a response has errors."""
    return isinstance(response, Mapping) and bool(response.get("errors"))


def primary_error(response: object) -> Mapping[str, Any]:
    """Return the error that decides: the first one."""
    errors = response.get("errors") if isinstance(response, Mapping) else None
    first = errors[0] if isinstance(errors, list | tuple) and errors else None
    return first if isinstance(first, Mapping) else {}


def code_of_response(response: object) -> str | None:
    """Return the code of the error that decides."""
    code = primary_error(response).get("code")
    return code if isinstance(code, str) else None


def wait_in_details(response: object) -> float | None:
    """Return the seconds in the details of the error that decides."""
    details = primary_error(response).get("details")
    asked = details.get("retry_after") if isinstance(details, Mapping) else None
    return seconds_in(asked)


def wait_for_reset(response: object) -> float | None:
    """
    Return the seconds until the rate limit is reset that has been used up.

    The limit of a response may have scopes; what is used up longest counts.
    """
    data = part(response, RATE_LIMIT, "data") or {}
    scopes = data.get("scopes")
    inner = scopes.values() if isinstance(scopes, Mapping) else ()
    limits = [each for each in (data, *inner) if isinstance(each, Mapping)]
    used_up = [limit for limit in limits if limit.get("remaining", 0) == 0]
    if code_of_response(response) == RATE_LIMITED:
        used_up = used_up or limits
    waits = (seconds_in(each.get("reset", each.get("resets_in"))) for each in used_up)
    return max((each for each in waits if each is not None), default=None)


def has_absolute_deadline(request: object) -> bool:
    """Tell whether a request says until when, and not how long it may take."""
    options = part(request, DEADLINE, "options") or {}
    return options.get("unit") == "iso8601" or "absolute" in options
