"""What the kernel knows about a process: time on a CPU, memory of its own, bytes written."""

import contextlib
import os
from pathlib import Path
from typing import Final

_TICK_US: Final = 1_000_000 // os.sysconf("SC_CLK_TCK")


def cpu_us(pid: int) -> int:
    """Count the CPU time of a process, user and system, all threads, ended ones too."""
    # The name in parentheses may hold spaces, so that fields are counted from its end.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_US


def anonymous_bytes(pid: int) -> int:
    """Count the memory that is the process's own; mapped pages of files are not."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"the kernel tells no RssAnon for process {pid}")


def written_bytes(pid: int) -> int:
    """Count the bytes that a process caused to be written to storage."""
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    raise LookupError(f"the kernel tells no write_bytes for process {pid}")


def open_files(pid: int) -> int:
    """Count the files and sockets that a process has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def open_sockets(pid: int) -> int:
    """Count the sockets that a process has open; a store opens and closes files of its own."""
    count = 0
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            count += os.readlink(path).startswith("socket:")
    return count


def descendant(pid: int, name: str) -> int | None:
    """Find the process of this name among a process and its descendants."""
    family = {pid}
    while True:
        found = {
            int(entry.name): entry
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and _parent(entry) in family and int(entry.name) not in family
        }
        for candidate in (pid, *found):
            if _name(candidate) == name:
                return candidate
        if not found:
            return None
        family |= set(found)


def filesystem(path: Path) -> str:
    """Name the kind of filesystem that a path lies on: figures of a tmpfs say nothing."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    resolved = path.resolve()
    holding = [(len(at), kind) for at, kind in mounts if resolved.is_relative_to(at)]
    return max(holding)[1]


def tree_bytes(directory: Path) -> int:
    """Count the bytes of the files below a directory, as the disk holds them."""
    return sum(f.stat().st_blocks * 512 for f in directory.rglob("*") if f.is_file())


def _parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return -1


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
