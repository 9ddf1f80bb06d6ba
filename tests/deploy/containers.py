"""Containers that run their images' programs as a container runtime would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from tests.deploy.image_builder import Builder

WAIT = 120.0  # seconds; a program that takes longer is considered stuck


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container of an image, on this machine's network; the image's own volumes last as long as the container."""

    builder: Builder
    name: str
    entrypoint: tuple[str, ...]
    arguments: tuple[str, ...]  # those of a container that is started without any
    stop_signal: signal.Signals
    options: tuple[str, ...] = ()

    def given(self, volumes: Mapping[Path, str], environment: Mapping[str, str] | None = None) -> Container:
        """Return this container with other volumes, which are read-only, and other variables."""
        mounts = [word for path, mounted in volumes.items() for word in ("--volume", f"{path}:{mounted}:ro")]
        variables = [word for name, value in (environment or {}).items() for word in ("--env", f"{name}={value}")]
        return replace(self, options=(*mounts, *variables))

    def command(self, *arguments: str) -> list[str]:
        """Return the command that runs the image's program, as the image's user."""
        options = ["--isolation", "chroot", *self.options]
        return self.builder.command("run", *options, self.name, "--", *self.entrypoint, *arguments)

    def finish(self, *arguments: str, code: int = 0) -> str:
        """Run the program to its end; return its output, or its errors if it is to fail."""
        with self.started(*arguments, errors=subprocess.PIPE) as process:
            output, errors = process.communicate(timeout=WAIT)
        assert process.returncode == code, output + errors
        return str(errors if code else output)

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Run the program until the context ends; then it must exit with 0 on the image's stop signal."""
        with tempfile.TemporaryFile("w+") as log, self.started(*arguments, errors=log.fileno()) as process:
            try:
                yield process
                os.kill(program(process.pid), self.stop_signal)
                assert process.wait(WAIT) == 0
            finally:
                log.seek(0)
                print(log.read())  # pytest shows it if the test fails

    @contextmanager
    def started(self, *arguments: str, errors: int) -> Iterator[subprocess.Popen[str]]:
        """Start the program; kill what is left of it when the context ends."""
        with subprocess.Popen(
            self.command(*arguments), stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        ) as process:
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def create(builder: Builder, image: str) -> Container:
    """Create a container of an image, which must not run as root."""
    config = json.loads(builder.buildah("inspect", "--type", "image", image))["OCIv1"]["config"]
    assert config["User"] not in ("", "0", "root")
    return Container(
        builder=builder,
        name=builder.buildah("from", image),
        entrypoint=tuple(config["Entrypoint"]),
        arguments=tuple(config["Cmd"]),
        stop_signal=signal.Signals[config["StopSignal"]],
    )


def program(pid: int) -> int:
    """Return the process that a container runs: the first below those of buildah."""
    process = psutil.Process(pid)
    while process.cmdline()[0].startswith("buildah"):
        (process,) = process.children()
    return int(process.pid)
