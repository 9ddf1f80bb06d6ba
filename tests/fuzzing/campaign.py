"""A fuzzing campaign: each decoder runs in its own process, which is restarted when an input kills it."""

from __future__ import annotations

import hashlib
import importlib.util
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.fuzzing.shared_input import SharedInput
from tests.fuzzing.worker import ATHERIS, MUTATION

ALL = "tests.fuzzing.all_decoders:DECODERS"
DEATHS = 20  # after which a decoder is given up
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The findings in one decoder."""

    decoder: str
    inputs: int
    seconds: float
    findings: tuple[str, ...]  # one line each

    def __str__(self) -> str:
        lines = [f"{self.decoder}: {self.inputs:,} inputs in {self.seconds:.0f} s, {len(self.findings)} findings"]
        return "\n  ".join([*lines, *self.findings])


def default_engine() -> str:
    """Return the coverage-guided engine if it is installed, else mutation."""
    return ATHERIS if importlib.util.find_spec("atheris") else MUTATION


def fuzz(name: str, inputs: int, seconds: int, output: Path, engine: str, source: str = ALL) -> Outcome:
    """Feed one decoder that many inputs, or for that many seconds (0: no limit); findings stay in `output`."""
    directory = output.absolute() / name
    directory.mkdir(parents=True, exist_ok=True)
    shared = SharedInput(directory / "state")
    first, started, deaths = shared.count, time.monotonic(), 0
    while (left := inputs - (shared.count - first)) > 0 and deaths < DEATHS:
        remaining = max(1, seconds - int(time.monotonic() - started)) if seconds else 0
        code = _run(source, name, engine, left, remaining, directory)
        if code == 0:
            break
        deaths += 1
        _record_death(directory / "findings", code, shared.last)
    findings = sorted(path.read_text("utf-8").partition("\n")[0] for path in directory.glob("findings/*.txt"))
    return Outcome(
        decoder=name, inputs=shared.count - first, seconds=time.monotonic() - started, findings=tuple(findings)
    )


def _run(source: str, name: str, engine: str, inputs: int, seconds: int, directory: Path) -> int:
    command = [sys.executable, "-m", "tests.fuzzing.worker", source, name, engine, str(inputs), str(seconds)]
    with (directory / "log").open("ab") as log:
        return subprocess.run([*command, str(directory)], cwd=ROOT, stdout=log, stderr=log, check=False).returncode


def _record_death(findings: Path, code: int, content: bytes) -> None:
    reason = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    name = f"death-{hashlib.sha256(content).hexdigest()[:12]}"
    findings.mkdir(exist_ok=True)
    (findings / name).write_bytes(content)
    (findings / f"{name}.txt").write_text(f"the process {reason} on {name}\n", encoding="utf-8")
