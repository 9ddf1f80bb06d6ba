"""Build moonfed's release in dist/: `make release`.

    make release RELEASE_KEY=~/.ssh/moonfed-release

The source distribution and, from it, the wheel; the wheel's bill of materials; SHA256SUMS of the three, and its
signature by an OpenSSH key. They are built offline from the last commit, and so have no file that is not committed. One
commit, key (Ed25519), Python and setuptools give the same bytes, whatever the directory, user, umask and time.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import tomllib

from tools.bill_of_materials import bill_of_materials
from tools.lock_requirements import ROOT

SUMS = "SHA256SUMS"
NAMESPACE = "file"  # OpenSSH's name for signatures of files
EPOCH = 1_593_835_520  # the time of files in a wheel of the working tree, which has no commit
_CALL_HOOK = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"
_DESCRIBING = ("CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md", "constraints.txt", "pyproject.toml")


class ReleaseError(Exception):
    """A release that cannot be built; the text is a sentence for whoever builds it."""


def build_release(root: Path, directory: Path, key: Path | None) -> list[Path]:
    """Build the release of a repository's last commit in a directory, and return its files.

    `key`: the OpenSSH private key that signs, or a public key whose private half ssh-agent holds; None: unsigned.
    Raises ReleaseError if files have changes that are not committed, or if the key cannot sign.
    """
    if changed := _git(root, "status", "--porcelain", "--untracked-files=no").decode().splitlines():
        raise ReleaseError(f"the working tree has changes that are not committed: {changed[0][3:]}; commit them first")
    epoch = int(_git(root, "log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory() as temporary:
        committed, unpacked = Path(temporary) / "committed", Path(temporary) / "unpacked"
        _unpack(_git(root, "archive", "HEAD"), committed)
        sdist = build_sdist(committed, directory, epoch)
        _unpack(sdist.read_bytes(), unpacked)
        (source,) = unpacked.iterdir()
        wheel = _build("build_wheel", source, directory, epoch)
    bill = directory / f"{'-'.join(wheel.name.split('-')[:2])}.cdx.json"
    bill.write_bytes(bill_of_materials(wheel))
    sums = directory / SUMS
    sums.write_text("".join(f"{_sha256(path)}  {path.name}\n" for path in (bill, wheel, sdist)))
    return [bill, wheel, sdist, sums, *([sign(sums, key)] if key else [])]


def build_wheel(directory: Path) -> Path:
    """Build the wheel of the working tree in a directory, without what lies in the tree's build folders."""
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "source"
        copy_sources(source)
        return _build("build_wheel", source, directory, EPOCH)


def copy_sources(target: Path) -> None:
    """Copy what the working tree has of the packages, and what describes them."""
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    for part in {"requirements", *(Path(folder).parts[0] for folder in described["package-dir"].values())}:
        shutil.copytree(ROOT / part, target / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in _DESCRIBING:
        shutil.copy(ROOT / name, target)


def build_sdist(source: Path, directory: Path, epoch: int) -> Path:
    """Build the source distribution, and write it again without owners, times, modes and an order of its own."""
    sdist = _build("build_sdist", source, directory, epoch)
    with tarfile.open(sdist) as archive:
        contents = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
        files = {name: content.read() for name, content in contents.items() if content}
    with (
        sdist.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)  # mode 0644, owner 0
            member.size, member.mtime = len(content), epoch
            archive.addfile(member, io.BytesIO(content))
    return sdist


def sign(sums: Path, key: Path) -> Path:
    """Sign a file with an OpenSSH key; raise ReleaseError if the key cannot."""
    command = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(sums)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise ReleaseError(f"RELEASE_KEY is {key}; ssh-keygen cannot sign with it: {reason[0]}")
    return sums.with_name(f"{sums.name}.sig")


def _build(hook: str, source: Path, directory: Path, epoch: int) -> Path:
    """Call setuptools' hook in the source's directory."""
    with tempfile.TemporaryDirectory() as temporary:
        subprocess.run(
            [sys.executable, "-c", _CALL_HOOK, hook, temporary],
            cwd=source,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)},
            umask=0o022,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        (built,) = Path(temporary).iterdir()
        return Path(shutil.copy(built, directory))


def _unpack(archive: bytes, directory: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        opened.extractall(directory, filter="data")


def _git(root: Path, *words: str) -> bytes:
    return subprocess.run(["git", "-C", str(root), *words], stdout=subprocess.PIPE, check=True).stdout  # noqa: S607


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _key() -> Path | None:
    """Return the file that RELEASE_KEY names, if it names one."""
    if not (named := os.environ.get("RELEASE_KEY", "")):
        return None
    key = Path(named).expanduser()
    if not key.is_file():
        raise ReleaseError(f"RELEASE_KEY is {named}; it must be the file of an OpenSSH key")
    return key


def main() -> None:
    """Write the release to dist/, and print its checksums."""
    directory = ROOT / "dist"
    try:
        key = _key()
        with tempfile.TemporaryDirectory() as temporary:
            files = build_release(ROOT, Path(temporary), key)
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
            for file in files:
                shutil.copy(file, directory)
    except ReleaseError as error:
        sys.exit(f"make release: {error}")
    print((directory / SUMS).read_text(), end="")
    if key is None:
        print(f"{SUMS} is not signed: RELEASE_KEY names no key")


if __name__ == "__main__":
    main()
