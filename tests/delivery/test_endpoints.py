"""Endpoints, and the configuration of an app install that they are read from."""

from __future__ import annotations

import json
import math

import attrs
import pytest

from cmdx import DefinitionError
from cmdx.delivery import Courier, Endpoint
from cmdx.queue import Queue
from cmdx.testing import Receiver

CONTENT = "ms.MessagingEventNotification.ContentEvent"
RICH = "ms.MessagingEventNotification.RichContentEvent"
URL = "https://www.application.endpoint.com/"

BY_NUMBER = """
{
    "client_name": "Example retry configuration",
    "capabilities": {
      "webhooks": {
        "ms.MessagingEventNotification.ContentEvent": {
          "endpoint": "https://www.application.endpoint.com/",
          "max_retries": 3
        },
         "ms.MessagingEventNotification.RichContentEvent": {
          "endpoint": "https://www.application.endpoint.com/"
         }
      }
    }
}
"""
BY_TIME = """
{
    "client_name": "Example retry configuration",
    "capabilities": {
      "webhooks": {
        "retry": {
          "retention_time": 86400
        },
        "ms.MessagingEventNotification.ContentEvent": {
          "endpoint": "https://www.application.endpoint.com/"
        },
         "ms.MessagingEventNotification.RichContentEvent": {
          "endpoint": "https://www.application.endpoint.com/"
         }
      }
    }
}
"""
BY_BOTH = BY_TIME.replace(
    '"https://www.application.endpoint.com/"',
    '"https://www.application.endpoint.com/", "max_retries": 1',
    1,
)
DROPPING = BY_BOTH.replace('"max_retries": 1', '"max_retries": 0')
"""The vendor's own examples."""


@pytest.fixture
def queue():
    made = Queue(":memory:")
    yield made
    made.store.close()


def from_json(queue, text):
    return Courier.from_config(queue, json.loads(text))


def from_webhooks(queue, webhooks, **options):
    """Return a courier for a configuration with these webhooks."""
    config = {"capabilities": {"webhooks": webhooks}}
    return Courier.from_config(queue, config, **options)


def from_options(queue, **options):
    """Return a courier whose only event type has these options."""
    return from_webhooks(queue, {"paid": {"endpoint": URL, **options}})


def error_of(make, *args, **options):
    """Return the words of the error that says what is wrong with a definition."""
    with pytest.raises(DefinitionError) as caught:
        make(*args, **options)
    return str(caught.value)


# -- the configuration -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "retention", "retries"),
    [
        pytest.param(BY_NUMBER, None, [3, None], id="by number"),
        pytest.param(BY_TIME, 86_400, [None, None], id="by time to live"),
        pytest.param(BY_BOTH, 86_400, [1, None], id="both"),
        pytest.param(DROPPING, 86_400, [0, None], id="dropping"),
    ],
)
def test_r_002_4_the_examples_of_the_vendor_are_read(queue, text, retention, retries):
    courier = from_json(queue, text)

    assert courier.retention == retention
    assert courier.endpoints == {
        CONTENT: Endpoint(URL, max_retries=retries[0]),
        RICH: Endpoint(URL, max_retries=retries[1]),
    }


def test_r_002_4_retry_is_not_an_event_type(queue):
    assert "retry" not in from_json(queue, BY_TIME).endpoints


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "must have an object at capabilities."),
        ([], "must have an object at capabilities."),
        ("{}", "must have an object at capabilities."),
        ({}, "must have an object at capabilities."),
        ({"capabilities": None}, "must have an object at capabilities."),
        ({"capabilities": {}}, "must have an object at capabilities.webhooks."),
        (
            {"capabilities": {"webhooks": []}},
            "must have an object at capabilities.webhooks.",
        ),
    ],
    ids=repr,
)
def test_r_002_4_a_section_that_is_missing_is_named(queue, config, message):
    assert message in error_of(Courier.from_config, queue, config)


@pytest.mark.parametrize("webhooks", [{}, {"retry": {"retention_time": 60}}], ids=repr)
def test_r_002_4_there_is_an_event_type(queue, webhooks):
    message = error_of(from_webhooks, queue, webhooks)

    assert message.startswith("capabilities.webhooks must have an object for each")


