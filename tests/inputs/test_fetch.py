"""Where media may come from, and what is refused before anything is read."""

from __future__ import annotations

import base64
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mmcore.config import MediaPolicy
from mmcore.errors import (
    MediaError,
    MediaFetchError,
    MediaFileError,
    MediaFormatError,
    MediaLimitError,
    MediaPolicyError,
)
from mmcore.inputs.fetch import MediaFetcher
from mmcore.inputs.http import HttpClient, is_public, parse_target

BODY = b"the picture" * 100


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers["Host"]))  # type: ignore[attr-defined]
        ANSWERS[self.path.partition("?")[0]](self)

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", headers.pop("length", str(len(body))))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def trickle(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100000")
        self.end_headers()
        for _ in range(40):
            try:
                self.wfile.write(b"x")
            except OSError:
                return
            time.sleep(0.05)

    def endless(self) -> None:
        self.send_response(200)
        self.end_headers()
        for _ in range(64):
            try:
                self.wfile.write(b"x" * 65536)
            except OSError:
                return


ANSWERS: Mapping[str, Callable[[Handler], None]] = {
    "/ok": lambda h: h.answer(200, BODY),
    "/moved": lambda h: h.answer(302, Location="/ok"),
    "/away": lambda h: h.answer(302, Location="http://other.example/ok"),
    "/inside": lambda h: h.answer(302, Location="http://inside.example/ok"),
    "/metadata": lambda h: h.answer(302, Location="http://169.254.169.254/latest"),
    "/file": lambda h: h.answer(302, Location="file:///etc/hostname"),
    "/loop": lambda h: h.answer(302, Location="/loop"),
    "/missing": lambda h: h.answer(404, b"no"),
    "/large": lambda h: h.answer(200, b"x", length=str(10**9)),
    "/early": lambda h: h.answer(200, b"x", length="50"),
    "/gzip": lambda h: h.answer(200, b"x", Content_Encoding="gzip"),
    "/trickle": lambda h: h.trickle(),
    "/endless": lambda h: h.endless(),
}
NAMES = {
    "cdn.example": ["203.0.114.7"],
    "other.example": ["203.0.114.8"],
    "inside.example": ["10.0.0.7"],
    "mixed.example": ["203.0.114.7", "127.0.0.1"],
}


class Network:
    """A web of names, all of whose public addresses lead to one local server."""

    def __init__(self) -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.seen = []  # type: ignore[attr-defined]
        self.dialled: list[str] = []
        self.resolved: list[str] = []
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    @property
    def seen(self) -> list[tuple[str, str]]:
        return self.server.seen  # type: ignore[attr-defined,no-any-return]

    def resolve(self, host: str, port: int) -> list[str]:
        self.resolved.append(host)
        if host not in NAMES:
            raise socket.gaierror(-2, "unknown")
        return NAMES[host]

    def connect(self, address: str, port: int, timeout: float) -> socket.socket:
        self.dialled.append(address)
        return socket.create_connection(("127.0.0.1", self.server.server_port), timeout)

    def fetcher(self, **policy: Any) -> MediaFetcher:
        return MediaFetcher(MediaPolicy(**policy), http=HttpClient(self.resolve, self.connect))


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network()
    yield network
    network.server.shutdown()
    network.server.server_close()
    network.thread.join()


def test_a_public_url_is_fetched_from_the_address_that_was_checked(network: Network) -> None:
    assert network.fetcher().read("http://cdn.example:8080/ok?a=1") == BODY
    assert network.dialled == ["203.0.114.7"]
    assert network.resolved == ["cdn.example"]
    assert network.seen == [("/ok?a=1", "cdn.example:8080")]


