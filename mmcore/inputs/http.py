"""A small HTTP GET that cannot be talked into reaching what is not public.

One parser for check and dial; a name is resolved once, every address of it must be global, and the
connection goes to the address that was checked, with the name for ``Host`` and TLS. Each redirect hop is
checked again. Proxies of the environment are not used: they would dial for us, unchecked.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import SplitResult, urljoin, urlsplit

from mmcore.config import MediaPolicy
from mmcore.errors import MediaFetchError, MediaLimitError, MediaPolicyError

_CHUNK = 1 << 16
_REDIRECTS = (301, 302, 303, 307, 308)
_PORTS = {"http": 80, "https": 443}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def resolve_name(host: str, port: int) -> list[str]:
    """Addresses of a name, by the system's resolver."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


def dial(address: str, port: int, timeout: float) -> socket.socket:
    return socket.create_connection((address, port), timeout)


@dataclass(frozen=True, slots=True)
class Target:
    """A checked URL."""

    scheme: str
    host: str
    port: int
    path: str


@dataclass(frozen=True, slots=True)
class HttpClient:
    """``resolve`` and ``connect`` are the only ways to the network."""

    resolve: Callable[[str, int], Sequence[str]] = resolve_name
    connect: Callable[[str, int, float], socket.socket] = dial

    def get(self, url: str, policy: MediaPolicy) -> bytes:
        """Raises `MediaPolicyError`, `MediaFetchError`, `MediaLimitError`."""
        deadline = time.monotonic() + policy.fetch_timeout
        for _ in range(policy.max_redirects + 1):
            target = parse_target(url, policy)
            found = self._request(target, self._checked_address(target), policy, deadline)
            if isinstance(found, bytes):
                return found
            url = urljoin(url, found)
        raise MediaFetchError(f"the URL redirects more than {policy.max_redirects} times (max_redirects)")

    def _checked_address(self, target: Target) -> str:
        try:
            addresses = self.resolve(target.host, target.port)
        except (OSError, UnicodeError):
            raise MediaFetchError("the host of the URL is not known") from None
        if not addresses or not all(is_public(address) for address in addresses):
            raise MediaPolicyError("the host of the URL is not a public one")
        return addresses[0]

    def _request(self, target: Target, address: str, policy: MediaPolicy, deadline: float) -> bytes | str:
        """The body, or where it has moved to."""
        try:
            with self._open(target, address, deadline) as connected, _cut_off(connected, deadline):
                if isinstance(connected, ssl.SSLSocket):
                    connected.do_handshake()
                return _exchange(connected, target, policy, deadline)
        except (TimeoutError, ssl.SSLError, OSError, http.client.HTTPException, ValueError) as error:
            reason = _reason(error)
            if isinstance(error, TimeoutError) or time.monotonic() >= deadline:
                reason = f"no answer within {policy.fetch_timeout:g} s (fetch_timeout)"
            raise MediaFetchError(f"the URL could not be fetched: {reason}") from None

    def _open(self, target: Target, address: str, deadline: float) -> socket.socket:
        """A connection to the address that was checked; TLS is for the URL's name."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        plain = self.connect(address, target.port, left)
        if target.scheme == "http":
            return plain
        context = ssl.create_default_context()
        return context.wrap_socket(plain, server_hostname=target.host, do_handshake_on_connect=False)


def _exchange(connected: socket.socket, target: Target, policy: MediaPolicy, deadline: float) -> bytes | str:
    connection = http.client.HTTPConnection(target.host, target.port)
    connection.auto_open = 0  # it must never dial by itself
    connection.default_port = _PORTS[target.scheme]
    connection.sock = connected
    connection.request("GET", target.path, headers={"Accept-Encoding": "identity"})
    with connection.getresponse() as response:
        if response.status in _REDIRECTS and response.getheader("Location"):
            return str(response.getheader("Location"))
        if response.status != 200:
            raise MediaFetchError(f"the server answered {response.status}, not 200")
        return _read_body(response, policy, deadline)


@contextmanager
def _cut_off(connected: socket.socket, deadline: float) -> Iterator[None]:
    """End the connection at the deadline: a socket's timeout counts from byte to byte, servers trickle."""
    timer = threading.Timer(max(0.0, deadline - time.monotonic()), _shut, (connected,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def parse_target(url: str, policy: MediaPolicy) -> Target:
    """The one reading of a URL, for check and dial. Raises `MediaPolicyError`."""
    if not policy.allow_http:
        raise MediaPolicyError("http(s) URLs are not fetched here (allow_http)")
    # What parsers disagree about is refused before any of them reads it.
    if any(c <= " " or c == "\x7f" or c == "\\" for c in url) or not url.isascii():
        raise MediaPolicyError("the URL holds blanks, backslashes or characters that must be percent-encoded")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise MediaPolicyError("the URL is malformed") from None
    _check_parts(parts, policy)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, str(parts.hostname), port or _PORTS[parts.scheme], path)


def is_public(address: str) -> bool:
    """Whether an address, or the IPv4 one inside it, is reachable from anywhere and no multicast."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return all(a.is_global and not a.is_multicast and not a.is_reserved for a in _embedded(parsed))


def _check_parts(parts: SplitResult, policy: MediaPolicy) -> None:
    if parts.scheme not in _PORTS:
        raise MediaPolicyError("the URL leads to a scheme other than http(s)")
    if not parts.hostname or "@" in parts.netloc:
        raise MediaPolicyError("the URL has no host, or a user name before it")
    allowed = [host.lower() for host in policy.allowed_hosts]
    if allowed and parts.hostname not in allowed:
        raise MediaPolicyError("the host of the URL is not among allowed_hosts of the media policy")


def _embedded(address: _Address) -> list[_Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address in _NAT64:
        return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address.sixtofour is not None:
        return [address, address.sixtofour]
    return [address, *(address.teredo or ())]


def _read_body(response: http.client.HTTPResponse, policy: MediaPolicy, deadline: float) -> bytes:
    if (response.getheader("Content-Encoding") or "identity").lower() != "identity":
        raise MediaFetchError("the server compressed the answer, which was not asked for")
    if (response.length or 0) > policy.max_bytes:
        raise MediaLimitError(f"{response.length} bytes are over max_bytes {policy.max_bytes}")
    body = bytearray()
    while chunk := response.read(_CHUNK):
        body += chunk
        if len(body) > policy.max_bytes:
            raise MediaLimitError(f"the answer is over max_bytes {policy.max_bytes} of the media policy")
    if time.monotonic() >= deadline:  # the end may be our own cut
        raise TimeoutError
    if response.length:
        raise http.client.IncompleteRead(b"")
    return bytes(body)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return "the TLS handshake failed"
    if isinstance(error, ConnectionError):
        return "the connection was refused or lost"
    if isinstance(error, http.client.IncompleteRead):
        return "the server ended the answer early"
    if isinstance(error, http.client.HTTPException):
        return "the server did not answer in HTTP"
    return "there is no connection"


def _shut(connected: socket.socket) -> None:
    with suppress(OSError):
        socket.socket.shutdown(connected, socket.SHUT_RDWR)  # below TLS, which another thread is using