@pytest.mark.parametrize("options", [None, URL, [URL], 7, True], ids=repr)
def test_r_002_4_what_an_event_type_has_is_an_object(queue, options):
    message = error_of(from_webhooks, queue, {"paid": options})

    assert message.startswith("capabilities.webhooks.paid must be an object")


@pytest.mark.parametrize("url", [None, 7, [URL], {"url": URL}], ids=repr)
def test_r_002_4_an_event_type_has_an_endpoint(queue, url):
    message = error_of(from_webhooks, queue, {"paid": {"endpoint": url}})

    assert message.startswith("capabilities.webhooks.paid must have an endpoint")


def test_r_002_4_an_event_type_without_an_endpoint_is_refused(queue):
    message = error_of(from_webhooks, queue, {"paid": {"max_retries": 1}})

    assert message.startswith("capabilities.webhooks.paid must have an endpoint")


@pytest.mark.parametrize(
    ("key", "right"),
    [
        ("max_retry", "did you mean 'max_retries'?"),
        ("maxRetries", "did you mean 'max_retries'?"),
        ("retries", "did you mean 'max_retries'?"),
        ("endpoints", "did you mean 'endpoint'?"),
        ("header", "did you mean 'headers'?"),
        ("url", "use 'endpoint'."),
    ],
)
def test_r_002_4_an_unknown_key_is_answered_with_the_right_one(queue, key, right):
    message = error_of(from_options, queue, **{key: 1})

    assert f"capabilities.webhooks.paid has no option {key!r}; {right}" in message


def test_r_002_4_an_unknown_key_of_retry_is_answered_with_the_right_one(queue):
    webhooks = {"retry": {"retention": 60}, "paid": {"endpoint": URL}}

    message = error_of(from_webhooks, queue, webhooks)

    assert message.startswith(
        "capabilities.webhooks.retry has no option 'retention'; "
        "did you mean 'retention_time'?"
    )


def test_the_other_options_of_a_courier_can_be_given(queue):
    courier = from_webhooks(queue, {"paid": {"endpoint": URL}}, name="b", timeout=5)

    assert (courier.name, courier.timeout) == ("b", 5)


def test_a_retention_beside_the_configuration_is_refused(queue):
    message = error_of(from_webhooks, queue, {"paid": {"endpoint": URL}}, retention=60)

    assert "Leave out retention=" in message


# -- max_retries -----------------------------------------------------------------------

NO_RETRIES = [
    True,
    False,
    1.0,
    0.0,
    2.5,
    math.nan,
    math.inf,
    "3",
    "",
    -1,
    6,
    10**30,
    [],
]


@pytest.mark.parametrize("retries", range(6))
def test_r_002_5_max_retries_is_0_to_5(queue, retries):
    courier = from_options(queue, max_retries=retries)
    direct = Courier(queue, {"paid": Endpoint(URL, max_retries=retries)})

    assert courier.endpoints == direct.endpoints
    assert courier.endpoints["paid"].max_retries == retries


@pytest.mark.parametrize("retries", NO_RETRIES, ids=repr)
def test_r_002_5_max_retries_out_of_range_or_of_another_kind_is_refused(queue, retries):
    rule = f"max_retries must be a whole number from 0 to 5, got {retries!r}."

    message = error_of(from_options, queue, max_retries=retries)
    direct = error_of(Courier, queue, {"paid": Endpoint(URL, max_retries=retries)})

    assert message == f"capabilities.webhooks.paid.{rule}"
    assert direct == f"Courier: paid: {rule}"


def test_r_002_5_null_is_not_a_number_of_retries(queue):
    message = error_of(from_options, queue, max_retries=None)

    assert message.startswith("capabilities.webhooks.paid.max_retries must not be null")


def test_r_002_5_the_absence_of_max_retries_is_not_0(queue):
    absent = from_options(queue).endpoints["paid"]
    zero = from_options(queue, max_retries=0).endpoints["paid"]

    assert (absent.max_retries, zero.max_retries) == (None, 0)


# -- retention_time --------------------------------------------------------------------

NO_RETENTIONS = [
    0, 1, 1.999, -60, 259_200.5, 259_201, 10**400, math.nan, math.inf, -math.inf,
    True, False, "60", "", [60], {},
]  # fmt: skip