@pytest.mark.parametrize("path", ["/moved", "/away"])
def test_redirects_are_followed_and_checked_anew(network: Network, path: str) -> None:
    assert network.fetcher().read(f"http://cdn.example{path}") == BODY
    assert len(network.resolved) == 2


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/inside", "not a public one"),
        ("/metadata", "not known|not a public one"),
        ("/file", "scheme other than"),
        ("/loop", "redirects more than 3 times"),
        ("/missing", "answered 404"),
        ("/large", "over max_bytes"),
        ("/endless", "over max_bytes"),
        ("/early", "fetched|early"),
        ("/gzip", "compressed"),
    ],
)
def test_answers_that_are_refused(network: Network, path: str, error: str) -> None:
    with pytest.raises(MediaError, match=error) as caught:
        network.fetcher(max_bytes=1 << 20).read(f"http://cdn.example{path}")
    assert set(network.dialled) <= {"203.0.114.7"}
    assert not any(address in str(caught.value) for address in ("203.0.", "10.0.", "127.0.", "169.254"))


def test_a_server_that_trickles_is_cut_off(network: Network) -> None:
    start = time.monotonic()
    with pytest.raises(MediaFetchError, match="fetch_timeout"):
        network.fetcher(fetch_timeout=0.3).read("http://cdn.example/trickle")
    assert time.monotonic() - start < 1.5


def test_a_server_that_does_not_speak_tls_is_a_fetch_error(network: Network) -> None:
    with pytest.raises(MediaFetchError, match="TLS handshake failed"):
        network.fetcher().read("https://cdn.example/ok")


@pytest.mark.parametrize(
    "url",
    [
        "http://inside.example/ok",
        "http://mixed.example/ok",
        "http://cdn.example@inside.example/ok",
        "http://user:word@cdn.example/ok",
        "http://cdn.example\\@inside.example/ok",
        "http://cdn.example /ok",
        "http://cdn.example/\r\nHost: inside.example",
        "http://:80/ok",
        "http:///ok",
        "http://cdn.example:99999/ok",
        "http://[::1/ok",
        "http://ｃdn.example/ok",
    ],
)
def test_urls_that_are_never_dialled(network: Network, url: str) -> None:
    with pytest.raises(MediaPolicyError):
        network.fetcher().read(url)
    assert network.dialled == []


def test_an_unknown_host_is_a_fetch_error(network: Network) -> None:
    with pytest.raises(MediaFetchError, match="host of the URL is not known"):
        network.fetcher().read("http://nowhere.example/x.png")


def test_http_may_be_forbidden_or_limited_to_hosts(network: Network) -> None:
    with pytest.raises(MediaPolicyError, match="allow_http"):
        network.fetcher(allow_http=False).read("http://cdn.example/ok")
    with pytest.raises(MediaPolicyError, match="allowed_hosts"):
        network.fetcher(allowed_hosts=("other.example",)).read("http://cdn.example/ok")
    with pytest.raises(MediaPolicyError, match="allowed_hosts"):
        network.fetcher(allowed_hosts=("cdn.example",)).read("http://cdn.example/away")
    assert network.fetcher(allowed_hosts=("cdn.Example",)).read("http://CDN.example/ok") == BODY


def test_a_refused_connection_is_a_fetch_error() -> None:
    def refuse(address: str, port: int, timeout: float) -> socket.socket:
        raise ConnectionRefusedError(111, f"refused by {address}")

    client = HttpClient(lambda host, port: ["203.0.114.7"], refuse)
    with pytest.raises(MediaFetchError, match="refused or lost"):
        MediaFetcher(MediaPolicy(), http=client).read("https://cdn.example/x.png")


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "224.0.0.1", "240.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1",
        "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::",
        "not an address",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "203.0.114.7", "2606:4700::1111", "64:ff9b::808:808"])
def test_addresses_that_are_public(address: str) -> None:
    assert is_public(address)


def test_check_and_dial_read_a_url_the_same_way() -> None:
    target = parse_target("https://Host.Example:8443/a/b?c=d#e", MediaPolicy())
    assert (target.scheme, target.host, target.port, target.path) == (
        "https",
        "host.example",
        8443,
        "/a/b?c=d",
    )


