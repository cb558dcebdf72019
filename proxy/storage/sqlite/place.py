"""Whether a directory can hold the database: who owns it, who this process is, which file system it is on.

The messages are for operators. They name the directory and what to change.
"""

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")  # Linux; elsewhere no file system is known
# SQLite's write-ahead log needs shared memory and locks that hold: https://sqlite.org/wal.html
_NETWORK = frozenset(
    "afs beegfs ceph cifs davfs fuse.blobfuse fuse.blobfuse2 fuse.ceph fuse.davfs fuse.gcsfuse fuse.glusterfs"
    " fuse.goofys fuse.mount-s3 fuse.rclone fuse.s3fs fuse.seaweedfs fuse.sshfs glusterfs lustre ncpfs nfs"
    " nfs4 smb3 smbfs".split()
)


def obstacle(data_dir: Path) -> str:
    """Return why this process cannot write its data in the directory and what to do, "" where it can."""
    there = _nearest(data_dir)
    if not there.is_dir():
        return f"{there} is not a directory: name another data directory (--data-dir)"
    if os.statvfs(there).f_flag & os.ST_RDONLY:
        return (
            f"{there} is on a read-only file system: mount it writable (Docker: without `:ro`), or name"
            " another data directory (--data-dir)"
        )
    for path in _ours(data_dir, there):
        wanted = os.R_OK | os.W_OK | (os.X_OK if path.is_dir() else 0)
        if not os.access(path, wanted, effective_ids=True):
            return _not_ours(path, data_dir)
    return ""


def network_file_system(data_dir: Path, mounts: Path = _MOUNTS) -> str:
    """Return the type of the network file system that the directory is on, "" for a local one."""
    try:
        lines = mounts.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    there, found, longest = _nearest(data_dir).resolve(), "", -1
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.partition(" ")[0]
        if len(fields) < 5:
            continue
        point = Path(fields[4].replace("\\040", " "))
        # A later mount hides an earlier one at the same place.
        if there.is_relative_to(point) and len(point.parts) >= longest:
            found, longest = kind, len(point.parts)
    return found if found in _NETWORK else ""


def on_network(data_dir: Path, kind: str) -> str:
    """Return the refusal of a network file system."""
    return (
        f"{data_dir} is on a network file system ({kind}): SQLite's locks do not hold there, and the"
        " database can be damaged. Use a local disk or a block volume, or a database server; if one"
        " machine alone uses the directory and its locks work, set storage.allow_network_filesystem"
    )


def _nearest(path: Path) -> Path:
    """Return the path, or the nearest directory above it that exists."""
    path = path.absolute()
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return path


def _ours(data_dir: Path, there: Path) -> Iterator[Path]:
    yield there
    if there == data_dir.absolute():
        names = ("memory.db", "memory.db-wal", "memory.db-shm", "memory.opening", "run")
        yield from (path for name in names if (path := there / name).exists())


def _not_ours(path: Path, data_dir: Path) -> str:
    found, us, group = path.stat(), os.geteuid(), os.getegid()
    owner = (
        f"belongs to {_name(found.st_uid)}, mode {found.st_mode & 0o777:o}; memory-proxy runs as {_name(us)}"
    )
    if path != data_dir.absolute() and data_dir.absolute().is_relative_to(path):
        make = f"`mkdir -p {data_dir} && chown {us}:{group} {data_dir}`"
        return f"{data_dir} cannot be made: {path} {owner}. Run {make} as root, or name another (--data-dir)"
    if found.st_uid == us:
        return f"{path} cannot be written to: it {owner}. Run `chmod -R u+rwX {data_dir}`"
    return (
        f"{path} cannot be written to: it {owner}. Run `chown -R {us}:{group} {data_dir}` as root (of a bind"
        f" mount: on the host), or run memory-proxy as its owner (Docker: `-u {found.st_uid}:{found.st_gid}`)"
    )


def _name(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
