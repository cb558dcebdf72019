"""How this process reaches the outside: through which HTTP proxy, and which certificates it believes.

The variables are those of curl and Python's clients: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, in
lower or upper case (lower wins); SSL_CERT_FILE and SSL_CERT_DIR (read by OpenSSL), REQUESTS_CA_BUNDLE,
CURL_CA_BUNDLE.
Settings come before variables.
"""

import base64
import ipaddress
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import unquote, urlsplit

from proxy.domain.endpoint import Endpoint
from proxy.domain.errors import ConfigError

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