# ------------------------------------------------------------------ data: URLs


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png;base64," + base64.b64encode(BODY).decode(),
        "DATA:;base64," + base64.b64encode(BODY).decode(),
        "data:image/png," + "".join(f"%{b:02x}" for b in BODY),
    ],
)
def test_data_urls(url: str) -> None:
    assert MediaFetcher(MediaPolicy(trust_local=False, allow_http=False)).read(url) == BODY


@pytest.mark.parametrize(
    "url", ["data:image/png;base64,*", "data:image/png;base64", "data:image/png;base64,YQ"]
)
def test_broken_data_urls(url: str) -> None:
    with pytest.raises(MediaFormatError, match="data: URL"):
        MediaFetcher(MediaPolicy()).read(url)


def test_a_large_data_url_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(MediaLimitError, match="max_bytes 1000"):
        MediaFetcher(MediaPolicy(max_bytes=1000)).read("data:;base64," + "!" * 2000)


# ------------------------------------------------------------------ paths


def test_a_local_caller_names_any_file(tmp_path: Path) -> None:
    file = tmp_path / "a b.png"
    file.write_bytes(BODY)
    fetcher = MediaFetcher(MediaPolicy())
    assert fetcher.read(file) == fetcher.read(str(file)) == BODY
    assert fetcher.read(f"file://{tmp_path}/a%20b.png") == BODY
    assert fetcher.read(f"file://localhost{tmp_path}/a%20b.png") == BODY


def test_a_network_client_names_files_under_the_media_root_alone(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "secret.png"
    root.mkdir()
    outside.write_bytes(BODY)
    (root / "a.png").write_bytes(BODY)
    (root / "link.png").symlink_to(outside)
    fetcher = MediaFetcher(MediaPolicy(trust_local=False, media_root=root))
    assert fetcher.read("a.png") == fetcher.read(str(root / "a.png")) == BODY
    for path in ("../secret.png", str(outside), "link.png", f"file://{outside}", "a/../../secret.png", "\0"):
        with pytest.raises(MediaPolicyError, match="not one under the media root"):
            fetcher.read(path)
    with pytest.raises(MediaPolicyError, match="local files are not read here"):
        MediaFetcher(MediaPolicy(trust_local=False)).read("a.png")


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    fetcher = MediaFetcher(MediaPolicy())
    with pytest.raises(MediaFileError, match=r"no such file: .*/nothing\.png'$") as caught:
        fetcher.read(tmp_path / "nothing.png")
    assert not caught.value.retryable
    rooted = MediaFetcher(MediaPolicy(trust_local=False, media_root=tmp_path))
    with pytest.raises(MediaFileError, match=r"no such file: 'nothing\.png'$"):
        rooted.read("nothing.png")
    held = len(os.listdir("/proc/self/fd"))
    for path in (tmp_path, tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(MediaPolicyError, match="regular file"):
            fetcher.read(path)
    assert len(os.listdir("/proc/self/fd")) == held, "a refused path stays open"
    with pytest.raises(MediaFileError):
        fetcher.read("a" * 10_000)
    with pytest.raises(MediaPolicyError, match="no other host"):
        fetcher.read("file://server/share/x.png")


def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with open(tmp_path / "large", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(MediaLimitError, match="max_bytes"):
        MediaFetcher(MediaPolicy()).read(tmp_path / "large")


# ------------------------------------------------------------------ other schemes


def test_a_scheme_of_a_plugin() -> None:
    fetcher = MediaFetcher(
        MediaPolicy(max_bytes=2_000), hook=lambda url, policy: BODY if "ok" in url else None
    )
    assert fetcher.read("s3://bucket/ok") == BODY
    with pytest.raises(MediaPolicyError, match="'s3' are not fetched"):
        fetcher.read("s3://bucket/other")
    with pytest.raises(MediaLimitError, match="max_bytes 10"):
        MediaFetcher(MediaPolicy(max_bytes=10), hook=lambda url, policy: BODY).read("s3://x/y")
    with pytest.raises(MediaPolicyError, match="mmcore_fetch_media"):
        MediaFetcher(MediaPolicy()).read("ftp://host/x.png")
