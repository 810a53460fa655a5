"""
Which addresses an event may be sent to.

The URL of an endpoint comes from a customer, and may point to a machine of our own
network (server-side request forgery). So the name of its host is looked up once, every
address is judged, and the connection goes to an address that was judged, not to the
name, which may lead elsewhere by then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from cmdx.exceptions import DefinitionError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

REFUSED: dict[str, str] = {
    "0.0.0.0/8": "this host",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared by customers of a provider",
    "127.0.0.0/8": "loopback",
    "169.254.0.0/16": "link-local",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "reserved",
    "192.0.2.0/24": "for documentation",
    "192.31.196.0/24": "reserved",
    "192.52.193.0/24": "reserved",
    "192.88.99.0/24": "a relay of 6to4",
    "192.168.0.0/16": "private",
    "192.175.48.0/24": "reserved",
    "198.18.0.0/15": "for benchmarks",
    "198.51.100.0/24": "for documentation",
    "203.0.113.0/24": "for documentation",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
    "::/128": "this host",
    "::1/128": "loopback",
    "::/96": "an IPv4 address in an old form",
    "100::/64": "discarded",
    "2001::/23": "reserved",
    "2001:db8::/32": "for documentation",
    "2620:4f:8000::/48": "reserved",
    "3fff::/20": "for documentation",
    "5f00::/16": "for segment routing",
    "fc00::/7": "private",
    "fe80::/10": "link-local",
    "fec0::/10": "private",
    "ff00::/8": "multicast",
}
"""What IANA says is not for everybody, and what it is for."""

NETWORKS: tuple[tuple[Network, str], ...] = tuple(
    (ip_network(text), purpose) for text, purpose in REFUSED.items()
)

PUBLIC = IPv6Network("2000::/3")
"""Where all IPv6 addresses are that are for everybody; the rest is reserved."""

FORMS: dict[IPv6Network, int] = {
    IPv6Network("::ffff:0:0/96"): 96,  # mapped
    IPv6Network("::ffff:0:0:0/96"): 96,  # translated without state
    IPv6Network("64:ff9b::/96"): 96,  # NAT64
    IPv6Network("64:ff9b:1::/48"): 96,  # NAT64 with a prefix of one's own
    IPv6Network("2002::/16"): 16,  # 6to4
}
"""IPv6 addresses that lead to an IPv4 address, and the bit where that begins."""

NUMERIC = re.compile(r"(0[xX][0-9a-fA-F]*|[0-9]+)(\.(0[xX][0-9a-fA-F]*|[0-9]+))*\.?")
"""A host that systems take for an IPv4 address, however it is written."""

NAME = re.compile(r"([a-z0-9_-]{1,63}\.)*(?![0-9]+$)[a-z0-9_-]{1,63}")
"""The name of a host, as ``plain_host`` returns it; its last part is no number."""


def refusal_of(address: Address) -> str | None:
    """Return why nothing is sent to an address; None if it is for everybody."""
    for network, purpose in NETWORKS:
        if address in network:
            return purpose
    begin = inner_begin(address)
    if begin is not None:
        return f"another form of {inner_address(address, begin)}"
    is_public = isinstance(address, IPv4Address) or address in PUBLIC
    return None if is_public else "reserved"


def inner_begin(address: Address) -> int | None:
    """Return the bit where the IPv4 address begins that this one leads to, if any."""
    return next((bit for form, bit in FORMS.items() if address in form), None)


def inner_address(address: Address, begin: int) -> IPv4Address:
    """Return the IPv4 address that begins at a bit of an IPv6 address."""
    return IPv4Address(int(address) >> (96 - begin) & 0xFFFF_FFFF)


class AddressRefused(Exception):  # noqa: N818 -- it is no error of ours
    """Nothing is sent to this address."""

    cure = "Give the courier allow=, if need be."


class HostRefused(AddressRefused):
    """Nothing is sent to a host that is written like this; it cannot be allowed."""

    cure = "Correct the URL."


@attrs.frozen
class Guard:
    """
    What a courier may send to beside addresses that are for everybody.

    Args:
        networks: The networks that are allowed.
        hosts: The names that are allowed, wherever they lead.
    """

    networks: tuple[Network, ...] = ()
    hosts: frozenset[str] = frozenset()

    @classmethod
    def of(cls, allow: Iterable[str]) -> Guard:
        """Return the guard for what a caller allows: addresses, networks and names."""
        networks: list[Network] = []
        hosts: list[str] = []
        for text in checked_allow(allow):
            try:
                networks.append(network_of(text))
            except ValueError:
                hosts.append(checked_name(text))
        return cls(tuple(networks), frozenset(hosts))

    def check_host(self, host: str) -> None:
        """Refuse a host by the way it is written, before it is looked up."""
        name = plain_host(host)
        if name in self.hosts:
            return
        try:
            address = ip_address(host.strip("[]"))
        except ValueError:
            check_spelling(host)
            return
        if "%" in host:
            message = f"the host {host!r} is an address with a zone"
            raise HostRefused(message)
        self.check_address(name, address)

    def check_address(self, host: str, address: Address) -> None:
        """Refuse an address that *host* leads to."""
        if plain_host(host) in self.hosts:
            return
        judged = self.left_to_judge(address)
        purpose = None if judged is None else refusal_of(judged)
        if purpose is not None:
            message = f"the host {host!r} leads to {judged}, which is {purpose}"
            raise AddressRefused(message)

    def left_to_judge(self, address: Address) -> Address | None:
        """
        Return which address is to be judged; None if it is allowed.

        A form such as NAT64 may be allowed, but not all that it leads to: that is then
        to be judged.
        """
        networks = [network for network in self.networks if address in network]
        if not networks:
            return address
        begin = inner_begin(address)
        if begin is None or any(network.prefixlen > begin for network in networks):
            return None
        return self.left_to_judge(inner_address(address, begin))

    async def resolve(self, host: str, port: int) -> list[str]:
        """Look up a host once, judge all its addresses, and return them."""
        self.check_host(host)
        addresses = [address_of(answer[4][0]) for answer in await look_up(host, port)]
        for address in addresses:
            self.check_address(host, address)
        return list(dict.fromkeys(map(str, addresses)))


_lookups: dict[tuple[asyncio.AbstractEventLoop, str, int], asyncio.Task[Any]] = {}
"""Those under way. A name that nobody answers for takes up one thread, and not one for
each event."""


async def look_up(host: str, port: int) -> Any:
    """Look up a host, together with others who do so at the moment."""
    import asyncio
    import socket

    loop = asyncio.get_running_loop()
    place = loop, host, port
    if place not in _lookups:
        answers = loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        task = _lookups[place] = loop.create_task(as_coroutine(answers))
        task.add_done_callback(lambda _: _lookups.pop(place))
        task.add_done_callback(note_error)
    return await asyncio.shield(_lookups[place])


async def as_coroutine(answers: Awaitable[Any]) -> Any:
    """Await something that may be no coroutine."""
    return await answers


def note_error(task: asyncio.Task[Any]) -> None:
    """Keep asyncio from reporting an error that nobody waits for any more."""
    if not task.cancelled():
        task.exception()


def checked_allow(allow: Any) -> list[str]:
    """Return what a caller allows, as texts."""
    # A network is one entry, though one can iterate over its addresses.
    is_one = isinstance(allow, str | IPv4Network | IPv6Network)
    is_several = isinstance(allow, Iterable) and not is_one
    given: list[Any] = list(allow) if is_several else [allow]
    if not all(isinstance(text, str) for text in given):
        message = (
            "Courier: allow has addresses, networks or names as texts, such as "
            f'"10.0.0.0/8", got {allow!r}.'
        )
        raise DefinitionError(message)
    return given


def network_of(text: str) -> Network:
    """Return a network that is allowed; an address is one too."""
    if "%" in text:
        raise ValueError  # a zone would be lost
    return ip_network(text.strip("[]"), strict=False)


def checked_name(text: str) -> str:
    """Return a name that is allowed; refuse what could never be that of a host."""
    name = plain_host(text)
    if NUMERIC.fullmatch(name) or not NAME.fullmatch(name):
        message = (
            f"Courier: allow has {text!r}, which is no address, network or name. "
            'Write "10.0.0.7", "10.0.0.0/8" or "hooks.internal", without a port.'
        )
        raise DefinitionError(message)
    return name


def check_spelling(host: str) -> None:
    """Refuse a host that is no address, and that systems may yet take for one."""
    name = plain_host(host)
    if NUMERIC.fullmatch(name):
        message = f"the host {host!r} is an address in an unusual form"
        raise HostRefused(message)
    if not NAME.fullmatch(name):
        message = f"the host {host!r} is no name"
        raise HostRefused(message)


def plain_host(host: str) -> str:
    """Return a name as it is compared: in lower case, without a dot at its end."""
    return host.lower().removesuffix(".")


def address_of(text: Any) -> Address:
    """Return the address in an answer of the resolver, without its zone."""
    return ip_address(str(text).partition("%")[0])
