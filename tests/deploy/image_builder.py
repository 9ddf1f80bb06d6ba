"""Images built by buildah, without a daemon or a registry, on a base that debootstrap makes.

Builds are isolated by chroot, which also works in a container; they use this machine's network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
BASE = "localhost/moonfed-base"
CERTIFICATES = Path("/etc/ssl/certs")
SUITE, PYTHON = "bookworm", "3.11"
PACKAGES = "python3,python3-pip"
STORE, AMPLE = "8g", 12 << 30  # of memory: the limit of a store, which takes up to 6 GB, and what must be available


@contextmanager
def store() -> Iterator[Builder]:
    """Yield a builder with the base: in memory if there is plenty, because disks may take minutes to delete it."""
    with tempfile.TemporaryDirectory(prefix="moonfed-images-") as directory, ExitStack() as stack:
        if psutil.virtual_memory().available > AMPLE:
            finished(["mount", "-t", "tmpfs", "-o", f"size={STORE}", "tmpfs", directory])
            stack.callback(finished, ["umount", "--lazy", directory])
        builder = Builder(Path(directory))
        builder.wheels.mkdir()
        builder.make_base()
        yield builder


def missing() -> str:
    """Return the reason if images cannot be built here, else an empty text."""
    absent = [program for program in ("buildah", "debootstrap") if shutil.which(program) is None]
    if absent:
        return f"{' and '.join(absent)} not installed: apt-get install buildah debootstrap"
    mounts = ["unshare", "--mount", "true"]
    permitted = os.geteuid() == 0 and subprocess.run(mounts, capture_output=True).returncode == 0
    return "" if permitted else "only root can build images in a chroot, and only if it may mount"


@dataclass(frozen=True, slots=True)
class Builder:
    """An image store in a directory of its own."""

    directory: Path

    def buildah(self, command: str, *words: str | Path) -> str:
        """Run a buildah command and return its output."""
        return finished(self.command(command, *words)).strip()

    def command(self, command: str, *words: str | Path) -> list[str]:
        """Return the arguments of a buildah command on this store."""
        place = ["--root", self.directory / "root", "--runroot", self.directory / "run", "--storage-driver", "vfs"]
        return [str(word) for word in ("buildah", *place, command, *words)]

    def make_base(self) -> None:
        """Make a base image with Debian's Python, as `python` and `pip`, and pip's configuration of this machine."""
        container = self.buildah("from", "scratch")
        mounted = Path(self.buildah("mount", container))
        options = mounted / "etc" / "dpkg" / "dpkg.cfg.d"
        options.mkdir(parents=True)
        (options / "no-sync").write_text("force-unsafe-io\n")  # nobody needs this base after a power failure
        finished(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(mounted)])
        for unneeded in ("usr/share/doc", "usr/share/locale", "usr/share/man", "var/cache/apt", "var/lib/apt/lists"):
            shutil.rmtree(mounted / unneeded, ignore_errors=True)
        (mounted / "usr" / "bin" / "python").symlink_to("python3")
        settings = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        settings["PIP_BREAK_SYSTEM_PACKAGES"] = "1"  # nobody runs the base itself
        settings["PIP_NO_COMPILE"] = "1"  # which is slow
        self.commit(container, BASE, settings)

    def commit(self, container: str, image: str, environment: Mapping[str, str]) -> None:
        """Turn a container into an image with more variables."""
        variables = [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
        self.buildah("config", *variables, container)
        self.buildah("commit", "--rm", container, image)

    def build(self, image: str, **arguments: str) -> str:
        """Build an image of deploy/ on the base; return its name."""
        name, file = f"localhost/moonfed-{image}", ROOT / "deploy" / f"{image}.Dockerfile"
        given = [
            word for key, value in {"BASE": BASE, **arguments}.items() for word in ("--build-arg", f"{key}={value}")
        ]
        mounts = [word for path in self.mounts() for word in ("--volume", f"{path}:{path}:ro")]
        context = ["--ignorefile", f"{file}.dockerignore", str(ROOT)]  # older releases of buildah do not look there
        self.buildah("bud", "--isolation", "chroot", *given, *mounts, "--file", file, "--tag", name, *context)
        return name

    def mounts(self) -> list[Path]:
        """Return this machine's directories that pip may need in a build: certificate authorities, and wheels."""
        wheels = [Path(word) for word in os.environ.get("PIP_FIND_LINKS", "").split() if Path(word).is_dir()]
        return [*([CERTIFICATES] if CERTIFICATES.is_dir() else []), self.wheels, *wheels]

    @property
    def wheels(self) -> Path:
        """The directory of wheels that builds see."""
        return self.directory / "wheels"

    def torch(self, version: str) -> str:
        """Fetch a version of torch, such as one without CUDA, for the base's Python; return the value of TORCH."""
        options = ["--quiet", "--no-deps", "--only-binary=:all:", "--python-version", PYTHON]
        fetch = [sys.executable, "-m", "pip", "download", *options]
        finished([*fetch, "--dest", str(self.wheels), f"torch=={version}"])
        (wheel,) = self.wheels.glob("torch-*.whl")
        return f"torch @ file://{wheel}"


def finished(command: list[str]) -> str:
    """Run a command and return its standard output; if it fails, the error has the end of all that it printed."""
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout
