"""Images built and run by buildah, without a daemon or a registry, on a base that debootstrap makes.

Builds are isolated by chroot, which also works in a container; they use this machine's network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
BASE = "localhost/moonfed-base"
CERTIFICATES = Path("/etc/ssl/certs")
SUITE, PYTHON = "bookworm", "3.11"
PACKAGES = "python3,python3-venv,python3-pip"


def missing() -> str:
    """Return the reason if images cannot be built here, else an empty text."""
    absent = [program for program in ("buildah", "debootstrap") if shutil.which(program) is None]
    if absent:
        return f"{' and '.join(absent)} not installed: apt-get install buildah debootstrap"
    return "" if os.geteuid() == 0 else "only root can build images in a chroot"


@dataclass(frozen=True, slots=True)
class Builder:
    """An image store in a directory of its own."""

    directory: Path

    def buildah(self, command: str, *words: str | Path) -> str:
        """Run a buildah command and return its output."""
        done = subprocess.run(
            self.command(command, *words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert done.returncode == 0, done.stdout[-5000:]
        return done.stdout.strip()

    def command(self, command: str, *words: str | Path) -> list[str]:
        """Return the arguments of a buildah command on this store."""
        place = ["--root", self.directory / "root", "--runroot", self.directory / "run", "--storage-driver", "vfs"]
        return [str(word) for word in ("buildah", *place, command, *words)]

    def make_base(self) -> None:
        """Make a base image with Debian's Python, as `python` and `pip`, and pip's configuration of this machine."""
        container = self.buildah("from", "scratch")
        mounted = Path(self.buildah("mount", container))
        bootstrap = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(mounted)]
        done = subprocess.run(bootstrap, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout[-5000:]
        for unneeded in ("usr/share/doc", "usr/share/locale", "usr/share/man", "var/cache/apt", "var/lib/apt/lists"):
            shutil.rmtree(mounted / unneeded, ignore_errors=True)
        (mounted / "usr" / "bin" / "python").symlink_to("python3")
        settings = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        settings |= {
            "PIP_BREAK_SYSTEM_PACKAGES": "1",
            "PIP_NO_COMPILE": "1",
        }  # nobody runs the base itself; compiling is slow
        environment = [word for name, value in settings.items() for word in ("--env", f"{name}={value}")]
        self.buildah("config", *environment, container)
        self.buildah("commit", "--rm", container, BASE)

    def build(self, image: str, **arguments: str) -> str:
        """Build an image of deploy/ on the base; return its name."""
        name = f"localhost/moonfed-{image}"
        given = [
            word for key, value in {"BASE": BASE, **arguments}.items() for word in ("--build-arg", f"{key}={value}")
        ]
        mounts = [word for path in self.mounts() for word in ("--volume", f"{path}:{path}:ro")]
        file = ROOT / "deploy" / f"{image}.Dockerfile"
        self.buildah("bud", "--isolation", "chroot", *given, *mounts, "--file", file, "--tag", name, ROOT)
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
        fetch = ["pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version", PYTHON]
        done = subprocess.run([*fetch, "--dest", str(self.wheels), f"torch=={version}"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        (wheel,) = self.wheels.glob("torch-*.whl")
        return f"torch @ file://{wheel}"

    def container(self, image: str) -> str:
        """Create a container; return its name."""
        return self.buildah("from", image)

    def run(
        self, container: str, *words: str | Path, volumes: Sequence[str] = (), environment: Sequence[str] = ()
    ) -> list[str]:
        """Return the command that runs a program in a container, as the image's user."""
        options = [word for volume in volumes for word in ("--volume", volume)]
        options += [word for variable in environment for word in ("--env", variable)]
        return self.command("run", "--isolation", "chroot", *options, container, "--", *words)
