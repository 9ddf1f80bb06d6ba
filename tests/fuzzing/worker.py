"""One fuzzing process: it feeds one decoder until a number of inputs is reached or an input kills it.

python -m tests.fuzzing.worker MODULE:DECODERS NAME ENGINE INPUTS SECONDS DIRECTORY
"""

from __future__ import annotations

import hashlib
import importlib
import signal
import sys
import time
import traceback
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from tests.fuzzing.shared_input import SharedInput

ATHERIS, MUTATION = "atheris", "mutation"
HANG_SECONDS = 30
MEMORY_MEGABYTES = 4096
# Instrumented for coverage, besides moonfed: parsers in Python that decoders rely on.
_LIBRARIES = ("moonfed", "google.protobuf.text_format", "zipfile", "numpy.lib", "numpy.lib._format_impl")


class Harness:
    """Feeds a decoder, and writes each new way of failing to a file."""

    def __init__(self, decoder: Any, directory: Path) -> None:
        from tests.fuzzing.decoder import location

        self._decoder, self._location = decoder, location
        self._findings = directory / "findings"
        self._findings.mkdir(parents=True, exist_ok=True)
        self._shared = SharedInput(directory / "state")

    def feed(self, content: bytes) -> None:
        """Decode one input."""
        self._shared.begin(content)
        error = self._decoder.check(content)
        if error is not None:
            self._record(content, error)

    def _record(self, content: bytes, error: BaseException) -> None:
        place = self._location(error)
        name = hashlib.sha256(place.encode()).hexdigest()[:12]
        if not (self._findings / name).exists():
            (self._findings / name).write_bytes(content)
            text = "".join(traceback.format_exception(error))
            (self._findings / f"{name}.txt").write_text(f"{place}\n{text}", encoding="utf-8", errors="replace")


def main() -> None:
    """Run one worker; see the module."""
    source, name, engine, inputs, seconds, directory = sys.argv[1:]
    run = {ATHERIS: _run_atheris, MUTATION: _run_mutation}[engine]
    run(source, name, int(inputs), int(seconds), Path(directory))


def _load(source: str, name: str) -> Any:
    module, _, attribute = source.partition(":")
    return next(each for each in getattr(importlib.import_module(module), attribute) if each.name == name)


def _run_atheris(source: str, name: str, inputs: int, seconds: int, directory: Path) -> None:
    import atheris

    with atheris.instrument_imports(include=[*_LIBRARIES, source.partition(":")[0]]):
        decoder = _load(source, name)
    corpus = directory / "corpus"
    corpus.mkdir(exist_ok=True)
    seeds = [*decoder.seeds(), *decoder.stored().values()]
    for seed in seeds:
        (corpus / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    options = [
        f"-runs={inputs}",
        f"-max_total_time={seconds}",
        f"-max_len={max(decoder.largest, *map(len, seeds))}",
        f"-timeout={HANG_SECONDS}",
        f"-rss_limit_mb={MEMORY_MEGABYTES}",
        f"-dict={_dictionary(seeds, directory)}",
        f"-artifact_prefix={directory}/",
        "-print_final_stats=1",
    ]
    harness = Harness(decoder, directory)
    atheris.Setup([sys.argv[0], str(corpus), *options], harness.feed)
    atheris.Fuzz()


def _dictionary(seeds: list[bytes], directory: Path) -> Path:
    from tests.fuzzing.mutation import words

    lines = ['"' + "".join(f"\\x{byte:02x}" for byte in word) + '"' for word in words(seeds) if len(word) <= 64]
    path = directory / "dictionary"
    path.write_text("\n".join(lines) + "\n")
    return path


def _run_mutation(source: str, name: str, inputs: int, seconds: int, directory: Path) -> None:
    from tests.fuzzing.mutation import mutants

    decoder = _load(source, name)
    harness = Harness(decoder, directory)
    seeds = [*decoder.seeds(), *decoder.stored().values()]
    alarm: Callable[[int], int] = getattr(signal, "alarm", lambda _: 0)
    end = time.monotonic() + seconds if seconds else float("inf")
    for content in islice(mutants(seeds, time.time_ns(), decoder.largest), inputs):
        alarm(HANG_SECONDS)  # which ends the process
        harness.feed(content)
        if time.monotonic() > end:
            break
    alarm(0)


if __name__ == "__main__":
    main()