def from_retention(queue, seconds):
    webhooks = {"retry": {"retention_time": seconds}, "paid": {"endpoint": URL}}
    return from_webhooks(queue, webhooks)


@pytest.mark.parametrize("seconds", [2, 2.5, 60, 86_400, 259_199.5, 259_200])
def test_r_002_6_retention_time_is_2_to_259200_seconds(queue, seconds):
    direct = Courier(queue, {"paid": Endpoint(URL)}, retention=seconds)

    assert from_retention(queue, seconds).retention == seconds
    assert direct.retention == seconds


@pytest.mark.parametrize("seconds", NO_RETENTIONS, ids=lambda value: repr(value)[:20])
def test_r_002_6_retention_time_out_of_range_or_of_another_kind_is_refused(
    queue, seconds
):
    rule = "must be a number of seconds from 2 to 259200 (3 days), got"

    message = error_of(from_retention, queue, seconds)
    direct = error_of(Courier, queue, {"paid": Endpoint(URL)}, retention=seconds)

    assert message.startswith(f"capabilities.webhooks.retry.retention_time {rule}")
    assert direct.startswith(f"Courier: retention {rule}")


def test_r_002_8_without_a_retention_time_events_are_retried_by_number(queue):
    courier = from_webhooks(queue, {"retry": {}, "paid": {"endpoint": URL}})

    assert courier.retention is None


def test_r_002_6_a_retention_time_that_is_null_is_refused(queue):
    webhooks = {"retry": {"retention_time": None}, "paid": {"endpoint": URL}}
    message = error_of(from_webhooks, queue, webhooks)

    assert message.startswith("capabilities.webhooks.retry.retention_time must not be")


@pytest.mark.parametrize("retry", [None, 60, [60]], ids=repr)
def test_r_002_6_what_retry_has_is_an_object(queue, retry):
    message = error_of(
        from_webhooks, queue, {"retry": retry, "paid": {"endpoint": URL}}
    )

    assert message.startswith("capabilities.webhooks.retry must be an object")


# -- the URL ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "https://a.example",
        "https://a.example/",
        "https://a.example/hook?key=1&b=%20#part",
        "https://a.example:8443/hook",
        "https://a.example:/hook",
        "https://a.example:1",
        "https://a.example:65535",
        "HTTPS://A.Example/Hook",
        "https://a.example./hook",
        "https://8.8.8.8/hook",
        "https://[2606:4700::1111]/hook",
        "https://[2606:4700::1111]:8443/hook",
        "https://xn--mnchen-3ya.example/",
        "https://a.example/@b",
        "https://a.example?user@b",
        "https://a.example/[x]",
    ],
)
def test_r_002_7_an_endpoint_has_a_url_with_https(queue, url):
    courier = Courier(queue, {"paid": Endpoint(url)})

    assert courier.endpoints["paid"].url == url


def test_r_002_7_http_is_refused_unless_it_is_allowed(queue):
    endpoints = {"paid": Endpoint("http://a.example/")}

    assert error_of(Courier, queue, endpoints) == (
        "Courier: paid: url must begin with https://. For tests in your own network, "
        "give the courier allow_http=True."
    )
    assert Courier(queue, endpoints, allow_http=True).endpoints == endpoints


def test_r_002_7_http_in_a_configuration_is_refused_unless_it_is_allowed(queue):
    webhooks = {"paid": {"endpoint": "http://a.example/"}}

    message = error_of(from_webhooks, queue, webhooks)

    key = "capabilities.webhooks.paid.endpoint"
    assert message.startswith(f"{key} must begin with https://")
    assert from_webhooks(queue, webhooks, allow_http=True).endpoints


@pytest.mark.parametrize("scheme", ["ftp", "ws", "wss", "file", "gopher", "socks5"])
def test_r_002_7_other_schemes_are_refused_even_where_http_is_allowed(queue, scheme):
    endpoints = {"paid": Endpoint(f"{scheme}://a.example/x")}

    message = error_of(Courier, queue, endpoints, allow_http=True)

    assert message.startswith("Courier: paid: url must begin with https://")


