"""How this process reaches the outside: through which HTTP proxy, and which certificates it believes.

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
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import unquote, urlsplit

from aiohappyeyeballs import start_connection

from proxy.domain.endpoint import Endpoint
from proxy.domain.errors import ConfigError, UpstreamTimeout, UpstreamUnreachable
from proxy.system import ask_when_silent
from proxy.upstream.connection import Connection

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
            raise ConfigError(f"{source} is no URL that can be read") from error
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

    # An error is raised where the proxy would be used: a local upstream starts whatever ALL_PROXY says.
    proxies: Mapping[str, ProxyServer | ConfigError] = field(default_factory=dict)
    exceptions: tuple[str, ...] = ()
    ca_files: tuple[
        tuple[str, str], ...
    ] = ()  # (source, file or directory), each in addition to the system's
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

    def proxy_for(self, endpoint: Endpoint) -> ProxyServer | None:
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

    def described(self, endpoint: Endpoint) -> str:
        """Return what is in force for the endpoint, in words for an operator; "" where that is nothing."""
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


def _is_excepted(endpoint: Endpoint, exceptions: tuple[str, ...]) -> bool:
    """True if NO_PROXY names the host: `*`, a name and what is under it (`.corp`, `*.corp`, `corp`), an
    address, a network (`10.0.0.0/8`), each with a port where it has one."""
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
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _holds(network: str, address: Address) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _is_local(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


_EYEBALLS_S = 0.25  # RFC 8305: before the next address is tried as well
_CONNECT_ANSWER_BYTES = 32 * 1024
_UNKNOWN_CA = frozenset({2, 18, 19, 20, 21, 27})  # X509_V_ERR_…: no issuer, self-signed, not trusted
_NOT_NOW = {9: "is not valid yet", 10: "has expired"}
_OTHER_NAME = frozenset({62, 64})


@dataclass(frozen=True, slots=True)
class UpstreamRoute:
    """The way to one endpoint. `tunnel`: a forward proxy only passes bytes on, for https and upgrades."""

    endpoint: Endpoint
    proxy: ProxyServer | None
    tls: ssl.SSLContext | None
    proxy_tls: ssl.SSLContext | None = None
    timeout_s: float = 5.0

    @property
    def tunnel(self) -> bool:
        return self.proxy is not None and (self.tls is not None or self.proxy.scheme.startswith("socks"))


async def open_connection(way: UpstreamRoute, *, tunnel: bool = False) -> Connection:
    """Return a new connection, ready for a request. Raises UpstreamUnreachable or UpstreamTimeout, which name
    the cause."""
    loop = asyncio.get_running_loop()
    phase = _Phase(way)
    async with phase.explained(), asyncio.timeout(way.timeout_s):
        sock = await _socket(way, phase)
        link = Connection(loop, sock)
        try:
            if way.proxy is not None and (tunnel or way.tunnel):
                await _through(way, way.proxy, sock, phase, link)
            elif way.proxy is not None and way.proxy.scheme == "https":
                phase.name = "proxy_tls"
                await loop.create_connection(
                    lambda: link, sock=sock, ssl=way.proxy_tls, server_hostname=way.proxy.host
                )
            else:
                phase.name = "tls"
                name = way.endpoint.host if way.tls else None
                await loop.create_connection(lambda: link, sock=sock, ssl=way.tls, server_hostname=name)
        except BaseException:
            link.abort()
            sock.close()
            raise
    return link


def refused_by_proxy(way: UpstreamRoute, status: int) -> UpstreamUnreachable:
    """Return the error for a proxy that refuses to pass a request on."""
    return _Phase(way).refused_by_proxy(status)


class _Phase:
    """What is being done, for the error that says what failed."""

    def __init__(self, way: UpstreamRoute) -> None:
        self.way, self.name = way, "dns"

    @asynccontextmanager
    async def explained(self) -> AsyncIterator[None]:
        """Map what the block raises."""
        try:
            yield
        except TimeoutError as error:
            if error.errno is not None:  # the kernel's own ETIMEDOUT
                raise self._unreachable("timed_out", "the connection timed out") from error
            setting = "upstream.connect_timeout_seconds"
            doing = {"dns": "resolving its name", "tls": "the TLS handshake"}.get(self.name, "connecting")
            raise UpstreamTimeout(
                f"Could not connect to {self._whom} within {self.way.timeout_s:g} s ({setting}): "
                f"{doing} took too long.",
                cause=f"{self.name}_timed_out",
            ) from error
        except socket.gaierror as error:
            text = f"its name cannot be resolved (DNS: {error.strerror})"
            raise self._unreachable("dns", text) from error
        except ssl.SSLCertVerificationError as error:
            raise self._unreachable(*_certificate(error)) from error
        except ssl.SSLError as error:
            reason = error.reason or "no reason given"
            no_tls = reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
            text = f"TLS failed ({'what answers has no TLS: http:// instead?' if no_tls else reason})"
            raise self._unreachable("tls", text) from error
        except OSError as error:
            raise self._unreachable(*_of_system(error)) from error

    @property
    def _whom(self) -> str:
        upstream = f"the upstream {self.way.endpoint.origin}"
        if self.way.proxy is None:
            return upstream
        return f"{upstream} through the proxy {self.way.proxy.shown} ({self.way.proxy.source})"

    def _unreachable(self, cause: str, text: str) -> UpstreamUnreachable:
        proxy = self.way.proxy
        if proxy is not None and self.name != "tls":
            cause = "proxy_" + cause
            text = f"the proxy cannot be used: {text}"
        return UpstreamUnreachable(f"Could not connect to {self._whom}: {text}.", cause=cause)

    def refused_by_proxy(self, status: int) -> UpstreamUnreachable:
        """Return the error for a status of the proxy's own."""
        if status == 407:
            cause, text = (
                "proxy_credentials",
                "the proxy wants credentials, or does not take those it got (407)",
            )
        else:
            cause, text = "proxy_refused", f"the proxy answered {status} to CONNECT"
        return UpstreamUnreachable(f"Could not connect to {self._whom}: {text}.", cause=cause)

    def nonsense_from_proxy(self) -> UpstreamUnreachable:
        """Return the error for a proxy that is none."""
        text = "what answers there is no such proxy"
        return UpstreamUnreachable(f"Could not connect to {self._whom}: {text}.", cause="proxy_invalid")


