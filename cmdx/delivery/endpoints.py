"""
Endpoints, and the configuration that they can be read from.

What is wrong with one is said when the courier is made, with the name of its key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import attrs

from cmdx.declare.checks import check_names
from cmdx.delivery.guard import AddressRefused
from cmdx.exceptions import DefinitionError
from cmdx.queue.enqueue import check_text

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence
    from urllib.parse import SplitResult

    from cmdx.delivery.guard import Guard
    from cmdx.delivery.signing import Secrets

MOST_RETRIES = 5
SHORTEST_RETENTION, LONGEST_RETENTION = 2, 259_200
"""Seconds that an event is kept: up to three days."""

OWN_HEADERS = frozenset(
    {
        "connection",
        "content-length",
        "content-type",
        "host",
        "transfer-encoding",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
        "x-liveperson-signature",
    }
)
"""What a courier sets itself."""

TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of a header."""

VISIBLE = re.compile(r"[!-\[\]-~]+")
"""What a URL has: no blanks, nothing invisible, and no backslash."""

HOST_AND_PORT = re.compile(r"(\[[^\[\]]*:[^\[\]]*\]|[^\[\]:]+)(:[0-9]*)?")
"""A name or an address, and a port; only an IPv6 address is in brackets."""

INSTEAD = {"url": "use 'endpoint'"}
"""Keys that people may try in the configuration."""