NO_URLS = {
    "no text": [None, 7, b"https://a.example", ["https://a.example"]],
    "relative": ["", "/hook", "a.example/hook", "//a.example/hook", "a.example:1"],
    "no host": [
        "https:", "https:/", "https://", "https:///hook", "https:a.example",
        "https://:443/", "https://?a.example", "https://#a.example", "https",
    ],
    "blank": [
        "https://a.example/a b", " https://a.example", "https://a.example ",
        "https://a.example/\n", "https://a\t.example", "https://a.example\r\nX: 1",
    ],
    "invisible": ["https://a.example/\x00", "\x1bhttps://a.example", "https://a\x7f.de"],
    "backslash": ["https:\\\\a.example", "https://a.example\\b", "https://a.example/\\"],
    "not ASCII": ["https://münchen.example/", "https://a.example/ü", "https://a｡b/"],
    "port": [
        "https://a.example:0/", "https://a.example:65536/", "https://a.example:-1/",
        "https://a.example:+443/", "https://a.example:https/", "https://a.example:0x1/",
        "https://a.example:443:443/", "https://a.example:4 43/",
    ],
    "brackets": [
        "https://[::1/", "https://::1]/", "https://[2606:4700::1111]x/",
        "https://x[2606:4700::1111]/", "https://[a.example]/", "https://[]/",
        "https://[v1.abc]/", "https://[2606:4700::1111%25eth0]/",
        "https://2606:4700::1111/",
    ],
    "name": ["https://a..example/", "https://a,b.example/", "https://%61.example/"],
}  # fmt: skip


@pytest.mark.parametrize(
    "url",
    [
        pytest.param(url, id=f"{group} {ascii(url)[1:-1]}")
        for group, urls in NO_URLS.items()
        for url in urls
    ],
)
def test_r_002_7_what_is_no_url_is_refused(queue, url):
    message = error_of(Courier, queue, {"paid": Endpoint(url)})

    assert message.startswith(("Courier: paid: url must ", "Courier: paid: url is "))


@pytest.mark.parametrize("user", ["user", "user:hunter2", ":hunter2", "", "a@hunter2"])
def test_r_002_7_a_user_in_the_url_is_refused_and_not_shown(queue, user):
    message = error_of(Courier, queue, {"paid": Endpoint(f"https://{user}@a.example/")})

    assert message == (
        "Courier: paid: url must not have a user. Use headers= to authenticate."
    )


@pytest.mark.parametrize(
    "url",
    [
        "https://user:hunter2@a.example/a b",
        "https://user:hunter2@a.example:0/",
        "https://user:hunter2/@a.example:x/",
        "ftp://user:hunter2@a.example/",
        "http://user:hunter2@a.example/",
    ],
)
def test_r_002_7_a_password_in_a_url_that_is_none_is_not_shown(queue, url):
    for endpoint in (Endpoint(url), url):
        message = error_of(Courier, queue, {"paid": endpoint})

        assert "hunter2" not in message


def test_r_002_7_an_address_of_our_own_network_is_refused_with_the_cure(queue):
    message = error_of(Courier, queue, {"paid": Endpoint("https://10.0.0.1/")})

    assert message == (
        "Courier: paid: url is refused: the host '10.0.0.1' leads to 10.0.0.1, which "
        "is private. Give the courier allow=, if need be."
    )


def test_r_002_7_an_event_type_has_one_endpoint(queue):
    endpoint = Endpoint(URL)

    message = error_of(Courier, queue, {"paid": [endpoint, endpoint]})

    assert message == "Courier: paid must be an Endpoint, got list."


def test_an_endpoint_given_as_text_is_answered_with_the_right_line(queue):
    message = error_of(Courier, queue, {"paid": "https://a.example"})

    assert message == (
        "Courier: paid must be an Endpoint. Write Endpoint('https://a.example')."
    )


def test_what_is_no_endpoint_is_refused_and_its_secret_is_not_shown(queue):
    given = {"url": URL, "secret": "hunter2"}

    message = error_of(Courier, queue, {"paid": given})

    assert message == "Courier: paid must be an Endpoint, got dict."


