"""Peak memory of one side, in a process of its own: `python -m benchmarks.peak [SIDE WORK]` prints bytes.

On the CPU: the largest resident set of a process that trains, above that of one that only imports torch (and the numpy
that torch works with). On CUDA: what torch allocated at most. Linux tells VmHWM, which begins anew with each program;
getrusage's ru_maxrss, taken elsewhere, counts what the parent held when it started the child.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy  # noqa: F401 - for what it weighs
import torch

if TYPE_CHECKING:
    from benchmarks.sides import Side, Work

EPOCHS = 2  # later ones need no more memory


def peak_megabytes(side: Side, work: Work) -> float:
    """What training takes; the code that both sides import is in it, some megabytes on the CPU."""
    taken = _child(json.dumps(asdict(side)), json.dumps(asdict(replace(work, epochs=EPOCHS))))
    return (taken - (0 if work.accelerator == "cuda" else _torch_alone())) / 1e6


@cache
def _torch_alone() -> int:
    return _child()


def _child(*arguments: str) -> int:
    command = [sys.executable, "-m", "benchmarks.peak", str(torch.get_num_threads()), *arguments]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]))
    if len(sys.argv) > 2:
        from benchmarks.sides import Side, Work, new_round

        work = Work(**json.loads(sys.argv[3]))
        new_round(Side(**json.loads(sys.argv[2])), work)(work.epochs)
        if work.accelerator == "cuda":
            print(torch.cuda.max_memory_allocated())
            return
    print(_largest_resident_set())


def _largest_resident_set() -> int:
    status = Path("/proc/self/status")
    if status.is_file():
        return next(1024 * int(line.split()[1]) for line in status.read_text().splitlines() if line[:6] == "VmHWM:")
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