def copy_of(headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Return headers that nobody can change later; what is none is refused later."""
    return dict(headers) if isinstance(headers, Mapping) else headers


def names_of(headers: object) -> str:
    """Show the names of headers; a value may be a password."""
    if headers is None:
        return "None"
    names = headers if isinstance(headers, Mapping) else ()
    return "{" + ", ".join(f"{name!r}: ..." for name in names) + "}"


@attrs.frozen
class Endpoint:
    """
    Where the events of one type are sent.

    Args:
        url: The URL, which begins with ``https://``.
        max_retries: How often a failed event is sent again if the courier has no
            retention: 0 to 5, and None means 0. With a retention, 0 has events dropped
            that fail, and None and anything else has no effect.
        headers: Further headers.
        secret: The secret of this endpoint; by default that of the courier.
    """

    url: str
    max_retries: int | None = attrs.field(default=None, kw_only=True)
    headers: Mapping[str, str] | None = attrs.field(
        default=None, kw_only=True, converter=copy_of, repr=names_of
    )
    secret: Secrets | None = attrs.field(default=None, kw_only=True, repr=False)


# -- checks ---------------------------------------------------------------------------


def check_endpoint(
    where: str, endpoint: object, guard: Guard, *, allow_http: bool
) -> Endpoint:
    """Return an endpoint; refuse one that could never be sent to."""
    if isinstance(endpoint, str):
        message = f"{where} must be an Endpoint. Write Endpoint({shown(endpoint)!r})."
        raise DefinitionError(message)
    if not isinstance(endpoint, Endpoint):
        kind = type(endpoint).__name__  # it may have a secret
        message = f"{where} must be an Endpoint, got {kind}."
        raise DefinitionError(message)
    check_url(f"{where}: url", endpoint.url, guard, allow_http=allow_http)
    check_retries(f"{where}: max_retries", endpoint.max_retries)
    check_headers(f"{where}: headers", endpoint.headers)
    return endpoint


def check_url(where: str, url: object, guard: Guard, *, allow_http: bool) -> None:
    """Refuse a URL that is none, is not encrypted, or leads into our own network."""
    scheme, host = checked_parts(where, url)
    if scheme == "http" and not allow_http:
        message = (
            f"{where} must begin with https://. For tests in your own network, give "
            "the courier allow_http=True."
        )
        raise DefinitionError(message)
    try:
        guard.check_host(host)
    except AddressRefused as error:
        message = f"{where} is refused: {error}. {error.cure}"
        raise DefinitionError(message) from None


def checked_parts(where: str, url: object) -> tuple[str, str]:
    """Return the scheme and the host of a URL; refuse what is none."""
    if not isinstance(url, str) or not VISIBLE.fullmatch(url):
        message = (
            f"{where} must be an absolute URL in ASCII, got {shown(url)!r}. Write "
            "other letters of the host in punycode, such as xn--bcher-kva.example, and "
            "elsewhere percent-encoded, such as %C3%BC."
        )
        raise DefinitionError(message)
    parts = parts_of(url)
    if parts is None or not HOST_AND_PORT.fullmatch(parts.netloc.rpartition("@")[2]):
        message = (
            f"{where} must begin with https:// and a host, and a port, if any, is from "
            f"1 to 65535, got {shown(url)!r}."
        )
        raise DefinitionError(message)
    if parts.username is not None:
        message = f"{where} must not have a user. Use headers= to authenticate."
        raise DefinitionError(message)
    if parts.scheme not in ("http", "https"):
        message = f"{where} must begin with https://, got {url!r}."
        raise DefinitionError(message)
    return parts.scheme, parts.hostname or ""


def parts_of(url: str) -> SplitResult | None:
    """Return the parts of a URL; None if it is none, or has no such port."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    return None if port == 0 else parts


def shown(url: object) -> object:
    """Return a URL as it can be shown: without a user, who may have a password."""
    return re.sub(r"//.*@", "//...@", url) if isinstance(url, str) else url


def check_retries(where: str, value: object) -> None:
    """Refuse a number of retries that is out of range."""
    is_whole = type(value) is int and 0 <= value <= MOST_RETRIES
    if value is not None and not is_whole:
        message = (
            f"{where} must be a whole number from 0 to {MOST_RETRIES}, got {value!r}."
        )
        raise DefinitionError(message)


def check_headers(where: str, headers: object) -> None:
    """Refuse headers that cannot be sent, or that the courier sets itself."""
    if headers is None:
        return
    if not isinstance(headers, Mapping):
        kind = type(headers).__name__  # it may have a password
        message = f"{where} must be a mapping of names to values, got {kind}."
        raise DefinitionError(message)
    check_pairs(where, headers.items())


def check_pairs(where: str, pairs: Iterable[tuple[Any, Any]]) -> None:
    """Refuse names and values of headers that cannot be sent."""
    seen: set[str] = set()
    for name, value in pairs:
        fault = fault_of(name, value, seen)
        if fault is not None:
            message = f"{where} has {name!r}, {fault}."
            raise DefinitionError(message)
        seen.add(name.lower())


def fault_of(name: object, value: object, seen: Container[str]) -> str | None:
    """Return what is wrong with a header, but not its value: it may be a password."""
    if not isinstance(name, str) or not TOKEN.fullmatch(name):
        return "which is no name of a header"
    if name.lower() in OWN_HEADERS:
        return "which the courier sets itself"
    if name.lower() in seen:
        return "which is there twice"
    if not isinstance(value, str):
        return "whose value must be a text"
    if not is_header_value(value):
        return "whose value cannot be sent in a header"
    return None


def is_header_value(value: str) -> bool:
    """Tell whether a text can be the value of a header."""
    return value.isascii() and value.isprintable() and value == value.strip()


def check_retention(where: str, value: object) -> float | None:
    """Return how long events are kept; None for events that are not."""
    if value is None:
        return None
    is_number = isinstance(value, int | float)  # True is 1, which is too short
    if not is_number or not SHORTEST_RETENTION <= value <= LONGEST_RETENTION:  # type: ignore[operator]
        message = (
            f"{where} must be a number of seconds from {SHORTEST_RETENTION} to "
            f"{LONGEST_RETENTION} (3 days), got {value!r}."
        )
        raise DefinitionError(message)
    return float(value)  # type: ignore[arg-type]


# -- configuration --------------------------------------------------------------------


@attrs.frozen
class Configuration:
    """What the JSON of an app install says about webhooks."""

    endpoints: Mapping[str, Endpoint]
    retention: float | None


def read_configuration(config: object) -> Configuration:
    """Read the JSON of an app install; refuse what is wrong, by its key."""
    webhooks = section_of(section_of(config, "capabilities"), "capabilities.webhooks")
    retention = None
    endpoints = {}
    for name, options in webhooks.items():
        check_text("event type", name, where="capabilities.webhooks")
        where = f"capabilities.webhooks.{name}"
        if name == "retry":
            retention = read_retention(where, options)
        else:
            endpoints[name] = read_endpoint(where, options)
    if not endpoints:
        message = (
            "capabilities.webhooks must have an object for each event type, such as "
            '{"paid": {"endpoint": "https://a.example/hook"}}.'
        )
        raise DefinitionError(message)
    return Configuration(endpoints, retention)


def section_of(parent: object, path: str) -> Mapping[str, Any]:
    """Return the section at the end of a path."""
    name = path.rpartition(".")[2]
    section = parent.get(name) if isinstance(parent, Mapping) else None
    if not isinstance(section, Mapping):
        message = f"the configuration must have an object at {path}."
        raise DefinitionError(message)
    return section


def read_retention(where: str, options: object) -> float | None:
    """Return how long failed events are kept."""
    given = checked_options(where, options, ("retention_time",))
    if "retention_time" not in given:
        return None
    if given["retention_time"] is None:
        message = f"{where}.retention_time must not be null. Leave it out instead."
        raise DefinitionError(message)
    return check_retention(f"{where}.retention_time", given["retention_time"])


def read_endpoint(where: str, options: object) -> Endpoint:
    """Return one endpoint; what it leaves out is not 0."""
    given = checked_options(where, options, ("endpoint", "max_retries", "headers"))
    url = given.get("endpoint")
    if not isinstance(url, str):
        message = f"{where} must have an endpoint, which is a URL, got {url!r}."
        raise DefinitionError(message)
    retries = given.get("max_retries")
    if "max_retries" in given and retries is None:
        message = f"{where}.max_retries must not be null. Leave it out instead."
        raise DefinitionError(message)
    check_retries(f"{where}.max_retries", retries)
    pairs = list(read_headers(f"{where}.headers", given.get("headers", {})))
    check_pairs(f"{where}.headers", pairs)
    return Endpoint(url, max_retries=retries, headers=dict(pairs) or None)


def checked_options(
    where: str, options: object, names: Sequence[str]
) -> Mapping[str, Any]:
    """Return an object of the configuration, which has no other keys than *names*."""
    if not isinstance(options, Mapping):
        message = f"{where} must be an object, got {options!r}."
        raise DefinitionError(message)
    check_names(where, options, names, INSTEAD)
    return options


def read_headers(where: str, headers: object) -> Iterator[tuple[Any, Any]]:
    """Yield further headers: from an object, or a list of objects."""
    if isinstance(headers, Mapping):
        yield from headers.items()
        return
    for item in headers if isinstance(headers, list) else [None]:
        pair = item if isinstance(item, Mapping) else {}
        name = pair.get("key", pair.get("name"))
        if name is None or "value" not in pair:
            message = (
                f'{where} must be a list of objects such as {{"key": "X-Version", '
                '"value": "1"}.'
            )
            raise DefinitionError(message)
        yield name, pair["value"]