# -- headers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Version": "1", "Authorization": "Bearer a"},
        [
            {"key": "X-Version", "value": "1"},
            {"key": "Authorization", "value": "Bearer a"},
        ],
        [
            {"name": "X-Version", "value": "1"},
            {"name": "Authorization", "value": "Bearer a"},
        ],
    ],
    ids=["an object", "a list with keys", "a list with names"],
)
def test_r_002_7_further_headers_are_an_object_or_a_list(queue, headers):
    endpoint = from_options(queue, headers=headers).endpoints["paid"]

    assert endpoint.headers == {"X-Version": "1", "Authorization": "Bearer a"}


@pytest.mark.parametrize("headers", [{}, []], ids=repr)
def test_r_002_7_there_may_be_no_further_headers(queue, headers):
    assert from_options(queue, headers=headers).endpoints["paid"].headers is None


@pytest.mark.parametrize(
    "headers",
    [
        None, False, 0, "", "X-A: hunter2", [None], ["X-A: hunter2"], [["X-A", "1"]],
        [{}], [{"key": "X-A"}], [{"value": "hunter2"}], [{"key": None, "value": "1"}],
    ],
    ids=repr,
)  # fmt: skip
def test_r_002_7_headers_of_another_kind_are_refused(queue, headers):
    message = error_of(from_options, queue, headers=headers)

    assert message.startswith("capabilities.webhooks.paid.headers must be a list")
    assert "hunter2" not in message


OWN_HEADERS = [
    "Connection", "Content-Length", "content-type", "HOST", "Transfer-Encoding",
    "webhook-id", "Webhook-Timestamp", "webhook-signature", "X-LivePerson-Signature",
]  # fmt: skip

WRONG_HEADERS = [
    *[(name, "hunter2", "which the courier sets itself") for name in OWN_HEADERS],
    *[
        (name, "hunter2", "which is no name of a header")
        for name in ["", " ", "X A", "X-A:", "X-Ü", "X\r\nA", "X(A)", "X-A\x00", "{A}"]
    ],
    *[
        ("X-A", value, "whose value cannot be sent in a header")
        for value in [
            "hunter2\r\nX-B: 1", "hunter2\n", "hunter2\x00", "hunter2 ", " hunter2",
            "hunter2ü", "hunter2\t2", "hunter2\x7f",
        ]
    ],
    *[
        ("X-A", value, "whose value must be a text")
        for value in [7, None, True, ["hunter2"], b"hunter2"]
    ],
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "fault"), WRONG_HEADERS, ids=ascii)
def test_r_002_7_a_header_that_cannot_be_sent_is_refused_and_not_shown(
    queue, name, value, fault
):
    endpoint = Endpoint(URL, headers={"X-First": "1", name: value})

    direct = error_of(Courier, queue, {"paid": endpoint})
    as_object = error_of(from_options, queue, headers={name: value})
    as_list = error_of(from_options, queue, headers=[{"key": name, "value": value}])

    assert direct == f"Courier: paid: headers has {name!r}, {fault}."
    assert as_object == f"capabilities.webhooks.paid.headers has {name!r}, {fault}."
    assert as_list == as_object


@pytest.mark.parametrize("name", [7, ["X-A"], {"X": "A"}, True], ids=repr)
def test_r_002_7_the_name_of_a_header_is_a_text(queue, name):
    message = error_of(from_options, queue, headers=[{"key": name, "value": "1"}])

    assert message == (
        f"capabilities.webhooks.paid.headers has {name!r}, which is no name of a "
        "header."
    )


def test_r_002_7_a_header_that_is_there_twice_is_refused(queue):
    pairs = [{"key": "x-a", "value": "1"}, {"key": "X-A", "value": "2"}]

    message = error_of(from_options, queue, headers=pairs)
    direct = error_of(
        Courier, queue, {"paid": Endpoint(URL, headers={"x-a": "1", "X-A": "2"})}
    )

    assert message.endswith("paid.headers has 'X-A', which is there twice.")
    assert direct == "Courier: paid: headers has 'X-A', which is there twice."


