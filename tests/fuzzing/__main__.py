"""Fuzz decoders: `python -m tests.fuzzing [NAME …] --inputs 100000`; the exit code is 1 if anything was found."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.fuzzing.all_decoders import DECODERS
from tests.fuzzing.campaign import default_engine, fuzz
from tests.fuzzing.worker import ATHERIS, MUTATION


def main() -> int:
    """Run a campaign and print what each decoder raised."""
    names = [decoder.name for decoder in DECODERS]
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description="Fuzz moonfed's decoders.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"decoders, by default all: {', '.join(names)}")
    parser.add_argument("--inputs", type=int, default=100_000, help="for each decoder")
    parser.add_argument("--seconds", type=int, default=0, help="at most, for each decoder; 0: no limit")
    parser.add_argument("--output", type=Path, default=Path("build/fuzz"), help="corpora and findings")
    parser.add_argument("--engine", choices=(ATHERIS, MUTATION), default=default_engine())
    chosen = parser.parse_args()
    if unknown := sorted(set(chosen.names) - set(names)):
        parser.error(f"NAME is {unknown[0]!r}; it must be one of {', '.join(names)}")
    found = False
    for name in chosen.names or names:
        outcome = fuzz(name, chosen.inputs, chosen.seconds, chosen.output, chosen.engine)
        print(outcome, flush=True)
        found = found or bool(outcome.findings)
    return int(found)


if __name__ == "__main__":
    sys.exit(main())
