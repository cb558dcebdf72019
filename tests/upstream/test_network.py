"""Through a proxy, by a certificate, or not at all: what is in force, and why a connection failed."""

import asyncio
import contextlib
import datetime
import ipaddress
import ssl
import struct
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from proxy.domain.base_url import parse_base_url
from proxy.domain.errors import ConfigError, UpstreamUnreachable
from proxy.upstream.client import Upstream
from proxy.upstream.network import Network
from tests.support.upstream import ScriptedUpstream
from tests.upstream.test_client import drain


# ---------------------------------------------------------------- a forward proxy
class ForwardProxy:
    """Passes CONNECT, absolute-form requests and SOCKS 5 on; notes each first line and head."""

    def __init__(self, *, refuses: bytes = b"", credentials: bytes = b"") -> None:
        self.heads: list[bytes] = []
        self._refuses, self._credentials = refuses, credentials
        self.port = 0

    async def __aenter__(self) -> "ForwardProxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            first = await reader.readexactly(1)
            if first == b"\x05":
                await self._socks(reader, writer)
            else:
                await self._http(first, reader, writer)
        writer.close()

    async def _http(self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = first + await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        if self._credentials and self._credentials not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
            return
        if self._refuses:
            writer.write(self._refuses)
            return
        method, target, rest = head.split(b" ", 2)
        if method == b"CONNECT":
            host, _, port = target.decode().rpartition(":")
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await self._pass_on(host, int(port), b"", reader, writer)
            return
        authority, _, path = target.removeprefix(b"http://").partition(b"/")
        host, _, port = authority.decode().rpartition(":")
        await self._pass_on(host, int(port), b" ".join((method, b"/" + path, rest)), reader, writer)

    async def _socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        count = (await reader.readexactly(1))[0]
        offered = await reader.readexactly(count)
        writer.write(b"\x05\x02" if 2 in offered else b"\x05\x00")
        if 2 in offered:
            user = await reader.readexactly((await reader.readexactly(2))[1])
            password = await reader.readexactly((await reader.readexactly(1))[0])
            self.heads.append(user + b":" + password)
            writer.write(b"\x01\x00")
        kind = (await reader.readexactly(4))[3]
        assert kind == 3
        host = await reader.readexactly((await reader.readexactly(1))[0])
        (port,) = struct.unpack(">H", await reader.readexactly(2))
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        await self._pass_on(host.decode(), port, b"", reader, writer)

    async def _pass_on(self, host, port, data, reader, writer):
        # Every name is this machine's: only through the proxy can it be resolved.
        theirs, ours = await asyncio.open_connection("127.0.0.1", port)
        ours.write(data)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while piece := await source.read(65536):
                sink.write(piece)
            sink.close()

        await asyncio.gather(pump(reader, ours), pump(theirs, writer))


# ---------------------------------------------------------------- certificates
class Authority:
    """A private CA, and the certificates that it signs."""

    def __init__(self, directory: Path) -> None:
        self.directory, self._key = directory, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Private CA")])
        self._certificate = self._made(self._name, self._key, None, days=1)
        self.file = directory / "ca.pem"
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, *names: str, days: int = 1) -> ssl.SSLContext:
        """Return a server's context for these names; with `days` below 0 its certificate has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "server")])
        certificate = self._made(subject, key, names, days=days)
        file = self.directory / f"{names[0]}{days}.pem"
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file.write_bytes(private + pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _made(self, subject, key, names, *, days):
        now = datetime.datetime.now(datetime.UTC)
        begin, end = sorted((now - datetime.timedelta(days=3), now + datetime.timedelta(days=days)))
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=names is None, path_length=None), critical=True)
        )
        if names:
            found = [
                x509.IPAddress(ipaddress.ip_address(name)) if name[0].isdigit() else x509.DNSName(name)
                for name in names
            ]
            builder = builder.add_extension(x509.SubjectAlternativeName(found), critical=False)
        return builder.sign(self._key, hashes.SHA256())


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("ca"))


async def asked(url: str, network: Network | None = None, *, times: int = 1) -> bytes:
    async with Upstream(url, network=network) as upstream, asyncio.timeout(20):
        for _ in range(times):
            answer = await drain(await upstream.open("POST", b"/v1/x?a", [(b"authorization", b"k")], b"{}"))
        return answer


# ---------------------------------------------------------------- through a proxy
async def test_http_goes_in_absolute_form_with_the_proxys_credentials():
    async with ForwardProxy(credentials=b"Basic dTpwJTQw") as forward, ScriptedUpstream() as scripted:
        # The password is p%40 there: percent-encoded once more.
        environ = {"HTTP_PROXY": f"http://u:p%2540@127.0.0.1:{forward.port}"}
        url = f"http://model.internal:{scripted.port}/v1"
        assert await asked(url, Network.of(environ)) == b"ok"
    assert forward.heads[0].startswith(b"POST http://model.internal:%d/v1/x?a HTTP/1.1\r\n" % scripted.port)
    assert scripted.requests[0].body == b"{}"
    assert scripted.requests[0].header(b"host") == b"model.internal:%d" % scripted.port


async def test_https_goes_through_connect_and_is_checked_against_the_upstreams_name(authority):
    tls = authority.server("model.internal")
    async with ForwardProxy(credentials=b"Basic dTpw") as forward, ScriptedUpstream(tls=tls) as scripted:
        environ = {"https_proxy": f"u:p@127.0.0.1:{forward.port}"}
        network = Network.of(environ, ca_file=str(authority.file))
        url = f"https://model.internal:{scripted.port}/v1"
        assert await asked(url, network, times=3) == b"ok"
        wrong = f"https://other.internal:{scripted.port}/v1"
        with pytest.raises(UpstreamUnreachable, match="another host name") as refused:
            await asked(wrong, network)
    assert forward.heads[0].startswith(b"CONNECT model.internal:%d HTTP/1.1\r\n" % scripted.port)
    assert (len(scripted.connections), len(scripted.requests)) == (1, 3)
    assert b"authorization: k" not in forward.heads[0]
    assert refused.value.cause == "certificate_host_name"


async def test_a_proxy_that_is_itself_reached_by_tls_and_one_of_socks(authority):
    async with ForwardProxy() as forward, ScriptedUpstream(tls=authority.server("m.internal")) as scripted:
        environ = {"ALL_PROXY": f"socks5h://u:p@127.0.0.1:{forward.port}"}
        network = Network.of(environ, ca_file=str(authority.file))
        assert await asked(f"https://m.internal:{scripted.port}/v1", network) == b"ok"
    assert forward.heads == [b"u:p"]
    async with ForwardProxy() as forward, ScriptedUpstream() as scripted:
        network = Network.of({"ALL_PROXY": f"socks5://127.0.0.1:{forward.port}"})
        assert await asked(f"http://m.internal:{scripted.port}/v1", network) == b"ok"


@pytest.mark.parametrize(
    ("refuses", "credentials", "cause", "says"),
    [
        (b"", b"Basic other", "proxy_credentials", "wants credentials"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", b"", "proxy_refused", "answered 403 to CONNECT"),
        (b"SSH-2.0-x\r\n\r\n", b"", "proxy_invalid", "is no such proxy"),
        (b"HTTP/1.1 200", b"", "proxy_reset", "closed at once"),
    ],
)
async def test_a_proxy_that_does_not_let_through_is_named_without_its_password(
    refuses, credentials, cause, says
):
    async with ForwardProxy(refuses=refuses, credentials=credentials) as forward:
        network = Network.of({"HTTPS_PROXY": f"http://u:hush@127.0.0.1:{forward.port}"})
        with pytest.raises(UpstreamUnreachable) as refused:
            await asked("https://model.internal/v1", network)
    assert (refused.value.cause, says in refused.value.message) == (cause, True)
    assert f"the proxy http://127.0.0.1:{forward.port} (HTTPS_PROXY)" in refused.value.message
    assert "hush" not in refused.value.message + repr(network)
    with pytest.raises(UpstreamUnreachable) as refused:
        await asked("https://model.internal/v1", network)
    assert refused.value.cause == "proxy_refused"


CORP = "localhost, .corp, 10.0.0.0/8,  192.168.1.7:8000,example.com,[fd00::1]:9, fd12::/16"


@pytest.mark.parametrize(
    ("url", "is_direct"),
    [
        ("http://localhost:11434/v1", True), ("http://model.corp/v1", True), ("http://notcorp/v1", False),
        ("http://10.1.2.3/v1", True), ("http://192.168.1.7:8000/v1", True),
        ("http://192.168.1.7:8001/v1", False), ("http://badexample.com/v1", False),
        ("http://[fd00::1]:9/v1", True), ("http://[fd12::5]/v1", True), ("unix:/run/m.sock", True),
    ],
)  # fmt: skip
def test_no_proxy_excepts_what_it_names(url, is_direct):
    network = Network.of({"http_proxy": "http://p:1", "NO_PROXY": CORP})
    assert (network.proxy_for(parse_base_url(url)) is None) == is_direct


# ---------------------------------------------------------------- certificates
async def test_a_private_authority_is_believed_where_it_is_named(authority, monkeypatch):
    async with ScriptedUpstream(tls=authority.server("127.0.0.1")) as scripted:
        url = f"https://127.0.0.1:{scripted.port}/v1"
        with pytest.raises(UpstreamUnreachable, match=r"set upstream\.ca_file") as refused:
            await asked(url)
        assert refused.value.cause == "certificate_unknown_ca"
        assert await asked(url, Network.of({}, ca_file=str(authority.file)), times=2) == b"ok"
        assert await asked(url, Network.of({"REQUESTS_CA_BUNDLE": str(authority.file)})) == b"ok"
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        assert await asked(url, Network.of({})) == b"ok"


def test_a_file_that_holds_no_certificates_and_a_proxy_that_cannot_be_meant_are_errors(tmp_path):
    (tmp_path / "empty.pem").write_text("nothing")
    with pytest.raises(ConfigError, match=r"upstream\.ca_file: .* holds no certificates"):
        _ = Network.of({}, ca_file=str(tmp_path / "empty.pem")).tls
    with pytest.raises(ConfigError, match="cannot be read"):
        _ = Network.of({}, ca_file=str(tmp_path / "absent.pem")).tls
    with pytest.raises(ConfigError, match="HTTPS_PROXY"):
        Network.of({"HTTPS_PROXY": "ftp://p:1"}).proxy_for(parse_base_url("https://h/v1"))


# ---------------------------------------------------------------- causes
async def test_each_failure_names_its_cause(tmp_path):
    async with ScriptedUpstream() as scripted:
        closed_port = scripted.port
    for url, cause, says in (
        ("http://no-such-host.invalid/v1", "dns", "cannot be resolved"),
        (f"http://127.0.0.1:{closed_port}/v1", "refused", "nothing listens there"),
        (f"unix:{tmp_path}/absent.sock", "no_socket", "no such socket"),
    ):
        with pytest.raises(UpstreamUnreachable, match=says) as refused:
            await asked(url)
        assert refused.value.cause == cause