@pytest.mark.parametrize(
    "headers", [[("X-A", "hunter2")], "X-A: hunter2", {"hunter2"}, 7, ("hunter2",)]
)
def test_headers_of_an_endpoint_are_a_mapping(queue, headers):
    endpoint = Endpoint(URL, headers=headers)

    message = error_of(Courier, queue, {"paid": endpoint})

    assert message == (
        "Courier: paid: headers must be a mapping of names to values, got "
        f"{type(headers).__name__}."
    )
    assert "hunter2" not in repr(endpoint)


def test_further_headers_are_sent(queue):
    headers = {"X-Version": "1", "Authorization": "Bearer a", "User-Agent": "shop"}
    with Receiver() as hook:
        endpoint = Endpoint(f"{hook.url}/paid", headers=headers)
        courier = Courier(
            queue, {"paid": endpoint}, allow_http=True, allow=["127.0.0.1"]
        )
        courier.send("paid", {"order": 7})
        queue.drain()
        (received,) = hook.received()

    found = {name: received.headers[name.lower()] for name in headers}
    assert found == headers


# -- modes -----------------------------------------------------------------------------


def test_r_002_8_a_retention_time_selects_time_to_live_for_all_event_types(queue):
    courier = from_json(queue, BY_BOTH)

    for event_type in (CONTENT, RICH):
        delivery = courier.send(event_type, {}, conversation="c-1")
        assert delivery.job.key == "courier/default/c-1"


def test_r_002_8_without_a_retention_time_there_is_no_order(queue):
    courier = from_json(queue, BY_NUMBER)

    assert courier.retention is None
    assert courier.send(CONTENT, {}, conversation="c-1").job.key is None


def test_r_002_8_the_place_of_retry_among_the_event_types_does_not_matter(queue):
    webhooks = {"paid": {"endpoint": URL}, "retry": {"retention_time": 60}}

    assert from_webhooks(queue, webhooks).retention == 60


# -- what an endpoint shows ------------------------------------------------------------


def test_an_endpoint_does_not_show_its_secret_and_what_is_in_its_headers():
    headers = {"Authorization": "Bearer hunter2", "X-A": "hunter2"}
    endpoint = Endpoint(URL, max_retries=3, headers=headers, secret="hunter2")  # noqa: S106

    assert repr(endpoint) == (
        f"Endpoint(url={URL!r}, max_retries=3, "
        "headers={'Authorization': ..., 'X-A': ...})"
    )
    assert repr(Endpoint(URL)).endswith("max_retries=None, headers=None)")


def test_an_endpoint_does_not_change():
    headers = {"X-A": "1"}
    endpoint = Endpoint(URL, headers=headers)
    headers["X-A"] = "2\r\n"

    assert endpoint.headers == {"X-A": "1"}
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        endpoint.url = "https://b.example"


@pytest.mark.parametrize("name", ["", 5, None, "x" * 256])
def test_an_event_type_of_a_configuration_is_refused_by_its_place(queue, name):
    config = {"capabilities": {"webhooks": {name: {"endpoint": URL}}}}

    assert error_of(Courier.from_config, queue, config) == (
        "capabilities.webhooks: event type must be a text of 1 to 255 characters, "
        f"got {name!r}."
    )


@pytest.mark.parametrize("url", ["https://bücher.example/", "https://a.example/ü"])
def test_a_url_with_other_letters_is_refused_with_the_way_to_write_it(queue, url):
    assert error_of(Courier, queue, {"paid": Endpoint(url)}) == (
        f"Courier: paid: url must be an absolute URL in ASCII, got {url!r}. Write "
        "other letters of the host in punycode, such as xn--bcher-kva.example, and "
        "elsewhere percent-encoded, such as %C3%BC."
    )


@pytest.mark.parametrize("host", ["a..b", "0x7f.1", "10.0.0.0-10.0.0.9", "[fe80::1%1]"])
def test_a_host_that_cannot_be_allowed_is_not_refused_with_allow(queue, host):
    message = error_of(Courier, queue, {"paid": Endpoint(f"https://{host}/")})

    assert "url is refused" in message
    assert message.endswith(". Correct the URL.")


def test_endpoints_of_a_courier_cannot_be_changed(queue):
    courier = Courier(queue, {"paid": Endpoint(URL)})

    with pytest.raises(TypeError):
        courier.endpoints["left"] = Endpoint(URL)
