"""How this process reaches other hosts: through which forward proxy, trusting which certificates; and the
opening of one connection, each failure of which names its cause.

The variables are those of curl and Python's clients: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, in
lower or upper case (lower wins); SSL_CERT_FILE and SSL_CERT_DIR (read by OpenSSL), REQUESTS_CA_BUNDLE,
CURL_CA_BUNDLE.
Settings come before variables.
"""

import asyncio
import base64
import encodings.idna  # noqa: F401  socket loads it for the first host name that is resolved
import errno
import ipaddress
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import unquote, urlsplit

from aiohappyeyeballs import start_connection

from proxy.domain.base_url import BaseUrl
from proxy.domain.errors import ConfigError, UpstreamTimeout, UpstreamUnreachable
from proxy.domain.limits import enable_keep_alive
from proxy.upstream.connection import UpstreamConnection

DIRECT = "none"  # the setting's value that has the variables ignored
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_OF_OPENSSL = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_PORTS = {"http": 8080, "https": 443, "socks5": 1080, "socks5h": 1080}


@dataclass(frozen=True, slots=True)
class ProxyServer:
    """One forward proxy. `source`: the setting or variable that names it."""

    scheme: str
    host: str
    port: int
    source: str
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @classmethod
    def of(cls, url: str, source: str) -> "ProxyServer":
        """Return the proxy at the URL; without a scheme it is an HTTP proxy. Raises ConfigError."""
        try:
            parts = urlsplit(url.strip() if "://" in url else f"http://{url.strip()}")
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"{source} is not a valid URL") from error
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ConfigError(f"{source} must be http://host:port (or https://, socks5://, socks5h://)")
        return cls(
            parts.scheme,
            parts.hostname,
            port or _PORTS[parts.scheme],
            source,
            unquote(parts.username or ""),
            unquote(parts.password or ""),
        )

    @property
    def shown(self) -> str:
        """The proxy without its credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def authorization(self) -> bytes:
        """The line of a head that carries the credentials; b"" without any."""
        if not self.user and not self.password:
            return b""
        return b"proxy-authorization: Basic " + base64.b64encode(f"{self.user}:{self.password}".encode())


@dataclass(frozen=True)
class Network:
    """The proxies by scheme, the exceptions, and the authorities. Without arguments: direct, the system's."""

    # An error is raised when the proxy would be used: a local upstream starts whatever ALL_PROXY says.
    proxies: Mapping[str, ProxyServer | ConfigError] = field(default_factory=dict)
    exceptions: tuple[str, ...] = ()
    # (source, file or directory), each in addition to the system's
    ca_files: tuple[tuple[str, str], ...] = ()
    system: tuple[tuple[str, str], ...] = ()  # (variable, path): where OpenSSL looks for the system's

    @classmethod
    def of(
        cls, environ: Mapping[str, str], *, proxy: str | None = None, ca_file: str | None = None
    ) -> "Network":
        """Return the network of an environment and of two settings. Raises ConfigError."""
        files = [("upstream.ca_file", ca_file)] if ca_file else []
        files += [(name, environ[name]) for name in _BUNDLES if environ.get(name)]
        _, exceptions = _variable(environ, "NO_PROXY")
        return cls(
            _proxies(environ, proxy),
            tuple(part.strip().lower() for part in exceptions.replace(" ", ",").split(",") if part.strip()),
            tuple(files),
            tuple((name, environ[name]) for name in _OF_OPENSSL if environ.get(name)),
        )

    def proxy_for(self, endpoint: BaseUrl) -> ProxyServer | None:
        """Return the proxy through which the endpoint is reached, None for none. Raises ConfigError."""
        found = self.proxies.get(endpoint.scheme)
        if found is None or endpoint.socket or _is_excepted(endpoint, self.exceptions):
            return None
        if isinstance(found, ConfigError):
            raise found
        return found

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """How certificates are checked. Raises ConfigError for a file that cannot be read as certificates."""
        for name, path in self.system:
            if name == "SSL_CERT_FILE" and not os.path.isfile(path):
                raise ConfigError(f"SSL_CERT_FILE names no file: {path}")
        context = ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        for source, path in self.ca_files:
            try:
                if os.path.isdir(path):
                    context.load_verify_locations(capath=path)
                else:
                    context.load_verify_locations(cafile=path)
            except ssl.SSLError as error:
                raise ConfigError(f"{source}: {path} holds no certificates (PEM)") from error
            except OSError as error:
                raise ConfigError(f"{source}: {path} cannot be read: {error.strerror}") from error
        return context

    def described(self, endpoint: BaseUrl) -> str:
        """Return what is in force for the endpoint, in words for an operator; "" for nothing."""
        said = []
        if (server := self.proxy_for(endpoint)) is not None:
            local = " (a local address: NO_PROXY can except it)" if _is_local(endpoint.host) else ""
            said.append(f"through the proxy {server.shown} ({server.source}){local}")
        elif self.proxies.get(endpoint.scheme) is not None and not endpoint.socket:
            said.append("direct (NO_PROXY)")
        if endpoint.scheme == "https":
            sources = [f"{source} {path}" for source, path in (*self.ca_files, *self.system)]
            said += [f"authorities: {', '.join(sources)}"] if sources else []
        return ", ".join(said)


