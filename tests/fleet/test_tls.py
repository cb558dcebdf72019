"""The Redis that replicas share, speaking TLS and nothing else."""

import asyncio
import datetime
import ipaddress
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from proxy.domain.errors import StoreUnavailable
from proxy.storage.redis_cache import RedisCache
from tests import redis_server
from tests.support.ports import reserved

PASSWORD = "not-in-the-clear"
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


@contextmanager
def encrypted(directory: Path) -> Iterator[str]:
    """Run a Redis that wants a password; yield its URL."""
    options = [word for name, path in certify(directory).items() for word in (f"--{name}", str(path))]
    with reserved() as keeper:
        port = int(keeper.getsockname()[1])
        command = [str(redis_server.PROGRAM), "--port", "0", "--tls-port", str(port), "--bind", HERE]
        command += ["--requirepass", PASSWORD, "--tls-auth-clients", "no", "--save", "", *options]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield f"rediss://:{PASSWORD}@{HERE}:{port}/0?ssl_ca_certs={directory / 'cert.pem'}"
        finally:
            process.kill()
            process.wait()


async def test_tls_is_spoken_with_redis(tmp_path):
    if redis_server.PROGRAM is None:
        pytest.skip(redis_server.MISSING)
    with encrypted(tmp_path) as url:
        async with asyncio.timeout(20):
            while True:  # until it has started
                cache = RedisCache(url, timeout_s=5.0)
                try:
                    return await cache.ping()
                except StoreUnavailable:
                    await asyncio.sleep(0.1)
                finally:
                    await cache.close()