async def _socket(way: UpstreamRoute, phase: _Phase) -> socket.socket:
    """Return a connected socket to the endpoint, or to its proxy."""
    loop = asyncio.get_running_loop()
    if way.endpoint.socket is not None:
        phase.name = "connect"
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, way.endpoint.socket)
        except BaseException:
            sock.close()
            raise
        return sock
    host, port = (way.proxy.host, way.proxy.port) if way.proxy else (way.endpoint.host, way.endpoint.port)
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if not found:
        raise socket.gaierror(socket.EAI_NONAME, "no address")
    phase.name = "connect"
    sock = await start_connection(
        found, happy_eyeballs_delay=_EYEBALLS_S if len(found) > 1 else None, interleave=1, loop=loop
    )
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ask_when_silent(sock)
    return sock


# ------------------------------------------------------------ through a proxy
async def _through(
    way: UpstreamRoute, proxy: ProxyServer, sock: socket.socket, phase: _Phase, link: Connection
) -> None:
    """Have the proxy connect us with the endpoint, and give the connection to the link."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_CONNECT_ANSWER_BYTES)
    protocol = asyncio.StreamReaderProtocol(reader)
    secure = way.proxy_tls if proxy.scheme == "https" else None
    phase.name = "proxy_tls"
    transport, _ = await loop.create_connection(
        lambda: protocol, sock=sock, ssl=secure, server_hostname=proxy.host if secure else None
    )
    phase.name = "proxy"
    try:
        if proxy.scheme.startswith("socks"):
            await _socks(way.endpoint, proxy, reader, transport)
        else:
            await _http_connect(way.endpoint, proxy, reader, transport, phase)
    except asyncio.IncompleteReadError as error:
        transport.abort()
        raise ConnectionResetError(errno.ECONNRESET, "closed by the proxy") from error
    except (asyncio.LimitOverrunError, ValueError, LookupError) as error:
        transport.abort()
        raise phase.nonsense_from_proxy() from error
    except BaseException:
        transport.abort()
        raise
    phase.name = "tls"
    if way.tls is None:
        transport.set_protocol(link)
        link.connection_made(transport)
        return
    secured = await loop.start_tls(transport, link, way.tls, server_hostname=way.endpoint.host)
    assert secured is not None
    link.connection_made(secured)


async def _http_connect(
    endpoint: Endpoint,
    proxy: ProxyServer,
    reader: asyncio.StreamReader,
    transport: asyncio.Transport,
    phase: _Phase,
) -> None:
    where = endpoint.host_and_port.encode("ascii")
    lines = [b"CONNECT %s HTTP/1.1" % where, b"host: " + where]
    if proxy.authorization:
        lines.append(proxy.authorization)
    transport.write(b"\r\n".join((*lines, b"", b"")))
    answer = await reader.readuntil(b"\r\n\r\n")
    version, status = answer.split(b" ", 2)[:2]
    if not version.startswith(b"HTTP/1."):
        raise ValueError("no HTTP")
    if not 200 <= int(status[:3]) < 300:
        raise phase.refused_by_proxy(int(status[:3]))


async def _socks(
    endpoint: Endpoint, proxy: ProxyServer, reader: asyncio.StreamReader, transport: asyncio.Transport
) -> None:
    """SOCKS 5 (RFC 1928, 1929); the proxy resolves the name."""
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


_SOCKS_ERRORS = {2: errno.EACCES, 3: errno.ENETUNREACH, 4: errno.EHOSTUNREACH, 5: errno.ECONNREFUSED}


def _socks_address(host: str) -> bytes:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = host.encode("ascii")
        return bytes((3, len(name))) + name
    return (b"\x01" if address.version == 4 else b"\x04") + address.packed


# ------------------------------------------------------------ causes
def _certificate(error: ssl.SSLCertVerificationError) -> tuple[str, str]:
    code = error.verify_code
    if code in _UNKNOWN_CA:
        hint = "set upstream.ca_file (or SSL_CERT_FILE) to its authority's certificate"
        return "certificate_unknown_ca", f"its certificate is of an authority that is not trusted; {hint}"
    if code in _NOT_NOW:
        return "certificate_expired", f"its certificate {_NOT_NOW[code]}"
    if code in _OTHER_NAME:
        return "certificate_host_name", "its certificate is for another host name"
    return "certificate", f"its certificate is not valid ({error.verify_message})"


def _of_system(error: OSError) -> tuple[str, str]:
    number = error.errno
    match number:
        case errno.ECONNREFUSED:
            return "refused", "the connection was refused: nothing listens there"
        case errno.ENOENT:
            return "no_socket", "there is no such socket"
        case errno.EACCES:
            return "not_allowed", "access is denied"
        case errno.ECONNRESET:
            return "reset", "the connection was closed at once"
        case errno.ENETUNREACH | errno.EHOSTUNREACH:
            return "no_route", "there is no route to it"
    name = errno.errorcode.get(number or 0, type(error).__name__)
    return "unreachable", f"the connection failed ({name})"
