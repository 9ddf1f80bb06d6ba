"""Peak memory of one contender, in its own process: `python -m benchmarks.peak_memory [CONTENDER WORKLOAD]`, in bytes.

On the CPU: the peak resident set of a training process above that of one that only imports torch and numpy. On CUDA:
torch's peak allocation. Linux reports VmHWM, which starts at zero with each program; elsewhere getrusage's ru_maxrss
is used, which includes the parent's memory at the time of the fork.
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

import numpy  # noqa: F401 - part of the reference process's memory
import torch

if TYPE_CHECKING:
    from benchmarks.contenders import Contender, Workload

EPOCHS = 2  # later epochs need no more memory


def peak_megabytes(contender: Contender, work: Workload) -> float:
    """Return the peak memory of training in MB; on the CPU it includes some megabytes of imported code."""
    taken = _child(json.dumps(asdict(contender)), json.dumps(asdict(replace(work, epochs=EPOCHS))))
    return (taken - (0 if work.accelerator == "cuda" else _torch_alone())) / 1e6


@cache
def _torch_alone() -> int:
    return _child()


def _child(*arguments: str) -> int:
    command = [sys.executable, "-m", "benchmarks.peak_memory", str(torch.get_num_threads()), *arguments]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main() -> None:
    torch.set_num_threads(int(sys.argv[1]))
    if len(sys.argv) > 2:
        from benchmarks.contenders import Contender, Workload, new_round

        work = Workload(**json.loads(sys.argv[3]))
        new_round(Contender(**json.loads(sys.argv[2])), work)(work.epochs)
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