def _proxies(environ: Mapping[str, str], setting: str | None) -> dict[str, ProxyServer | ConfigError]:
    if setting is not None:
        if setting.strip().lower() in ("", DIRECT):
            return {}
        server = ProxyServer.of(setting, "upstream.proxy")
        return {"http": server, "https": server}
    found = dict[str, ProxyServer | ConfigError]()
    for scheme in ("http", "https"):
        name, url = _variable(environ, f"{scheme.upper()}_PROXY")
        if scheme == "http" and name == "HTTP_PROXY" and "REQUEST_METHOD" in environ:
            url = ""  # CGI: it is a header of some client (httpoxy)
        if not url:
            name, url = _variable(environ, "ALL_PROXY")
        if url:
            try:
                found[scheme] = ProxyServer.of(url, name)
            except ConfigError as error:
                found[scheme] = error
    return found


def _variable(environ: Mapping[str, str], name: str) -> tuple[str, str]:
    """Return the name that is set, and its value; lower case wins."""
    for one in (name.lower(), name):
        if value := environ.get(one, "").strip():
            return one, value
    return name, ""


def _is_excepted(endpoint: BaseUrl, exceptions: tuple[str, ...]) -> bool:
    """True if NO_PROXY names the host: `*`, a name and what is under it (`.corp`, `*.corp`, `corp`), an
    address, a network (`10.0.0.0/8`), each with or without a port."""
    address = _address(endpoint.host)
    for exception in exceptions:
        if exception == "*":
            return True
        name, port = _split_port(exception.partition("://")[2] or exception)
        if port is not None and port != endpoint.port:
            continue
        if address is not None and _holds(name, address):
            return True
        suffix = name.removeprefix("*").lstrip(".").rstrip(".")
        host = endpoint.host.lower().rstrip(".")
        if suffix and (host == suffix or (address is None and host.endswith("." + suffix))):
            return True
    return False


def _split_port(text: str) -> tuple[str, int | None]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, int(rest[1:]) if rest[1:].isdecimal() else None
    host, colon, port = text.rpartition(":")
    if colon and ":" not in host and port.isdecimal():
        return host, int(port)
    return text, None


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(host: str) -> Address | None:
    with suppress(ValueError):
        return ipaddress.ip_address(host)
    return None


def _holds(network: str, address: Address) -> bool:
    with suppress(ValueError):
        return address in ipaddress.ip_network(network, strict=False)
    return False


def _is_local(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


# ---------------------------------------------------------------- opening a connection
_EYEBALLS_S = 0.25  # RFC 8305: before the next address is tried as well
_CONNECT_ANSWER_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True)
class UpstreamRoute:
    """How one endpoint is reached."""

    endpoint: BaseUrl
    proxy: ProxyServer | None
    tls: ssl.SSLContext | None
    proxy_tls: ssl.SSLContext | None = None
    timeout_s: float = 5.0

    @property
    def tunnel(self) -> bool:
        """True if the forward proxy only passes bytes on: for https, and every SOCKS proxy."""
        return self.proxy is not None and (self.tls is not None or self.proxy.scheme.startswith("socks"))


async def open_connection(route: UpstreamRoute, *, tunnel: bool = False) -> UpstreamConnection:
    """Return a new connection, ready for a request. `tunnel`: also through a proxy that could read it, for an
    upgrade. Raises UpstreamUnreachable or UpstreamTimeout, which name the cause."""
    return await _Opening(route).run(tunnel=tunnel)


def refused_by_proxy(route: UpstreamRoute, status: int) -> UpstreamUnreachable:
    """Return the error for a proxy that refuses to pass a request on."""
    return _Opening(route).refused_by_proxy(status)


