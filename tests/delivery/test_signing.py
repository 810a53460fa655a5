"""Signatures: what a sender writes, and what a receiver takes for real."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
import time
from datetime import UTC, datetime

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from cmdx import DefinitionError, clock
from cmdx.delivery import Courier, Endpoint, new_secret, verify
from cmdx.delivery.signing import checked_secrets, signature_headers
from cmdx.queue import Queue
from cmdx.testing import Receiver, instant

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105
OTHER = "whsec_" + base64.b64encode(b"another key of 24 bytes.").decode()
BODY = b'{"order":7}'
NOW = 1_700_000_000

VENDOR_SECRET = "rl9hacst6kqilbofup64n11ga3"  # noqa: S105
VENDOR_ID = "2969e404f3be1c8cdda63f0b72d205ab5afb3fe3e3d7d72ab58245f564fdfd91"
CONVERSATION = "b8b83fe9-75f0-46f2-baaa-2930f7192cfb"
VENDOR_EVENT = {
    "kind": "notification",
    "body": {
        "changes": [
            {
                "originatorId": VENDOR_ID,
                "originatorMetadata": {"id": VENDOR_ID, "role": "CONSUMER"},
                "event": {"type": "ChatStateEvent", "chatState": "PAUSE"},
                "conversationId": CONVERSATION,
                "dialogId": CONVERSATION,
            }
        ]
    },
    "type": "ms.MessagingEventNotification",
}
VENDOR_BODY = json.dumps(VENDOR_EVENT, separators=(",", ":")).encode()
VENDOR_HEADER = "x-liveperson-signature"
VENDOR_SIGNATURE = "sha1=e/TfS0wv1HbvEsMqcBMmFLcMslI="
"""What the vendor sends with this body."""


class FrozenClock(clock.Clock):
    def time(self):
        return NOW


@pytest.fixture
def moment():
    """A clock that stands still at ``NOW``, until it is advanced."""
    with clock.use(FrozenClock()), instant() as replacement:
        yield replacement


def signed(body, *secrets, signing="standard", id_="msg_1", timestamp=NOW):
    """Return the headers that a sender writes."""
    keys = checked_secrets("test", secrets, signing)
    return signature_headers(signing, keys, id_, timestamp, body)


def changed(**headers):
    """Return right headers with some others; None leaves one out."""
    given = signed(BODY, SECRET)
    for name, value in headers.items():
        given[f"webhook-{name}"] = value
    return {name: value for name, value in given.items() if value is not None}


def signed_with(id_="msg_1", timestamp=NOW):
    """Return headers whose signature is right, whatever their form is."""
    return signed(BODY, SECRET, id_=id_, timestamp=timestamp)


def in_other_digits(zero):
    """Return the timestamp in the digits of another script."""
    return str(NOW).translate({ord("0") + n: ord(zero) + n for n in range(10)})


# -- Standard Webhooks -----------------------------------------------------------------

# HMAC takes keys for the same that differ in zeros at the end only.
keys = st.binary(max_size=63).map(lambda key: key + b"!")
texts_of_keys = keys.map(lambda key: "whsec_" + base64.b64encode(key).decode())
several_secrets = st.lists(texts_of_keys, min_size=1, max_size=4, unique=True)
bodies = st.text().map(str.encode)
ids = st.text(min_size=1)
timestamps = st.integers(0, 2**33)

in_any_case = settings(max_examples=200, deadline=None)


def sign_by_the_package(secret, id_, timestamp, body):
    moment = datetime.fromtimestamp(timestamp, UTC)
    return Webhook(secret).sign(id_, moment, body.decode())


def is_verified_by_the_package(headers, body, secret):
    try:
        Webhook(secret).verify(body, headers, json_parse=False)
    except WebhookVerificationError:
        return False
    return True


@given(secrets=several_secrets, id_=ids, timestamp=timestamps, body=bodies)
@in_any_case
def test_signatures_are_those_of_the_package_standardwebhooks(
    secrets, id_, timestamp, body
):
    headers = signed(body, *secrets, id_=id_, timestamp=timestamp)

    assert headers == {
        "webhook-id": id_,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(
            sign_by_the_package(secret, id_, timestamp, body) for secret in secrets
        ),
    }


@given(secrets=several_secrets, off=st.integers(-200, 200), id_=ids, body=bodies)
@in_any_case
def test_the_package_verifies_what_is_signed_here_with_each_of_the_secrets(
    secrets, off, id_, body
):
    headers = signed(body, *secrets, id_=id_, timestamp=int(time.time()) + off)

    assert all(is_verified_by_the_package(headers, body, each) for each in secrets)


@given(secrets=several_secrets, index=st.integers(0), id_=ids, body=bodies)
@in_any_case
def test_what_the_package_signs_is_verified_here_with_any_of_the_secrets(
    secrets, index, id_, body
):
    one = secrets[index % len(secrets)]
    now = int(time.time())
    headers = {
        "webhook-id": id_,
        "webhook-timestamp": str(now),
        "webhook-signature": sign_by_the_package(one, id_, now, body),
    }

    assert verify(headers, body, secrets)
    assert verify(headers, body, one)


@given(known=several_secrets, used=several_secrets, body=bodies)
@in_any_case
@example(known=[SECRET], used=[OTHER, SECRET], body=BODY)
@example(known=[SECRET], used=[OTHER], body=BODY)
def test_a_webhook_is_real_if_one_secret_is_known_and_was_used(known, used, body):
    headers = signed(body, *used, timestamp=int(time.time()))

    assert verify(headers, body, known) == (not set(known).isdisjoint(used))


@given(position=st.integers(0), flip=st.integers(1, 255))
@in_any_case
@pytest.mark.parametrize("part", ["body", "id", "timestamp", "signature"])
def test_a_webhook_that_was_changed_on_its_way_is_refused(part, position, flip):
    now = int(time.time())
    headers = {
        name: value.encode()
        for name, value in signed(BODY, SECRET, timestamp=now).items()
    }
    given = {**headers, "body": BODY}
    name = part if part == "body" else f"webhook-{part}"
    content = bytearray(given[name])
    content[position % len(content)] ^= flip
    given[name] = bytes(content)

    body = given.pop("body")

    assert not verify(given, body, SECRET)


def test_secrets_with_and_without_the_prefix_are_the_same(moment):
    del moment
    plain = SECRET.removeprefix("whsec_")

    assert signed(BODY, plain) == signed(BODY, SECRET)
    assert verify(signed(BODY, SECRET), BODY, plain)


def test_the_first_secret_signs_first():
    marks = signed(BODY, SECRET, OTHER)["webhook-signature"].split(" ")

    assert marks[0] == signed(BODY, SECRET)["webhook-signature"]
    assert marks[1] == signed(BODY, OTHER)["webhook-signature"]


def test_without_a_secret_there_is_an_id_but_no_signature():
    headers = signature_headers("standard", (), "msg_1", NOW, BODY)

    assert headers == {"webhook-id": "msg_1", "webhook-timestamp": str(NOW)}
    assert not verify(headers, BODY, SECRET)


def test_a_new_secret_is_one_for_the_package():
    secret = new_secret()
    now = int(time.time())
    headers = signed(BODY, secret, timestamp=now)

    assert is_verified_by_the_package(headers, BODY, secret)
    assert not is_verified_by_the_package(headers, BODY, new_secret())
    assert len(base64.b64decode(secret.removeprefix("whsec_"))) == 24


# -- the vendor's form -----------------------------------------------------------------


def test_the_vendors_own_signature_is_made():
    headers = signed(VENDOR_BODY, VENDOR_SECRET, signing="sha1")

    assert headers == {VENDOR_HEADER: VENDOR_SIGNATURE}


def test_the_vendors_own_signature_is_verified():
    headers = {"X-LivePerson-Signature": VENDOR_SIGNATURE}

    assert verify(headers, VENDOR_BODY, VENDOR_SECRET)
    assert not verify(headers, VENDOR_BODY + b" ", VENDOR_SECRET)
    assert not verify(headers, VENDOR_BODY, VENDOR_SECRET + "x")


def test_the_vendors_form_has_sha256_too():
    digest = hmac.new(VENDOR_SECRET.encode(), VENDOR_BODY, hashlib.sha256).digest()
    signature = "sha256=" + base64.b64encode(digest).decode()

    assert signed(VENDOR_BODY, VENDOR_SECRET, signing="sha256") == {
        VENDOR_HEADER: signature
    }
    assert verify({VENDOR_HEADER: signature}, VENDOR_BODY, VENDOR_SECRET)


@given(secret=st.text(min_size=1), body=st.binary())
@in_any_case
@pytest.mark.parametrize("signing", ["sha1", "sha256"])
def test_any_text_is_a_secret_of_the_vendors_form(signing, secret, body):
    headers = signed(body, secret, signing=signing)

    assert verify(headers, body, secret)
    assert verify(headers, body, ["old", secret])
    assert not verify(headers, body, secret + "x")


def test_the_vendors_form_is_signed_by_the_newest_secret():
    headers = signed(VENDOR_BODY, VENDOR_SECRET, "old", signing="sha1")

    assert headers == {VENDOR_HEADER: VENDOR_SIGNATURE}
    assert signature_headers("sha1", (), "msg_1", NOW, BODY) == {}


@pytest.mark.parametrize(
    "signature",
    [
        "", "=", "sha1", "sha1=", "sha256=" + VENDOR_SIGNATURE.partition("=")[2],
        VENDOR_SIGNATURE.removeprefix("sha1="), VENDOR_SIGNATURE.upper(),
        VENDOR_SIGNATURE.rstrip("="), VENDOR_SIGNATURE + " ", "md5=e/TfS0wv1Hbv",
        "sha1=" + hmac.new(VENDOR_SECRET.encode(), VENDOR_BODY, "sha1").hexdigest(),
        f"{VENDOR_SIGNATURE},{VENDOR_SIGNATURE}", "sha512=", "\ud800", "sha1=\ud800",
    ],
)  # fmt: skip
def test_a_malformed_signature_of_the_vendors_form_is_refused(signature):
    assert not verify({VENDOR_HEADER: signature}, VENDOR_BODY, VENDOR_SECRET)


# -- the time --------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0, 1, 299.5, 300])
def test_a_webhook_is_fresh_until_the_tolerance_is_over(moment, seconds):
    moment.advance(seconds)

    assert verify(signed(BODY, SECRET), BODY, SECRET)


@pytest.mark.parametrize("seconds", [300.001, 301, 86_400])
def test_a_webhook_is_refused_after_the_tolerance(moment, seconds):
    moment.advance(seconds)

    assert not verify(signed(BODY, SECRET), BODY, SECRET)


def test_a_webhook_of_the_future_has_the_same_tolerance(moment):
    del moment
    fresh, early = (signed(BODY, SECRET, timestamp=NOW + off) for off in (300, 301))

    assert verify(fresh, BODY, SECRET)
    assert not verify(early, BODY, SECRET)


@pytest.mark.parametrize(
    ("tolerance", "is_fresh"),
    [(9.5, False), (10, True), (0, False), (-1, False), (math.inf, True),
     (math.nan, False)],
)  # fmt: skip
def test_the_tolerance_can_be_chosen(moment, tolerance, is_fresh):
    moment.advance(10)

    assert verify(signed(BODY, SECRET), BODY, SECRET, tolerance) is is_fresh


@pytest.mark.parametrize("headers", [None, [("webhook-id", "1")], "webhook-id", 7])
def test_headers_that_are_no_mapping_are_the_receivers_mistake(headers):
    with pytest.raises(TypeError, match=r"verify: headers must be a mapping .* got"):
        verify(headers, BODY, SECRET)


@pytest.mark.parametrize("tolerance", ["300", None, [300]])
@pytest.mark.parametrize("headers", [{}, {"webhook-signature": "v1,x"}])
def test_a_tolerance_that_is_no_number_is_the_receivers_mistake(headers, tolerance):
    with pytest.raises(TypeError, match="verify: tolerance must be a number of sec"):
        verify(headers, BODY, SECRET, tolerance)


def test_the_vendors_form_has_no_time(moment):
    moment.advance(10**9)

    assert verify({VENDOR_HEADER: VENDOR_SIGNATURE}, VENDOR_BODY, VENDOR_SECRET)


# -- headers ---------------------------------------------------------------------------


@pytest.mark.parametrize("change", [str.upper, str.title, str.lower, str.encode])
def test_names_of_headers_are_in_any_case_and_may_be_bytes(moment, change):
    del moment
    standard = {change(name): value for name, value in signed(BODY, SECRET).items()}
    vendor = {change(VENDOR_HEADER): VENDOR_SIGNATURE}

    assert verify(standard, BODY, SECRET)
    assert verify(vendor, VENDOR_BODY, VENDOR_SECRET)


def test_values_of_headers_may_be_bytes_and_the_body_a_text(moment):
    del moment
    headers = {name: value.encode() for name, value in signed(BODY, SECRET).items()}

    assert verify(headers, BODY.decode(), SECRET)
    assert verify(headers, bytearray(BODY), SECRET)


def test_signatures_of_other_versions_are_passed_over(moment):
    del moment
    right = signed(BODY, SECRET)["webhook-signature"]

    assert verify(changed(signature=f"v1a,abc v2,abc {right} v1,"), BODY, SECRET)


SIGNATURE = signed(BODY, SECRET)["webhook-signature"]
DIGEST = SIGNATURE.removeprefix("v1,")

MALFORMED = {
    "no id": changed(id=None),
    "empty id": signed_with(id_=""),
    "no timestamp": changed(timestamp=None),
    "empty timestamp": signed_with(timestamp=""),
    "no signature": changed(signature=None),
    "empty signature": changed(signature=""),
    "nothing": {},
    "blank signature": changed(signature=" "),
    "no version": changed(signature=DIGEST),
    "v2 only": changed(signature=f"v2,{DIGEST}"),
    "v1a only": changed(signature=f"v1a,{DIGEST}"),
    "version in upper case": changed(signature=f"V1,{DIGEST}"),
    "v1 and nothing": changed(signature="v1,"),
    "v1 without comma": changed(signature="v1"),
    "two commas": changed(signature=f"v1,,{DIGEST}"),
    "not base64": changed(signature="v1,%%%"),
    "no padding": changed(signature=SIGNATURE.rstrip("=")),
    "tab between": changed(signature=f"v2,a\t{SIGNATURE}"),
    "lone surrogate": changed(signature="v1,\ud800"),
    "surrogate in the id": changed(id="msg_1\udfff"),
    "NUL in the id": changed(id="msg_1\x00"),
    "negative": signed_with(timestamp=f"-{NOW}"),
    "plus": signed_with(timestamp=f"+{NOW}"),
    "float": signed_with(timestamp=f"{NOW}.0"),
    "exponent": signed_with(timestamp="17e8"),
    "underscores": signed_with(timestamp="1_700_000_000"),
    "hex": signed_with(timestamp=hex(NOW)),
    "blanks": signed_with(timestamp=f" {NOW} "),
    "line end": signed_with(timestamp=f"{NOW}\n"),
    "leading zero": changed(timestamp=f"0{NOW}"),
    "full-width digits": signed_with(timestamp=in_other_digits("\uff10")),
    "Arabic digits": signed_with(timestamp=in_other_digits("\u0660")),
    "superscript": signed_with(timestamp="170000000\u00b2"),
    "huge": signed_with(timestamp="9" * 15),
    "5000 digits": signed_with(timestamp="9" * 5000),
    "NaN": signed_with(timestamp="nan"),
    "infinity": signed_with(timestamp="inf"),
    "None as a value": {**signed(BODY, SECRET), "webhook-id": None},
    "a number as a value": {**signed(BODY, SECRET), "webhook-signature": 7},
    "a list as a value": {**signed(BODY, SECRET), "webhook-signature": [SIGNATURE]},
    "bytes that are no text": {**signed(BODY, SECRET), "webhook-id": b"\xff\xfe"},
    "a number as a name": {**changed(signature=None), 7: SIGNATURE},
}


@pytest.mark.parametrize("headers", MALFORMED.values(), ids=MALFORMED)
def test_malformed_headers_are_refused(moment, headers):
    del moment

    assert verify(headers, BODY, SECRET) is False


any_text = st.text(st.characters(codec=None, categories=None))  # surrogates too
any_value = any_text | st.binary() | st.none() | st.integers() | st.lists(any_text)
some_names = st.sampled_from([*signed(BODY, SECRET), VENDOR_HEADER])
some_values = st.sampled_from([*signed(BODY, SECRET).values(), VENDOR_SIGNATURE])
some_signatures = any_text.map("v1,{}".format) | any_text.map("sha1={}".format)


@given(
    headers=st.dictionaries(
        some_names | any_text | st.binary(), any_value | some_values | some_signatures
    ),
    body=st.binary() | any_text,
    secret=st.sampled_from(
        [SECRET, VENDOR_SECRET, "ü \ud800", [VENDOR_SECRET, SECRET]]
    ),
)
@settings(max_examples=500, deadline=None)
def test_whatever_a_sender_sends_is_refused_and_raises_nothing(headers, body, secret):
    with clock.use(FrozenClock()):
        assert verify(headers, body, secret) is False


@given(body=any_text)
@in_any_case
def test_a_body_that_is_not_quite_unicode_can_be_verified(body):
    content = body.encode("utf-8", "surrogatepass")
    headers = signed(content, SECRET, timestamp=int(time.time()))

    assert verify(headers, body, SECRET)


# -- comparing -------------------------------------------------------------------------


@pytest.fixture
def compared(monkeypatch):
    """The pairs that are compared in a time that does not depend on them."""
    pairs = []
    real = hmac.compare_digest

    def compare_digest(left, right):
        pairs.append((left, right))
        return real(left, right)

    monkeypatch.setattr(hmac, "compare_digest", compare_digest)
    return pairs


def test_every_signature_is_compared_with_every_secret_also_after_a_match(
    moment, compared
):
    del moment
    first, second, third = new_secret(), new_secret(), new_secret()
    headers = signed(BODY, first, second, third)

    assert verify(headers, BODY, [first, OTHER])

    marks = [mark[3:].encode() for mark in headers["webhook-signature"].split(" ")]
    others = signed(BODY, OTHER)["webhook-signature"][3:].encode()
    assert compared == [(right, mark) for right in (marks[0], others) for mark in marks]


def test_the_vendors_form_is_compared_with_every_secret(compared):
    headers = {VENDOR_HEADER: VENDOR_SIGNATURE}

    assert verify(headers, VENDOR_BODY, [VENDOR_SECRET, "a", "b"])

    assert len(compared) == 3


@pytest.mark.parametrize("answer", [True, False])
def test_nothing_but_that_comparison_decides(moment, monkeypatch, answer):
    del moment
    monkeypatch.setattr(hmac, "compare_digest", lambda _left, _right: answer)

    assert verify(signed(BODY, SECRET), BODY, SECRET) is answer
    assert verify(signed(BODY, OTHER), BODY, SECRET) is answer
    assert verify({VENDOR_HEADER: "sha1=abc"}, BODY, VENDOR_SECRET) is answer


# -- secrets that are none -------------------------------------------------------------

NO_SECRETS = [None, "", [], [""], [None], [SECRET, ""], b"whsec_abcd", 7, {SECRET}, {}]


@pytest.mark.parametrize("secret", NO_SECRETS, ids=repr)
@pytest.mark.parametrize(
    "headers", [signed(BODY, SECRET), {VENDOR_HEADER: VENDOR_SIGNATURE}, {}],
    ids=["standard", "vendor", "unsigned"],
)  # fmt: skip
def test_a_receiver_without_a_secret_is_told_so_whatever_was_sent(headers, secret):
    with pytest.raises(DefinitionError, match=r"verify: secret must be a text, or"):
        verify(headers, BODY, secret)


MALFORMED_SECRETS = [
    "whsec_", "whsec_%%%", "whsec_abc", "whsec_ab=c", "whsec_ü",
    "whsec_MfKQ 9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_\ud800",
]  # fmt: skip


@pytest.mark.parametrize("secret", MALFORMED_SECRETS, ids=ascii)
def test_a_malformed_secret_of_a_receiver_is_an_error_with_the_cure(moment, secret):
    del moment
    for given_secret in (secret, [SECRET, secret]):
        with pytest.raises(DefinitionError, match=r"new_secret\(\)") as caught:
            verify(signed(BODY, SECRET), BODY, given_secret)

        assert str(caught.value).startswith(
            'verify: secret must be "whsec_" and base64'
        )


@pytest.mark.parametrize("secret", [*MALFORMED_SECRETS, "hunter2", VENDOR_SECRET, "="])
def test_a_malformed_secret_of_a_courier_is_an_error_with_the_cure(queue, secret):
    url = "https://a.example"

    with pytest.raises(DefinitionError, match=r"Courier: secret .*new_secret\(\)"):
        Courier(queue, {"paid": Endpoint(url)}, secret=secret)
    with pytest.raises(DefinitionError, match=r"Courier: paid: secret .*new_secret"):
        Courier(queue, {"paid": Endpoint(url, secret=secret)})


@pytest.mark.parametrize("secret", ["hunter2", ["hunter2", ""], ["hunter2", 7]])
def test_the_error_does_not_show_the_secret(queue, secret):
    with pytest.raises(DefinitionError) as caught:
        Courier(queue, {"paid": Endpoint("https://a.example")}, secret=secret)

    assert "hunter2" not in str(caught.value)


def test_a_sender_cannot_make_a_receiver_of_the_vendors_form_raise(moment):
    del moment
    headers = {**signed(BODY, SECRET), VENDOR_HEADER: VENDOR_SIGNATURE}

    assert verify(headers, VENDOR_BODY, VENDOR_SECRET) is False


def test_a_receiver_may_know_secrets_of_both_forms(moment):
    del moment
    secrets = [SECRET, VENDOR_SECRET]

    assert verify(signed(BODY, SECRET), BODY, secrets)
    assert verify({VENDOR_HEADER: VENDOR_SIGNATURE}, VENDOR_BODY, secrets)


# -- from end to end -------------------------------------------------------------------


@pytest.fixture
def queue():
    made = Queue(":memory:")
    yield made
    made.store.close()


@pytest.fixture
def hook():
    with Receiver() as made:
        yield made


def send(queue, hook, endpoint=None, **options):
    """Send one event, and return what the endpoint has received."""
    endpoint = endpoint or Endpoint(f"{hook.url}/paid")
    courier = Courier(
        queue, {"paid": endpoint}, allow_http=True, allow=["127.0.0.1"], **options
    )
    courier.send("paid", {"name": "Zoë"})
    queue.drain()
    (received,) = hook.received()
    return received


@pytest.mark.parametrize("signing", ["standard", "sha1", "sha256"])
def test_an_endpoint_can_verify_what_a_courier_sends(queue, hook, signing):
    received = send(queue, hook, secret=SECRET, signing=signing)

    assert verify(received.headers, received.body, SECRET)
    assert not verify(received.headers, received.body, OTHER)


def test_an_endpoint_with_the_package_can_verify_what_a_courier_sends(queue, hook):
    received = send(queue, hook, secret=[SECRET, OTHER])

    for secret in (SECRET, OTHER):
        found = Webhook(secret).verify(received.body, dict(received.headers))
        assert found == {"name": "Zoë"}


def test_the_secret_of_an_endpoint_is_used_instead_of_that_of_the_courier(queue, hook):
    endpoint = Endpoint(f"{hook.url}/paid", secret=OTHER)

    received = send(queue, hook, endpoint, secret=SECRET)

    assert verify(received.headers, received.body, OTHER)
    assert not verify(received.headers, received.body, SECRET)
