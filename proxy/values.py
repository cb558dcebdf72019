"""What the value of a setting must be, beyond its type. Each returns the value, or raises ValueError, which
does not repeat what may be secret.
"""

import difflib
import os
import re
from urllib.parse import SplitResult, parse_qsl, urlsplit

from pydantic import SecretStr

from proxy.domain.endpoint import endpoint

_TLS_OPTIONS = frozenset(
    "ssl_ca_certs ssl_ca_data ssl_ca_path ssl_cert_reqs ssl_certfile ssl_check_hostname ssl_ciphers"
    " ssl_keyfile ssl_password".split()
)
# What redis-py reads behind the "?" and this proxy does not set itself. It takes any other for an argument of
# its own, and fails with a TypeError at the first request.
_REDIS_OPTIONS = frozenset("client_name db password protocol socket_keepalive username".split())


def directory(path: str) -> str:
    """Return the path, "~" being the user's home; ValueError for one that names nothing: "" would be wherever
    the process started."""
    if not path.strip() or "\0" in path:
        raise ValueError("names no directory; leave it out, or say null, for the user's own")
    return os.path.expanduser(path)


def http_url(url: str) -> str:
    """Return the URL; ValueError if it is no http(s) URL of a host."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"must start with http:// or https://, not {url[:20]!r}")
    parts = urlsplit(url)
    if not parts.hostname or parts.port == 0:  # what is no port at all is a ValueError by itself
        raise ValueError("names no host that can be reached")
    return url


def api_base(url: str) -> str:
    """Return the base URL of an OpenAI-compatible API without a trailing slash; ValueError, which names the
    mistake, if it cannot be one."""
    url = url.strip()
    endpoint(url)
    return url if "?" in url else url.rstrip("/")


_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([^\s/?#@\\,]*)")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


def origin_rule(text: str) -> str:
    """Return an origin as browsers write it, with `*` for a part of it: `https://app.example.com`,
    `https://*.example.com`, `http://localhost:*`, `vscode-webview://*`, `null`, or `*` for all. Raises
    ValueError."""
    rule = text.strip().lower()
    rule = rule if rule.endswith("://") else rule.rstrip("/")
    if rule in ("*", "null"):
        return rule
    found = _ORIGIN.fullmatch(rule)
    if found is None or not (found[2] or found[1] == "file"):
        raise ValueError(f"{text[:60]!r} is no origin: scheme://host[:port] without a path, null, or *")
    scheme, authority = found.groups()
    authority = authority.removesuffix(_DEFAULT_PORTS.get(scheme, "/"))
    host, _, port = authority.partition(":") if not authority.startswith("[") else (authority, "", "")
    wild = host.startswith("*.") or (host == "*" and scheme not in ("http", "https"))
    if "*" in (host[1:] if wild else host) or (port not in ("", "*") and "*" in port):
        raise ValueError(f"{text[:60]!r}: `*` matches the first labels of a host or for the port")
    if host.startswith("*.") and "." not in host[2:] and host != "*.localhost":
        raise ValueError(f"{text[:60]!r} names the sites of everybody: name the domain, too")
    if not host.isascii():
        authority = authority.replace(host, host.encode("idna").decode())
    return f"{scheme}://{authority}"


def host_name(text: str) -> str:
    """Return the name in a Host header, without its port; ValueError for a URL."""
    name = text.strip().lower()
    if not name or re.search(r"[\s/?#@\\*,]", name):
        raise ValueError(f"{text[:60]!r} is no host name, such as memory.example.com")
    return name if name.startswith("[") or name.count(":") > 1 else name.partition(":")[0]


def redis_url(url: str) -> str:
    """Return the URL; ValueError, which repeats nothing of it, if it is none of a Redis."""
    parts = _parts(url)
    if parts is None or ("@" in url and "@" not in parts.netloc and parts.scheme != "unix"):
        raise ValueError("names no host and port; what a password has of / ? # @ is written %2F %3F %23 %40")
    if parts.scheme not in ("redis", "rediss", "unix"):
        raise ValueError("must start with redis://, rediss:// (for TLS) or unix://")
    number = parts.path.strip("/")
    if parts.scheme != "unix" and number and not (number.isascii() and number.isdecimal()):
        raise ValueError("must end in the number of a database, as redis://host:6379/0 does")
    known = _REDIS_OPTIONS | _TLS_OPTIONS if parts.scheme == "rediss" else _REDIS_OPTIONS
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        if name not in known:  # not repeated: it may be the rest of a password
            near = difflib.get_close_matches(name, sorted(known), 1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(known))}"
            raise ValueError(f'has an unknown option behind the "?"; {hint}')
    return url


def postgres_url(url: str) -> str:
    """Return the URL; ValueError, which repeats nothing of it, if it is none of a PostgreSQL."""
    if not url.startswith(("postgresql://", "postgres://")):
        raise ValueError("must start with postgresql://, as postgresql://user:secret@host:5432/memory does")
    if url.count("@") > 1:
        raise ValueError("names no host and port; what a password has of / ? # @ is written %2F %3F %23 %40")
    return url


def header_key(key: SecretStr | None) -> SecretStr | None:
    """Return the key; ValueError, which does not repeat it, if no HTTP header can carry it."""
    text = key.get_secret_value().strip() if key is not None else ""
    if not text.isascii():
        raise ValueError(
            "holds a character that no key has, such as a curly quotation mark: copy it once more"
        )
    if key is not None and text and not text.isprintable():
        raise ValueError("holds a line break or another character that cannot be seen")
    return key


def _parts(url: str) -> SplitResult | None:
    """Return the parts; None where the URL, or its port, cannot be read."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for nonsense
    except ValueError:
        return None
    return parts
