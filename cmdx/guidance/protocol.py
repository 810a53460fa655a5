"""
Reading requests and responses of the Forrst protocol.

Forrst is an RPC protocol over JSON: https://github.com/faustbrian/forrst. A failed
response has ``errors``, of which the first, the primary error, decides. ``extensions``
are entries with a ``urn`` and ``data``, or ``options`` in a request.

These functions accept any value, and return an empty value or None for one they cannot
read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cmdx.guidance.codes import RATE_LIMITED
from cmdx.guidance.guidance import seconds_from_wire

URN_PREFIX = "urn:forrst:ext:"
RETRY_URN = f"{URN_PREFIX}retry"
RATE_LIMIT_URN = f"{URN_PREFIX}rate-limit"
DEADLINE_URN = f"{URN_PREFIX}deadline"

PROTOCOL = {"name": "forrst", "version": "0.1.0"}


def extensions_of(message: object) -> list[Mapping[str, Any]]:
    """Return the extension entries of a request or a response."""
    entries = message.get("extensions") if isinstance(message, Mapping) else None
    if not isinstance(entries, list | tuple):
        return []
    return [entry for entry in entries if isinstance(entry, Mapping)]


def extension_part(message: object, urn: str, name: str) -> Mapping[str, Any] | None:
    """Return the ``data`` or ``options`` of an extension; None if there is no entry."""
    for entry in extensions_of(message):
        if entry.get("urn") == urn:
            found = entry.get(name)
            return found if isinstance(found, Mapping) else {}
    return None


def has_errors(response: object) -> bool:
    """Tell whether a response has errors."""
    return isinstance(response, Mapping) and bool(response.get("errors"))


def primary_error(response: object) -> Mapping[str, Any]:
    """Return the first error of a response, or an empty one."""
    errors = response.get("errors") if isinstance(response, Mapping) else None
    first = errors[0] if isinstance(errors, list | tuple) and errors else None
    return first if isinstance(first, Mapping) else {}


def code_of_response(response: object) -> str | None:
    """Return the code of the primary error."""
    code = primary_error(response).get("code")
    return code if isinstance(code, str) else None


def wait_in_details(response: object) -> float | None:
    """Return the seconds in the details of the primary error."""
    details = primary_error(response).get("details")
    wait = details.get("retry_after") if isinstance(details, Mapping) else None
    return seconds_from_wire(wait)


def wait_for_reset(response: object) -> float | None:
    """
    Return the seconds until the rate limits of a response are reset.

    Only limits with nothing remaining count, or all of them if the error is
    ``RATE_LIMITED``. Of several limits the longest wait counts.
    """
    data = extension_part(response, RATE_LIMIT_URN, "data") or {}
    scopes = data.get("scopes")
    inner = scopes.values() if isinstance(scopes, Mapping) else ()
    limits = [limit for limit in (data, *inner) if isinstance(limit, Mapping)]
    used_up = [limit for limit in limits if limit.get("remaining", 0) == 0]
    if code_of_response(response) == RATE_LIMITED:
        used_up = used_up or limits
    resets = (limit.get("reset", limit.get("resets_in")) for limit in used_up)
    waits = map(seconds_from_wire, resets)
    return max((wait for wait in waits if wait is not None), default=None)


def has_absolute_deadline(request: object) -> bool:
    """Tell whether the deadline of a request is a date, not a duration."""
    options = extension_part(request, DEADLINE_URN, "options") or {}
    return options.get("unit") == "iso8601" or "absolute" in options
