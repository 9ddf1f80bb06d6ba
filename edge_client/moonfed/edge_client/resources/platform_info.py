"""Platform information read from files alone: starts no process and does not import torch.

Sources: proc(5); NVIDIA driver README, "Using the /proc File System Interface" (`gpus/*/information`, `version`);
`/etc/nv_tegra_release` and the package nvidia-jetpack of NVIDIA's Jetson Linux; deb-status of dpkg, dpkg(1).
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from moonfed.available_memory import ROOT, total_memory
from moonfed.printable import one_line

MAX_LENGTH = 200  # characters of one word, the coordinator's limit
_L4T = re.compile(r"#\s*R(\d+)\s*\(release\),\s*REVISION:\s*([\d.]+)")
_DRIVER = re.compile(r"NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s")
_CUDA = re.compile(r"^cuda\b[^=]*=\s*['\"]([\d.]+)['\"]", re.MULTILINE)


def hardware(root: Path = ROOT) -> dict[str, str]:
    """Describe the machine by name; omit what is unknown.

    `memory` is in bytes. `gpu`: the models' names, separated by commas; on a Jetson, the board's name. `jetpack`: its
    version, or else that of Jetson Linux, such as `L4T 36.4.3`.
    """
    found = {
        "architecture": platform.machine(),
        "system": _system(root),
        "processor": _processor(root),
        "memory": str(total_memory(root) or ""),
        "gpu": ", ".join(_gpus(root)),
        "driver": _search(_DRIVER, root / "proc/driver/nvidia/version"),
        "jetpack": _jetpack(root),
    }
    return {name: word for name, text in found.items() if (word := one_line(text, MAX_LENGTH))}


def cuda_of_torch(package: Path) -> str:
    """Return the CUDA toolkit's version that the torch in this folder was built with; empty for one without CUDA."""
    return _search(_CUDA, package / "version.py")


def _system(root: Path) -> str:
    """Return the distribution's name, else the kernel's."""
    named = re.search(r'^PRETTY_NAME="?([^"\n]+)', _read(root / "etc/os-release"), re.MULTILINE)
    return named[1] if named else f"{platform.system()} {platform.release()}"


def _processor(root: Path) -> str:
    """Return the processor's model, or the board's where it has none, as on most ARM boards."""
    named = re.search(r"^(?:model name|Model)\s*:\s*(.+)$", _read(root / "proc/cpuinfo"), re.MULTILINE)
    return named[1] if named else _board(root)


def _board(root: Path) -> str:
    return _read(root / "proc/device-tree/model").rstrip("\0")


def _gpus(root: Path) -> Iterator[str]:
    """Return the names of discrete GPUs; a Jetson's GPU is part of its board."""
    files = sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
    names = [named[1].strip() for file in files if (named := re.search(r"^Model:\s*(.+)$", _read(file), re.MULTILINE))]
    if names:
        yield from names
    elif _l4t(root):
        yield _board(root)


def _jetpack(root: Path) -> str:
    """Return the version of JetPack's metapackage on Jetson Linux, if it is installed."""
    release = _l4t(root)
    return (_installed_version(root, "nvidia-jetpack") or f"L4T {release}") if release else ""


def _l4t(root: Path) -> str:
    found = _L4T.match(_read(root / "etc/nv_tegra_release"))
    return f"{found[1]}.{found[2]}" if found else ""


def _installed_version(root: Path, package: str) -> str:
    """Return a Debian package's version if it is installed; reads line by line, since the file has megabytes."""
    fields: dict[str, str] = {}
    with suppress(OSError), (root / "var/lib/dpkg/status").open(errors="replace") as lines:
        for line in lines:
            name, _, value = line.rstrip("\n").partition(": ")
            if name in ("Package", "Status"):
                fields[name] = value
            if name == "Version" and fields.get("Package") == package:
                return value if fields.get("Status") == "install ok installed" else ""
    return ""


def _search(pattern: re.Pattern[str], file: Path) -> str:
    found = pattern.search(_read(file))
    return found[1] if found else ""


def _read(file: Path) -> str:
    """Return a file's text; none if it cannot be read."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