class _Opening:
    """Resolves, connects, passes the proxy, shakes hands. `phase` is for the error that says what failed."""

    def __init__(self, route: UpstreamRoute) -> None:
        self.route, self.phase = route, "dns"

    async def run(self, *, tunnel: bool) -> UpstreamConnection:
        route, proxy = self.route, self.route.proxy
        loop = asyncio.get_running_loop()
        async with self._explained(), asyncio.timeout(route.timeout_s):
            sock = await self._socket()
            connection = UpstreamConnection(loop, sock)
            try:
                if proxy is not None and (tunnel or route.tunnel):
                    await self._through(proxy, sock, connection)
                else:
                    is_tls_proxy = proxy is not None and proxy.scheme == "https"
                    self.phase = "proxy_tls" if is_tls_proxy else "tls"
                    tls = route.proxy_tls if is_tls_proxy else route.tls
                    host = proxy.host if is_tls_proxy and proxy is not None else route.endpoint.host
                    await loop.create_connection(
                        lambda: connection, sock=sock, ssl=tls, server_hostname=host if tls else None
                    )
            except BaseException:
                connection.abort()
                sock.close()
                raise
        return connection

    async def _socket(self) -> socket.socket:
        """Return a connected socket to the endpoint, or to its proxy."""
        loop = asyncio.get_running_loop()
        endpoint, proxy = self.route.endpoint, self.route.proxy
        if endpoint.socket is not None:
            self.phase = "connect"
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.setblocking(False)
            try:
                await loop.sock_connect(sock, endpoint.socket)
            except BaseException:
                sock.close()
                raise
            return sock
        host, port = (proxy.host, proxy.port) if proxy else (endpoint.host, endpoint.port)
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "no address")
        self.phase = "connect"
        delay_s = _EYEBALLS_S if len(found) > 1 else None
        sock = await start_connection(found, happy_eyeballs_delay=delay_s, interleave=1, loop=loop)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        enable_keep_alive(sock)
        return sock

    # ------------------------------------------------------------ through a proxy
    async def _through(self, proxy: ProxyServer, sock: socket.socket, connection: UpstreamConnection) -> None:
        """Ask the proxy to connect to the endpoint, and hand the transport over to the connection."""
        loop, tls, host = asyncio.get_running_loop(), self.route.tls, self.route.endpoint.host
        reader = asyncio.StreamReader(limit=_CONNECT_ANSWER_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        proxy_tls = self.route.proxy_tls if proxy.scheme == "https" else None
        self.phase = "proxy_tls"
        transport, _ = await loop.create_connection(
            lambda: protocol, sock=sock, ssl=proxy_tls, server_hostname=proxy.host if proxy_tls else None
        )
        self.phase = "proxy"
        try:
            if proxy.scheme.startswith("socks"):
                await _socks(self.route.endpoint, proxy, reader, transport)
            else:
                await self._http_connect(proxy, reader, transport)
        except asyncio.IncompleteReadError as error:
            transport.abort()
            raise ConnectionResetError(errno.ECONNRESET, "closed by the proxy") from error
        except (asyncio.LimitOverrunError, ValueError, LookupError) as error:
            transport.abort()
            text = f"Could not connect to {self._target}: what answers there is no such proxy."
            raise UpstreamUnreachable(text, cause="proxy_invalid") from error
        except BaseException:
            transport.abort()
            raise
        self.phase = "tls"
        if tls is None:
            transport.set_protocol(connection)
            connection.connection_made(transport)
            return
        secured = await loop.start_tls(transport, connection, tls, server_hostname=host)
        assert secured is not None
        connection.connection_made(secured)

    async def _http_connect(
        self, proxy: ProxyServer, reader: asyncio.StreamReader, transport: asyncio.Transport
    ) -> None:
        address = self.route.endpoint.host_and_port.encode("ascii")
        lines = [b"CONNECT %s HTTP/1.1" % address, b"host: " + address]
        if proxy.authorization:
            lines.append(proxy.authorization)
        transport.write(b"\r\n".join((*lines, b"", b"")))
        answer = await reader.readuntil(b"\r\n\r\n")
        version, status = answer.split(b" ", 2)[:2]
        if not version.startswith(b"HTTP/1."):
            raise ValueError("no HTTP")
        if not 200 <= int(status[:3]) < 300:
            raise self.refused_by_proxy(int(status[:3]))

    # ------------------------------------------------------------ errors
    @asynccontextmanager
    async def _explained(self) -> AsyncIterator[None]:
        """Map what the block raises."""
        try:
            yield
        except TimeoutError as error:
            if error.errno is not None:  # the kernel's own ETIMEDOUT
                raise self._unreachable("timed_out", "the connection timed out") from error
            doing = {"dns": "resolving its name", "tls": "the TLS handshake"}.get(self.phase, "connecting")
            raise UpstreamTimeout(
                f"Could not connect to {self._target} within {self.route.timeout_s:g} s"
                f" (upstream.connect_timeout_seconds): {doing} took too long.",
                cause=f"{self.phase}_timed_out",
            ) from error
        except socket.gaierror as error:
            text = f"its name cannot be resolved (DNS: {error.strerror})"
            raise self._unreachable("dns", text) from error
        except ssl.SSLCertVerificationError as error:
            raise self._unreachable(*_certificate_cause(error)) from error
        except ssl.SSLError as error:
            reason = error.reason or "no reason given"
            no_tls = reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
            text = f"TLS failed ({'what answers has no TLS: http:// instead?' if no_tls else reason})"
            raise self._unreachable("tls", text) from error
        except OSError as error:
            raise self._unreachable(*_system_cause(error)) from error

    @property
    def _target(self) -> str:
        upstream, proxy = f"the upstream {self.route.endpoint.origin}", self.route.proxy
        return upstream if proxy is None else f"{upstream} through the proxy {proxy.shown} ({proxy.source})"

    def _unreachable(self, cause: str, text: str) -> UpstreamUnreachable:
        if self.route.proxy is not None and self.phase != "tls":
            cause, text = f"proxy_{cause}", f"the proxy cannot be used: {text}"
        return UpstreamUnreachable(f"Could not connect to {self._target}: {text}.", cause=cause)

    def refused_by_proxy(self, status: int) -> UpstreamUnreachable:
        """Return the error for a status of the proxy's own."""
        cause, text = "proxy_refused", f"the proxy answered {status} to CONNECT"
        if status == 407:
            cause = "proxy_credentials"
            text = "the proxy wants credentials, or does not take those it got (407)"
        return UpstreamUnreachable(f"Could not connect to {self._target}: {text}.", cause=cause)


# ---------------------------------------------------------------- SOCKS 5 (RFC 1928, 1929)
_SOCKS_ERRORS = {2: errno.EACCES, 3: errno.ENETUNREACH, 4: errno.EHOSTUNREACH, 5: errno.ECONNREFUSED}


async def _socks(
    endpoint: BaseUrl, proxy: ProxyServer, reader: asyncio.StreamReader, transport: asyncio.Transport
) -> None:
    """Ask the proxy to connect; it resolves the name."""
    user, password = proxy.user.encode(), proxy.password.encode()
    transport.write(b"\x05\x02\x00\x02" if user else b"\x05\x01\x00")
    version, method = await reader.readexactly(2)
    if version != 5:
        raise ValueError("no SOCKS 5")
    if method == 2:
        transport.write(bytes((1, len(user))) + user + bytes((len(password),)) + password)
        if (await reader.readexactly(2))[1] != 0:
            raise PermissionError(errno.EACCES, "credentials")
    elif method != 0:
        raise PermissionError(errno.EACCES, "credentials")
    transport.write(b"\x05\x01\x00" + _socks_address(endpoint.host) + struct.pack(">H", endpoint.port))
    head = await reader.readexactly(4)
    if head[1] != 0:
        raise OSError(_SOCKS_ERRORS.get(head[1], errno.ECONNREFUSED), "the proxy refused")
    length = {1: 4, 4: 16}.get(head[3]) or (await reader.readexactly(1))[0]
    await reader.readexactly(length + 2)


def _socks_address(host: str) -> bytes:
    address = _address(host)
    if address is None:
        name = host.encode("ascii")
        return bytes((3, len(name))) + name
    return (b"\x01" if address.version == 4 else b"\x04") + address.packed


# ---------------------------------------------------------------- causes of failure
_CERTIFICATE_CAUSES = {
    **dict.fromkeys(
        (2, 18, 19, 20, 21, 27),  # X509_V_ERR_…: no issuer, self-signed, not trusted
        (
            "certificate_unknown_ca",
            "its certificate is of an authority that is not trusted; set upstream.ca_file (or SSL_CERT_FILE)"
            " to its authority's certificate",
        ),
    ),
    9: ("certificate_expired", "its certificate is not valid yet"),
    10: ("certificate_expired", "its certificate has expired"),
    **dict.fromkeys((62, 64), ("certificate_host_name", "its certificate is for another host name")),
}
_SYSTEM_CAUSES = {
    errno.ECONNREFUSED: ("refused", "the connection was refused: nothing listens there"),
    errno.ENOENT: ("no_socket", "there is no such socket"),
    errno.EACCES: ("not_allowed", "access is denied"),
    errno.ECONNRESET: ("reset", "the connection was closed at once"),
    errno.ENETUNREACH: ("no_route", "there is no route to it"),
    errno.EHOSTUNREACH: ("no_route", "there is no route to it"),
}


def _certificate_cause(error: ssl.SSLCertVerificationError) -> tuple[str, str]:
    other = ("certificate", f"its certificate is not valid ({error.verify_message})")
    return _CERTIFICATE_CAUSES.get(error.verify_code, other)


def _system_cause(error: OSError) -> tuple[str, str]:
    name = errno.errorcode.get(error.errno or 0, type(error).__name__)
    return _SYSTEM_CAUSES.get(error.errno or 0, ("unreachable", f"the connection failed ({name})"))
