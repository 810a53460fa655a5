"""Which hosts and addresses events are sent to, and that they go nowhere else."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import httpcore
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cmdx import DefinitionError
from cmdx.delivery import Courier, Endpoint
from cmdx.delivery.connections import guarded_backend
from cmdx.delivery.guard import REFUSED, AddressRefused, Guard, refusal_of
from cmdx.queue import Queue
from cmdx.testing import Receiver

PUBLIC_ADDRESS = "93.184.215.14"


@pytest.fixture
def queue():
    made = Queue(":memory:")
    yield made
    made.store.close()


def is_refused(host, *allow):
    """Tell whether a host is refused by the way it is written."""
    try:
        Guard.of(allow).check_host(host)
    except AddressRefused:
        return True
    return False


def table(groups):
    """Return the rows of a table with readable ids."""
    return [
        pytest.param(text, id=f"{group} {ascii(text)[1:-1]}")
        for group, texts in groups.items()
        for text in texts
    ]


# -- addresses and their spellings -----------------------------------------------------

ADDRESSES = {
    "this host": ["0.0.0.0", "0.1.2.3", "0.255.255.255", "::"],  # noqa: S104
    "loopback": ["127.0.0.1", "127.0.0.53", "127.255.255.255", "::1"],
    "private": [
        "10.0.0.0", "10.255.255.255", "172.16.0.0", "172.31.255.255",
        "192.168.0.0", "192.168.255.255",
    ],
    "link-local": ["169.254.0.0", "169.254.255.255", "fe80::", "fe80::1", "febf::1"],
    "cloud metadata": [
        "169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192",
        "fd00:ec2::254", "fd20:ce::254",
    ],
    "CGNAT": ["100.64.0.0", "100.127.255.255"],
    "multicast": ["224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"],
    "reserved": [
        "192.0.0.0", "192.0.0.255", "192.31.196.1", "192.52.193.1", "192.175.48.1",
        "240.0.0.0", "255.255.255.255", "2001:1::1", "2001:20::1", "2620:4f:8000::1",
        "5f00::1", "100::1", "100:0:0:1::1", "200::1", "1fff:ffff::1", "4000::",
        "8000::1", "e000::1", "fe00::1",
    ],
    "documentation": [
        "192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1",
    ],
    "benchmarks": ["198.18.0.0", "198.19.255.255", "2001:2::1"],
    "mapped": [
        "::ffff:127.0.0.1", "::ffff:7f00:1", "::FFFF:10.0.0.1", "::ffff:8.8.8.8",
        "0:0:0:0:0:ffff:169.254.169.254",
    ],
    "compatible": ["::127.0.0.1", "::a00:1", "::8.8.8.8"],
    "translated": ["::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8"],
    "NAT64": [
        "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::8.8.8.8",
        "64:ff9b:1::10.0.0.1", "64:ff9b:1:fffe::8.8.8.8",
    ],
    "6to4": ["2002:7f00:1::", "2002:a00:1::1", "2002:808:808::1", "192.88.99.1"],
    "Teredo": ["2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"],
    "unique local": ["fc00::", "fd12:3456:789a::1", "fdff:ffff::1"],
    "site local": ["fec0::1", "feff::1"],
}  # fmt: skip
"""Addresses that are not for everybody."""

SPELLINGS = {
    "zone": ["fe80::1%eth0", "::1%lo", "::1%25lo", "2606:4700::1111%eth0"],
    "octal": ["0177.0.0.1", "017700000001", "012.1.2.3", "08.8.8.8"],
    "hex": ["0x7f.0.0.1", "0x7f000001", "0X7F.0X0.0X0.0X1", "0x", "0x0a.0x0.0.1"],
    "decimal": ["2130706433", "167772161", "0", "4294967295", "134744072"],
    "short": ["127.1", "127.0.1", "10.1", "0x7f.1", "8.8"],
    "mixed": ["0177.0x0.0.1", "0x7f.0.1", "127.0x1"],
    "long": ["127.0.0.1.1", "1.2.3.4.5", "00000127.0.0.1", "999.1.1.1"],
    "trailing dot": ["127.0.0.1.", "127.1.", "0x7f000001.", "8.8.8.8.", "127.0.0.1.."],
    "upper case": ["::FFFF:7F00:1", "FE80::1", "FD00:EC2::254"],
    "brackets": ["[::1]", "[::ffff:127.0.0.1]", "[127.0.0.1]"],
    "not ASCII": [
        "１２７.０.０.１", "①②⑦.⓪.⓪.①", "127。0。0。1",  # noqa: RUF001
        "١٢٧.٠.٠.١", "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "münchen.example",  # noqa: RUF001
    ],
    "no name": [
        "", ".", "..", "a..example", "a.example..", ".example", "a b.example",
        " 127.0.0.1", "127.0.0.1 a", "127.0.0.%31", "*.example", "a.example:80", "a/b",
        "user@a", "127.0.0.1\x00.example", "a.example\n", "::g", "1::2::3",
        "v1.a:b", "a" * 64,
    ],
}  # fmt: skip
"""Hosts that some system may take for an address, and what is no host at all."""

PUBLIC = {
    "IPv4": ["1.1.1.1", "8.8.8.8", "93.184.215.14", "151.101.1.69", "217.0.0.1"],
    "IPv4 beside": [
        "1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0",
        "126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0",
        "172.15.255.255", "172.32.0.0", "191.255.255.255", "192.0.1.0", "192.0.3.0",
        "192.31.195.255", "192.31.197.0", "192.52.192.255", "192.52.194.0",
        "192.88.98.255", "192.88.100.0", "192.167.255.255", "192.169.0.0",
        "192.175.47.255", "192.175.49.0", "198.17.255.255", "198.20.0.0",
        "198.51.99.255", "198.51.101.0", "203.0.112.255", "203.0.114.0",
        "223.255.255.255",
    ],
    "IPv6": ["2606:4700:4700::1111", "2A00:1450:4001::200e", "2400:cb00::1"],
    "IPv6 beside": [
        "2000::", "2001:200::", "2001:db7:ffff::", "2001:db9::", "2003::",
        "2620:4f:7fff:ffff::", "2620:4f:8001::", "3ffe:ffff::", "3fff:1000::",
    ],
}  # fmt: skip
"""Addresses that are for everybody; some are beside those that are not."""

NAMES = [
    "a.example", "A.Example", "a.example.", "xn--mnchen-3ya.example", "a_b.example",
    "0x7f.example", "127.0.0.1.example", "1e3", "localhost", "a" * 63,
]  # fmt: skip


@pytest.mark.parametrize("host", table(ADDRESSES))
def test_an_address_that_is_not_for_everybody_is_refused(host):
    assert is_refused(host)


@pytest.mark.parametrize("host", table(ADDRESSES))
def test_a_name_that_leads_to_such_an_address_is_refused(host, resolver):
    resolver.answers = [[host]]

    with pytest.raises(AddressRefused, match=r"the host 'a\.example' leads to"):
        asyncio.run(Guard().resolve("a.example", 443))


@pytest.mark.parametrize("host", table(SPELLINGS))
def test_a_host_is_refused_if_it_may_be_taken_for_an_address_or_is_no_name(host):
    assert is_refused(host)


@pytest.mark.parametrize("host", table(PUBLIC))
def test_an_address_that_is_for_everybody_is_accepted(host):
    assert not is_refused(host)


@pytest.mark.parametrize("host", table({"name": NAMES}))
def test_a_name_is_not_refused_before_it_is_looked_up(host):
    assert not is_refused(host)


@pytest.mark.parametrize("network", REFUSED)
def test_a_network_is_refused_from_its_first_address_to_its_last(network):
    ends = ip_network(network)

    assert refusal_of(ends.network_address)
    assert refusal_of(ends.broadcast_address)


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("10.0.0.1", "the host '10.0.0.1' leads to 10.0.0.1, which is private"),
        ("::1", "the host '::1' leads to ::1, which is loopback"),
        ("2002:a00:1::", "which is another form of 10.0.0.1"),
        ("4000::1", "which is reserved"),
        ("127.1", "the host '127.1' is an address in an unusual form"),
        ("fe80::1%eth0", "the host 'fe80::1%eth0' is an address with a zone"),
        ("a b", "the host 'a b' is no name"),
    ],
)
def test_a_refusal_says_why(host, message):
    with pytest.raises(AddressRefused) as caught:
        Guard().check_host(host)

    assert message in str(caught.value)


URLS = {
    "user": [
        "https://a.example@127.0.0.1/", "https://127.0.0.1:443@a.example/",
        "https://a.example%00@127.0.0.1/", "https://@127.0.0.1/",
    ],
    "backslash": [
        "https://127.0.0.1\\@a.example/", "https://a.example\\@127.0.0.1/",
        "https:\\\\127.0.0.1/", "https:/\\127.0.0.1/",
    ],
    "delimiter": [
        "https://127.0.0.1#@a.example/", "https://127.0.0.1?@a.example/",
        "https://127.0.0.1/@a.example/", "https://127.0.0.1:443/",
    ],
    "brackets": [
        "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://[::1%25lo]/",
        "https://[fe80::1%eth0]/", "https://[127.0.0.1]/", "https://[v1.abc]/",
        "https://a.example[::1]/", "https://[2606:4700::1111].a.example/",
    ],
    "invisible": [
        "https://127.0.0.1\t/", "https://127.0.\n0.1/", "\x00https://a.example/",
        "https://a.example\x7f/", " https://a.example/",
    ],
    "not ASCII": ["https://１２７.０.０.１/", "https://127。0。0。1/"],  # noqa: RUF001
    "spelling": [
        "HTTPS://127.0.0.1/", "https://0x7f.1/", "https://2130706433/",
        "https://127.0.0.1./", "https://127.0.0.%31/", "https://./", "https:///x",
    ],
}  # fmt: skip


@pytest.mark.parametrize("url", table(URLS))
def test_no_spelling_of_a_url_gets_around_the_guard(queue, url):
    with pytest.raises(DefinitionError, match="Courier: paid: url"):
        Courier(queue, {"paid": Endpoint(url)})


# -- what holds for every address ------------------------------------------------------

JUDGED_FORMS = {
    "::ffff:0:0/96": lambda inner: IPv6Address(0xFFFF << 32 | inner),
    "::ffff:0:0:0/96": lambda inner: IPv6Address(0xFFFF << 48 | inner),
    "64:ff9b::/96": lambda inner: IPv6Address(0x64FF9B << 96 | inner),
    "64:ff9b:1::/48": lambda inner: IPv6Address(0x64FF9B0001 << 80 | inner),
    "2002::/16": lambda inner: IPv6Address(0x2002 << 112 | inner << 80),
}
"""Those that can be allowed: what they lead to is judged then."""

OTHER_FORMS = {
    "::/96": IPv6Address,
    "2001::/32": lambda inner: IPv6Address(0x2001 << 112 | inner ^ 0xFFFF_FFFF),
}
"""Addresses in an old form, and Teredo, which inverts them."""

STRICTER = [
    "192.0.0.0/24",  # protocols of the IETF: some releases of Python take a part of it
    "192.31.196.0/24",  # AS112 and AMT answer anybody, but nobody has a webhook there
    "192.52.193.0/24",
    "192.175.48.0/24",
    "2620:4f:8000::/48",
    "192.88.99.0/24",  # relays of 6to4
    "224.0.0.0/4",  # multicast can be global, and is not one receiver
    "ff00::/8",
    *JUDGED_FORMS,  # they lead to any IPv4 address
    *OTHER_FORMS,
    "2001::/23",  # protocols of the IETF, as 192.0.0.0/24
    "fec0::/10",  # private, in the old way
    "3fff::/20",  # for documentation and for segment routing: too new for some releases
    "5f00::/16",
    "::/3",  # all that is not in 2000::/3 is reserved by the IETF
    "4000::/2",
    "8000::/1",
]
"""What is refused though ``ipaddress`` calls it global, and why."""

STRICTER_NETWORKS = [ip_network(text) for text in STRICTER]

any_address = st.ip_addresses()
any_ipv4 = st.ip_addresses(v=4)


def in_any_of(address, networks):
    return any(address in network for network in networks)


@given(address=any_address)
@settings(max_examples=1000, deadline=None)
@example(ip_address("100.64.0.1"))
def test_the_guard_agrees_with_ipaddress_but_where_it_is_stricter(address):
    is_stricter = in_any_of(address, STRICTER_NETWORKS)

    assert (refusal_of(address) is not None) == (not address.is_global or is_stricter)


@given(inner=any_ipv4)
@settings(max_examples=300, deadline=None)
@example(IPv4Address("8.8.8.8"))
def test_all_forms_of_any_ipv4_address_are_refused(inner):
    for make in (*JUDGED_FORMS.values(), *OTHER_FORMS.values()):
        assert refusal_of(make(int(inner)))


@given(inner=any_ipv4)
@settings(max_examples=300, deadline=None)
@example(IPv4Address("8.8.8.8"))
@example(IPv4Address("10.0.0.1"))
def test_a_form_that_is_allowed_is_refused_just_as_the_address_in_it(inner):
    for network, make in JUDGED_FORMS.items():
        assert is_refused(str(make(int(inner))), network) == is_refused(str(inner))


@given(address=any_address)
@settings(max_examples=300, deadline=None)
def test_an_address_that_is_allowed_is_never_refused(address):
    assert not is_refused(str(address), str(address))


@given(address=any_address, allowed=any_address)
@settings(max_examples=300, deadline=None)
def test_to_allow_one_address_does_not_allow_another(address, allowed):
    if address != allowed:
        assert is_refused(str(address), str(allowed)) == is_refused(str(address))


# -- allow ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allow", "host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("10.0.0.0/8", "10.0.0.0"),
        ("10.0.0.0/8", "10.255.255.255"),
        ("10.1.2.3/8", "10.9.9.9"),
        ("0.0.0.0/0", "127.0.0.1"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("::1", "[::1]"),
        ("fd00::/8", "fdff::1"),
        ("FD00::/8", "fd00::1"),
        ("64:ff9b::/96", "64:ff9b::8.8.8.8"),
        ("64:ff9b::10.0.0.1", "64:ff9b::10.0.0.1"),
        ("64:ff9b::10.0.0.0/104", "64:ff9b::10.1.2.3"),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.1"),
        ("2002:a00::/24", "2002:a00:1::1"),
        ("hooks.internal", "hooks.internal"),
        ("Hooks.Internal.", "hooks.internal"),
        ("hooks.internal", "HOOKS.internal."),
        ("localhost", "localhost"),
    ],
)
def test_what_is_allowed_is_accepted(allow, host):
    assert not is_refused(host, allow)


@pytest.mark.parametrize(
    ("allow", "host"),
    [
        ("127.0.0.1", "127.0.0.2"),
        ("127.0.0.1", "::1"),
        ("127.0.0.1", "::ffff:127.0.0.1"),
        ("127.0.0.1", "64:ff9b::127.0.0.1"),
        ("127.0.0.1", "127.1"),
        ("127.0.0.1", "0x7f000001"),
        ("127.0.0.1", "127.0.0.1."),
        ("10.0.0.0/8", "172.16.0.1"),
        ("0.0.0.0/0", "::1"),
        ("::/0", "10.0.0.1"),
        ("::/0", "::ffff:10.0.0.1"),
        ("fd00::/8", "fc00::1"),
        ("::1", "::2"),
        ("64:ff9b::/96", "64:ff9b::10.0.0.1"),
        ("64:ff9b::/96", "64:ff9b::169.254.169.254"),
        ("64:ff9b::/96", "10.0.0.1"),
        ("64:ff9b:1::/48", "64:ff9b:1::10.0.0.1"),
        ("64:ff9b:1::/96", "64:ff9b:1::10.0.0.1"),
        ("2002::/16", "2002:a00:1::1"),
        ("hooks.internal", "10.0.0.1"),
        ("localhost", "127.0.0.1"),
    ],
)
def test_nothing_else_is_allowed_by_it(allow, host):
    assert is_refused(host, allow)


def test_a_form_and_an_address_that_are_both_allowed_are_allowed_together():
    assert not is_refused("64:ff9b::10.0.0.1", "64:ff9b::/96", "10.0.0.1")
    assert is_refused("64:ff9b::10.0.0.2", "64:ff9b::/96", "10.0.0.1")


def test_a_refusal_names_the_address_inside_a_form_that_is_allowed():
    with pytest.raises(AddressRefused, match=r"leads to 10\.0\.0\.1, which is private"):
        Guard.of(["64:ff9b::/96"]).check_host("64:ff9b::10.0.0.1")


def test_a_name_that_is_allowed_may_lead_anywhere(resolver):
    resolver.answers = [["10.0.0.1", "::1"]]

    guard = Guard.of(["hooks.internal"])

    assert asyncio.run(guard.resolve("Hooks.internal", 443)) == ["10.0.0.1", "::1"]


@pytest.mark.parametrize("host", ["a.hooks.internal", "hooks.internal.example", "b"])
def test_a_name_that_is_allowed_allows_no_other_name(resolver, host):
    resolver.answers = [["10.0.0.1"]]

    with pytest.raises(AddressRefused):
        asyncio.run(Guard.of(["hooks.internal"]).resolve(host, 443))


@pytest.mark.parametrize("host", ["a.example", "10.0.0.7"])
def test_a_network_that_is_allowed_may_be_led_to_by_a_name(resolver, host):
    resolver.answers = [["10.0.0.7"]]

    assert asyncio.run(Guard.of(["10.0.0.0/8"]).resolve(host, 443)) == ["10.0.0.7"]


@pytest.mark.parametrize("allow", ["10.0.0.7", ("10.0.0.7",), {"10.0.0.7"}])
def test_one_text_or_several_are_allowed(allow):
    assert Guard.of(allow) == Guard.of(["10.0.0.7"])


@pytest.mark.parametrize(
    "text",
    [
        "", " ", ".", "10.0.0.0/33", "10.0.0/8", "127.1", "0x7f000001", "2130706433",
        "::1/129", "fe80::1%eth0", "127.0.0.1:80", "[::1]:80", "https://a.example",
        "a.example/x", "a.example:443", "*.example", "a b", "münchen.example", ":::",
        "10.0.0.0-10.0.0.9", "a.10",
    ],
)  # fmt: skip
def test_what_could_never_match_a_host_cannot_be_allowed(queue, text):
    endpoints = {"paid": Endpoint("https://a.example")}

    with pytest.raises(DefinitionError, match="no address, network or name") as caught:
        Courier(queue, endpoints, allow=[text])

    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    "allow",
    [
        None, 7, [None], [b"10.0.0.1"], b"a", [1], ip_address("10.0.0.1"),
        ip_network("10.0.0.0/8"), ip_network("fd00::/8"), [ip_network("10.0.0.0/8")],
    ],
)  # fmt: skip
def test_only_texts_can_be_allowed(queue, allow):
    endpoints = {"paid": Endpoint("https://a.example")}

    with pytest.raises(DefinitionError, match="allow has addresses, networks or names"):
        Courier(queue, endpoints, allow=allow)


# -- looking up ------------------------------------------------------------------------


class Resolver:
    """Answers the look-ups of event loops: each with the next list of addresses."""

    def __init__(self):
        self.answers = []
        self.asked = []

    def answer(self, host, port):
        found = self.answers[min(len(self.asked), len(self.answers) - 1)]
        self.asked.append(host)
        return [
            (family_of(address), socket.SOCK_STREAM, 6, "", (address, port))
            for address in found
        ]


def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


@pytest.fixture
def resolver(monkeypatch):
    made = Resolver()

    async def getaddrinfo(_loop, host, port, **_options):
        return made.answer(host, port)

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return made


@pytest.fixture
def connected(monkeypatch):
    """The hosts that a connection is opened to; none really is."""
    hosts = []

    async def connect_tcp(_backend, host, port, **_options):
        hosts.append((host, port))

    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", connect_tcp)
    return hosts


@pytest.fixture
def hook():
    with Receiver() as made:
        yield made


def port_of(hook):
    return hook.url.rpartition(":")[2]


def send(queue, url, **options):
    """Send one event here and now; return the attempt."""
    courier = Courier(queue, {"paid": Endpoint(url)}, allow_http=True, **options)
    delivery = courier.send("paid", {"order": 7})
    queue.drain()
    (attempt,) = courier.attempts(delivery.id)
    return attempt


@pytest.mark.parametrize(
    "answer",
    [
        [PUBLIC_ADDRESS, "10.0.0.1"],
        ["10.0.0.1", PUBLIC_ADDRESS],
        ["2606:4700::1111", PUBLIC_ADDRESS, "::1"],
        [PUBLIC_ADDRESS, "fe80::1%eth0"],
        [PUBLIC_ADDRESS, "::ffff:127.0.0.1"],
    ],
)
def test_a_name_is_refused_if_one_of_its_addresses_is(resolver, connected, answer):
    resolver.answers = [answer]

    with pytest.raises(AddressRefused):
        asyncio.run(guarded_backend(Guard()).connect_tcp("a.example", 443))

    assert connected == []


def test_the_connection_goes_to_the_address_that_was_judged(resolver, connected):
    resolver.answers = [[PUBLIC_ADDRESS, "1.1.1.1"], ["127.0.0.1"]]

    asyncio.run(guarded_backend(Guard()).connect_tcp("a.example", 443))

    assert connected == [(PUBLIC_ADDRESS, 443)]
    assert resolver.asked == ["a.example"]


def test_an_address_that_cannot_be_reached_lets_the_next_one_be_tried(
    resolver, monkeypatch
):
    tried = []

    async def connect_tcp(_backend, host, _port, **_options):
        tried.append(host)
        if len(tried) < 3:
            raise httpcore.ConnectError

    monkeypatch.setattr(httpcore.AnyIOBackend, "connect_tcp", connect_tcp)
    resolver.answers = [["2606:4700::1", PUBLIC_ADDRESS, "1.1.1.1", "9.9.9.9"]]

    asyncio.run(guarded_backend(Guard()).connect_tcp("a.example", 443))

    assert tried == ["2606:4700::1", PUBLIC_ADDRESS, "1.1.1.1"]
    assert resolver.asked == ["a.example"]


def test_each_connection_is_judged_anew(resolver, connected):
    resolver.answers = [[PUBLIC_ADDRESS], ["127.0.0.1"]]

    async def connect_twice():
        backend = guarded_backend(Guard())
        await backend.connect_tcp("a.example", 443)
        with pytest.raises(AddressRefused):
            await backend.connect_tcp("a.example", 443)

    asyncio.run(connect_twice())

    assert connected == [(PUBLIC_ADDRESS, 443)]


def test_a_host_is_not_looked_up_if_it_is_refused_as_it_is_written(resolver):
    with pytest.raises(AddressRefused):
        asyncio.run(Guard().resolve("127.1", 443))

    assert resolver.asked == []


def test_the_name_of_an_event_is_looked_up_once(queue, hook, resolver):
    resolver.answers = [["127.0.0.1"], ["10.0.0.1"]]
    url = f"http://hooks.example:{port_of(hook)}/paid"

    attempt = send(queue, url, allow=["127.0.0.1"])

    assert attempt.status == 200
    assert resolver.asked == ["hooks.example"]
    assert hook.received()[0].headers["host"] == f"hooks.example:{port_of(hook)}"


def test_nothing_is_sent_to_a_name_that_leads_to_this_machine(queue, hook, resolver):
    resolver.answers = [["127.0.0.1"]]

    attempt = send(queue, f"http://hooks.example:{port_of(hook)}/paid")

    assert attempt.reason == (
        "it is refused: the host 'hooks.example' leads to 127.0.0.1, which is loopback"
    )
    assert hook.count() == 0


def test_nothing_is_sent_to_a_name_of_this_machine(queue, hook):
    attempt = send(queue, f"http://localhost:{port_of(hook)}/paid")

    assert "it is refused: the host 'localhost' leads to" in attempt.reason
    assert hook.count() == 0


# -- proxies ---------------------------------------------------------------------------


@pytest.fixture(params=["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"])
def proxy(request, monkeypatch):
    """A socket that listens, and that the environment says to use as a proxy."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        for name in (request.param, request.param.lower()):
            monkeypatch.setenv(name, address)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        yield listening


@pytest.mark.parametrize(
    ("scheme", "status"),
    [("http", 200), ("https", None)],  # the receiver has no TLS, but it is asked for
)
def test_a_proxy_of_the_environment_is_not_used(queue, hook, proxy, scheme, status):
    url = f"{scheme}://127.0.0.1:{port_of(hook)}/paid"

    attempt = send(queue, url, allow=["127.0.0.1"])

    assert attempt.status == status
    with pytest.raises(BlockingIOError):  # nobody has connected
        proxy.accept()
