"""A Redis, and a Sentinel, that speak TLS and nothing else."""

import asyncio
import datetime
import ipaddress
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from proxy.domain.errors import StoreUnavailable
from proxy.storage.redis.stores import Places, RedisStores
from tests import redis_server
from tests.support.ports import reserved

PASSWORD, SERVICE = "not-in-the-clear", "mymaster"
HERE = "127.0.0.1"


def certify(directory: Path) -> dict[str, Path]:
    """Write a certificate of this machine's loopback, signed by itself; return the server's options."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HERE)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HERE))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    pem, no_password = serialization.Encoding.PEM, serialization.NoEncryption()
    cert_file, key_file = directory / "cert.pem", directory / "key.pem"
    cert_file.write_bytes(made.public_bytes(pem))
    key_file.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, no_password))
    return {"tls-cert-file": cert_file, "tls-key-file": key_file, "tls-ca-cert-file": cert_file}


class Encrypted:
    """A primary that wants a password, and a sentinel that knows it."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.ports = [self._port(stack), self._port(stack)]
        options = certify(directory)
        self.ca = options["tls-cert-file"]
        both = "".join(f"{name} {path}\n" for name, path in options.items())
        both += f"port 0\nbind {HERE}\ntls-auth-clients no\ntls-replication yes\ndir {directory}\n"
        primary = f'tls-port {self.ports[0]}\nrequirepass {PASSWORD}\nsave ""\n'
        sentinel = (
            f"tls-port {self.ports[1]}\nsentinel monitor {SERVICE} {HERE} {self.ports[0]} 1\n"
            f"sentinel auth-pass {SERVICE} {PASSWORD}\n"
        )
        for kind, more in (("primary", primary), ("sentinel", sentinel)):
            config = directory / f"{kind}.conf"
            config.write_text(both + more, "utf-8")
            arguments = [
                str(redis_server.PROGRAM),
                str(config),
                *(["--sentinel"] if kind == "sentinel" else []),
            ]
            process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)

    @property
    def query(self) -> str:
        return f"ssl_ca_certs={self.ca}"

    def _port(self, stack: ExitStack) -> int:
        keeper = stack.enter_context(reserved())
        return int(keeper.getsockname()[1])


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[Encrypted]:
    if redis_server.PROGRAM is None:
        pytest.skip(redis_server.MISSING)
    with ExitStack() as stack:
        yield Encrypted(tmp_path, stack)


async def reached(places: Places) -> None:
    """Reach the Redis as soon as that is possible; fail if it is not."""
    stores = RedisStores(places)
    try:
        async with asyncio.timeout(20):
            while True:
                try:
                    return await stores.reach()
                except StoreUnavailable:
                    await asyncio.sleep(0.1)
    finally:
        await stores.close()


async def test_tls_is_spoken_with_redis(encrypted: Encrypted) -> None:
    await reached(Places(redis_url=f"rediss://:{PASSWORD}@{HERE}:{encrypted.ports[0]}/0?{encrypted.query}"))


async def test_tls_is_spoken_with_sentinels_and_with_whom_they_name(encrypted: Encrypted) -> None:
    url = f"rediss://:{PASSWORD}@unused/0?{encrypted.query}"
    await reached(Places(redis_url=url, sentinels=(f"{HERE}:{encrypted.ports[1]}",)))
