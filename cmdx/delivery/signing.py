"""
Signatures of webhooks: made by the sender, checked by the receiver.

``"standard"``  Standard Webhooks: HMAC-SHA256 of the id, the timestamp and the body,
                by each of the secrets, so that they can be rotated
``"sha1"``      HMAC-SHA1 of the body, in the header ``x-liveperson-signature``
``"sha256"``    HMAC-SHA256 of the body, in the same header
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from cmdx import clock
from cmdx.exceptions import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Signing: TypeAlias = Literal["standard", "sha1", "sha256"]
Secrets: TypeAlias = str | Sequence[str]
"""One secret, or several of which the first is the newest."""

PREFIX = "whsec_"
ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
VENDOR_SIGNATURE = "x-liveperson-signature"
HASHES: dict[str, Callable[..., hashlib._Hash]] = {
    "sha1": hashlib.sha1,
    "sha256": hashlib.sha256,
}
SIGNINGS = ("standard", *HASHES)

DIGITS = re.compile(r"[0-9]{1,15}")
"""A timestamp, in seconds since 1970."""


# -- secrets --------------------------------------------------------------------------


def checked_secrets(where: str, secret: object, signing: Signing) -> tuple[bytes, ...]:
    """Return the keys of one secret or several; refuse what is none."""
    if secret is None:
        return ()
    texts = checked_texts(where, secret)
    if signing != "standard":
        return tuple(map(encoded, texts))
    try:
        return tuple(map(standard_key, texts))
    except ValueError:
        raise no_standard_secret(where) from None


def checked_texts(where: str, secret: object) -> Sequence[str]:
    """Return one secret or several, as texts."""
    given = [secret] if isinstance(secret, str) else secret
    if not isinstance(given, Sequence) or not given or not all(map(is_text, given)):
        message = (
            f"{where}: secret must be a text, or several texts of which the newest is "
            "the first."
        )
        raise DefinitionError(message)
    return given


def is_text(value: object) -> bool:
    """Tell whether *value* is a text with something in it."""
    return isinstance(value, str) and value != ""


def standard_key(secret: str) -> bytes:
    """Return the key of a secret as Standard Webhooks writes it, or ``ValueError``."""
    key = base64.b64decode(secret.removeprefix(PREFIX).encode("ascii"), validate=True)
    if not key:
        raise ValueError
    return key


def no_standard_secret(where: str) -> DefinitionError:
    """Return the error for a secret that Standard Webhooks cannot use."""
    message = (
        f'{where}: secret must be "whsec_" and base64, as Standard Webhooks says. '
        "Make one with cmdx.delivery.new_secret()."
    )
    return DefinitionError(message)


def new_secret() -> str:
    """Return a new secret for Standard Webhooks, with 24 random bytes."""
    return PREFIX + base64.b64encode(clock.secret_bytes(24)).decode()


# -- signing --------------------------------------------------------------------------


def signature_headers(
    signing: Signing,
    keys: Sequence[bytes],
    id: str,  # noqa: A002 -- as users write it
    timestamp: int,
    body: bytes,
) -> dict[str, str]:
    """Return the headers that a receiver checks."""
    if signing != "standard":
        newest = f"{signing}={base64_hmac(signing, keys[0], body)}" if keys else ""
        return {VENDOR_SIGNATURE: newest} if newest else {}
    content = signed_content(id, str(timestamp), body)
    headers = {ID: id, TIMESTAMP: str(timestamp)}
    marks = (f"v1,{base64_hmac('sha256', key, content)}" for key in keys)
    signature = " ".join(marks)
    return {**headers, SIGNATURE: signature} if signature else headers


def signed_content(id: str, timestamp: str, body: bytes) -> bytes:  # noqa: A002 -- as users write it
    """Return what Standard Webhooks signs."""
    return encoded(f"{id}.{timestamp}.") + body


def base64_hmac(name: str, key: bytes, content: bytes) -> str:
    """Return the HMAC of a content, as base64."""
    digest = hmac.new(key, content, HASHES[name]).digest()
    return base64.b64encode(digest).decode()


# -- verifying ------------------------------------------------------------------------


def verify(
    headers: Mapping[str, str] | Mapping[bytes, bytes],
    body: bytes | str,
    secret: Secrets,
    tolerance: float = 300.0,
) -> bool:
    """
    Tell whether a webhook was signed with a secret, and a short time ago.

    It knows all three ways of signing by the headers. What is malformed is refused, and
    nothing is raised because of what a sender has sent. ``DefinitionError`` is raised
    for a secret that is none, and ``TypeError`` for arguments of another kind.

    Args:
        headers: The headers of the request.
        body: The body as it was received.
        secret: The secret, or several of which one will do.
        tolerance: How many seconds the timestamp may be off; only Standard Webhooks has
            one.
    """
    content = encoded(body) if isinstance(body, str) else bytes_of(body)
    require_kinds(headers, tolerance)
    given = {text_of(name).lower(): text_of(value) for name, value in headers.items()}
    secrets = checked_texts("verify", secret)
    if SIGNATURE in given:
        keys = list(usable_keys(secrets))
        return verify_standard(given, content, keys, tolerance)
    name, _, found = given.get(VENDOR_SIGNATURE, "").partition("=")
    return name in HASHES and verify_vendor(name, found, content, secrets)


def require_kinds(headers: object, tolerance: object) -> None:
    """Refuse what a receiver cannot mean; what a sender has sent raises nothing."""
    if not hasattr(headers, "items"):
        message = (
            "verify: headers must be a mapping of names to values, such as "
            f"request.headers, got {type(headers).__name__}."
        )
        raise TypeError(message)
    if not isinstance(tolerance, int | float):
        message = f"verify: tolerance must be a number of seconds, got {tolerance!r}."
        raise TypeError(message)


def usable_keys(secrets: Iterable[str]) -> Iterator[bytes]:
    """
    Yield the keys of those secrets that Standard Webhooks can use.

    Others may be for the other two ways of signing. It is the sender who chooses the
    way, so they raise nothing, except those that say what they are.
    """
    for secret in secrets:
        try:
            yield standard_key(secret)
        except ValueError:
            if secret.startswith(PREFIX):
                raise no_standard_secret("verify") from None


def bytes_of(body: object) -> bytes:
    """Return a body as bytes; refuse one that the receiver has already read as JSON."""
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    message = (
        f"verify: the body must be bytes or a text, got {type(body).__name__}. Give it "
        "as it was received: what is signed is the text, not what JSON makes of it."
    )
    raise TypeError(message)


def text_of(value: object) -> str:
    """Return a name or value of a header, which some frameworks have as bytes."""
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def encoded(text: str) -> bytes:
    """Return the bytes of any text, also of one that is not quite Unicode."""
    return text.encode("utf-8", "surrogatepass")


def verify_standard(
    headers: Mapping[str, str], body: bytes, keys: Sequence[bytes], tolerance: float
) -> bool:
    """Tell whether one signature of Standard Webhooks is right, and fresh."""
    id_, timestamp = headers.get(ID, ""), headers.get(TIMESTAMP, "")
    if not id_ or not DIGITS.fullmatch(timestamp):
        return False
    if not abs(clock.current.get().time() - int(timestamp)) <= tolerance:
        return False  # also if the tolerance is NaN
    content = signed_content(id_, timestamp, body)
    expected = [base64_hmac("sha256", key, content) for key in keys]
    given = headers[SIGNATURE].split(" ")
    found = [mark.removeprefix("v1,") for mark in given if mark.startswith("v1,")]
    return has_match(expected, found)


def verify_vendor(name: str, found: str, body: bytes, secrets: Iterable[str]) -> bool:
    """Tell whether a signature of the body alone is right."""
    expected = [base64_hmac(name, encoded(secret), body) for secret in secrets]
    return has_match(expected, [found])


def has_match(expected: Sequence[str], found: Sequence[str]) -> bool:
    """Tell whether two lists share a signature; the time does not depend on it."""
    matches = [
        hmac.compare_digest(encoded(right), encoded(mark))
        for right in expected
        for mark in found
    ]
    return any(matches)
