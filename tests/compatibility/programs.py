"""The programs of one release or the other in a federation."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from moonfed.experiments.child_processes import run
from tests.federation.conftest import Federation
from tests.support.forked_process import PATCHES
from tests.support.session_cache import cached

BUNDLE = (
    *("bundle", "--model", "cnn", "--input", "8x8x1", "--classes", "10", "--projection", "none"),
    *("--set", "batch_size=32", "--set", "epochs=1"),
)


@dataclass(frozen=True)
class Programs:
    """One release's programs; `directory` is empty for this one's."""

    directory: Path = Path()

    def __call__(self, program: str, *words: str) -> str:
        return run(str(self.directory / program), *words)

    def json(self, program: str, *words: str) -> Any:
        return json.loads(self(program, *words, "--json"))

    @property
    def python(self) -> str:
        return str(self.directory / "python") if self.directory.parts else sys.executable

    def bundle(self, *options: str) -> Path:
        """Return a bundle for the digits that this release's program has built."""
        words = (*BUNDLE, *options)
        with mock.patch.dict(os.environ, {PATCHES: "tests.support.with_graph_plans"}):
            return cached(
                " ".join((str(self.directory), *words)).encode(),
                lambda path: self("moonfed-export", *words, "--output", str(path)),
            )


@contextmanager
def programs_of(federation: Federation, programs: Programs) -> Iterator[None]:
    """Let the federation start a release's programs."""
    federation.programs = programs.directory
    yield
    federation.programs = Path()
