"""The parent's view of the process in which plans run: its files, environment, module search path and limits."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import moonfed
from moonfed.available_memory import host_available
from moonfed.errors import TrainingFailed
from moonfed.sandbox.child_process import SILENCE_SECONDS, ChildProcess, Program
from moonfed.sandbox.policy import Level
from moonfed.sandbox.sandboxed import SandboxSpec

# Isolated, without working directory, user directory and PYTHONPATH; the search path is that of this process.
START = "import json, sys; sys.path += json.loads(sys.argv.pop(1)); from moonfed.sandbox.sandboxed import main; main()"
# Prefixes of the variables that configure libraries; all others, such as a proxy's password, are not passed on.
KEPT_VARIABLES = (
    "ATEN_", "CUBLAS_", "CUDA_", "CUDNN_", "DNNL_", "GOMP_", "KMP_", "LANG", "LC_", "LD_", "MKL_", "NVIDIA_", "OMP_",
    "ONEDNN_", "OPENBLAS_", "PYTORCH_", "TORCH_", "TZ",
)  # fmt: skip
NAME = "the plan's process"
SPARE_FILES = 8  # that a process may create besides its results, such as a decoded model


class JobDirectory:
    """The directory that a plan's process reads files from (`in`) and writes to (`out`); emptied for each job."""

    def __init__(self, root: Path, *private: Path) -> None:
        """`private`: directories outside `root` that the process must not read, such as the device's state."""
        self.root = root
        self.input = root / "in"
        self.output = root / "out"
        self.private = (root, *(directory.absolute() for directory in private))

    def require_few_files(self, most: int) -> None:
        """Raise TrainingFailed if the process has created more than `most` files."""
        with suppress(FileNotFoundError), os.scandir(self.output) as entries:  # it is being renewed
            if sum(1 for _ in islice(entries, most + 1)) > most:
                raise TrainingFailed(f"{NAME} created more than {most} files and was killed", field="files", value=most)

    def renew(self) -> None:
        """Replace the directories with new ones, which no running sandbox refers to."""
        if self.root.exists():
            _remove_tree(self.root)
        self.clear()

    def clear(self) -> None:
        """Delete all files, but keep the directories, because a running sandbox refers to them."""
        for directory in (self.input, self.output):
            directory.mkdir(parents=True, exist_ok=True)
            for entry in directory.iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    _remove_tree(entry)
                else:
                    entry.unlink()

    def create(self, names: Iterable[str]) -> None:
        """Create the empty files that the process will write to; in the sandbox it cannot create files itself."""
        for name in names:
            (self.output / name).touch(0o600)

    def add(self, file: str | Path, name: str) -> str:
        """Make a file readable for the job, under a new name; return its path."""
        target = self.input / name
        try:
            os.link(file, target)
        except OSError:  # the file system has no hard links
            shutil.copyfile(file, target)
        return str(target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """The level, and the bounds of memory and of files that it writes, in bytes."""

    level: Level
    accelerator: str
    max_memory: int | None = None  # None: what the machine has available
    file_size: int = 1 << 20
    files: int = SPARE_FILES  # that it may create
    mapped: int = 0  # bytes of files that it maps, which are not in its private memory

    @property
    def memory(self) -> int | None:
        """The process's private memory; None on CUDA, whose driver reserves addresses far beyond the memory."""
        return None if self.accelerator == "cuda" else self.max_memory or host_available()


def sandboxed_process(
    task: str,
    settings: Mapping[str, Any],
    sandbox: Sandbox,
    directory: JobDirectory,
    files: tuple[int, ...] = (),
    silence_seconds: float = SILENCE_SECONDS,
) -> ChildProcess:
    """Return a process that runs a module; `settings` are the task's, `files` the descriptors to inherit."""
    environment = _environment(directory.output)
    libraries = [path for path in environment.get("LD_LIBRARY_PATH", "").split(os.pathsep) if path]
    # A task imports its part, and what jobs are made of. In a development install, each is in a folder of its own.
    packages = [moonfed, *map(importlib.import_module, (".".join(task.split(".")[:2]), "moonfed.fleet"))]
    ours = [path for package in packages for path in package.__path__ if Path(path).is_dir()]
    search_path = _search_path(directory)
    spec = SandboxSpec(
        task=task,
        level=sandbox.level,
        read=(*_outside(directory, [*ours, *libraries]), str(directory.input)),
        output=str(directory.output),
        private=tuple(map(str, directory.private)),
        memory=sandbox.memory,
        mapped=sandbox.mapped,
        file_size=sandbox.file_size,
        cuda=sandbox.accelerator == "cuda",
        settings=settings,
    )
    command = [sys.executable, "-I", "-c", START, json.dumps(search_path), spec.to_json()]
    program = Program(
        name=NAME,
        command=command,
        cwd=directory.output,
        env=environment,
        files=files,
        log_output=True,
        check=partial(directory.require_few_files, sandbox.files),
    )
    return ChildProcess(program, silence_seconds)


def _remove_tree(directory: Path) -> None:
    """Remove a directory even if its contents lack permissions."""
    directory.chmod(0o700)
    for root, names, _ in os.walk(directory):
        for name in names:
            if not Path(root, name).is_symlink():
                Path(root, name).chmod(0o700)
    shutil.rmtree(directory)


def shared_file() -> tuple[int, int]:
    """Return an unnamed file, opened for writing and for reading; in memory, where the system supports that.

    It cannot be opened again for writing, such as through /proc/self/fd: its mode forbids that even to its owner, and
    the sandbox permits neither changes of modes nor the privilege to ignore them. Nor can it be sealed, which would
    keep us from writing it.
    """
    if hasattr(os, "memfd_create"):
        written = os.memfd_create("samples")
        read = os.open(f"/proc/self/fd/{written}", os.O_RDONLY)
    else:
        import tempfile  # a megabyte, which Linux does not need

        with tempfile.NamedTemporaryFile() as file:
            written, read = os.dup(file.fileno()), os.open(file.name, os.O_RDONLY)
    os.fchmod(written, stat.S_IRUSR)
    return written, read


def mapped_size(files: Iterable[int]) -> int:
    """Return the bytes of open files that a process may map."""
    return sum(os.fstat(file).st_size for file in files)


def _environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name.startswith(KEPT_VARIABLES)}
    # No program can be started, so none can be found: torch's imports look for a compiler, which needs new files.
    return {**kept, "HOME": str(home), "TMPDIR": str(home), "PATH": ""}


def _search_path(directory: JobDirectory) -> list[str]:
    """Return the directories that this process imports from, for the sandbox to read.

    Directories above the job or the state are omitted: they hold the device's key, or are the working directory.
    """
    return [path for path in _outside(directory, sys.path) if Path(path) != Path.cwd()]


def _outside(directory: JobDirectory, paths: list[str]) -> list[str]:
    """Return the paths that do not contain a private directory."""
    private = [path.resolve() for path in directory.private]
    return [
        path
        for path in paths
        if Path(path).is_absolute() and not any(each.is_relative_to(Path(path).resolve()) for each in private)
    ]
