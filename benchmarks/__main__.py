"""Run every benchmark, or the named ones: `python -m benchmarks cpu fleet`.

Each table is printed, and saved to build/bench/NAME.json, as soon as it is measured. `device` combines `cpu`, `cuda`
and `footprint`; `coordinator` includes `encodings`. `encodings-accuracy` and `robust` (half an hour
each; Fashion-MNIST only if FASHION_MNIST names the folder with torchvision's files), `attacks`, `server-attacks` and
`metrics` run only if named.

Bundles are signed with a temporary key: the user's keys are neither read nor created.
"""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.cuda import measure_cuda
from benchmarks.device import measure_cpu, measure_device
from benchmarks.footprint import measure_footprint
from benchmarks.report import Tables, record
from moonfed.signing.key_files import KEYS_VARIABLE

OUTPUT = Path("build/bench")
THREADS = 2  # for every CPU figure that does not say otherwise


# A device with an accelerator may have only some of moonfed's dependencies, so the imports below are deferred.


def measure_tasks() -> Tables:
    from benchmarks import tasks

    return tasks.measure_tasks()


def measure_parts() -> Tables:
    from benchmarks import parts

    return parts.measure_parts()


def measure_plan_formats() -> Tables:
    from benchmarks import plan_formats

    return plan_formats.measure_plan_formats()


def measure_fleet() -> Tables:
    from benchmarks import fleet

    return fleet.measure_fleet()


def measure_coordinator() -> Tables:
    from benchmarks import coordinator

    yield from coordinator.measure_coordinator()
    yield from measure_encodings()


def measure_encodings() -> Tables:
    from benchmarks import encodings

    return encodings.measure_encodings()


def measure_privacy() -> Tables:
    from benchmarks import privacy

    return privacy.measure_privacy()


def measure_encodings_accuracy() -> Tables:
    from benchmarks import encodings_accuracy, robust

    return encodings_accuracy.measure_encodings_accuracy(robust.data_folder())


def measure_metrics() -> Tables:
    from benchmarks import metrics

    return metrics.measure_metrics()


def measure_serving() -> Tables:
    from benchmarks import serving

    return serving.measure_serving()


def measure_sandbox() -> Tables:
    from benchmarks import sandbox

    return sandbox.measure_sandbox()


def measure_predictor() -> Tables:
    from benchmarks import predictor

    return predictor.measure_predictor()


def measure_server_attacks() -> Tables:
    from benchmarks import server_attacks

    return server_attacks.measure_server_attacks()


def measure_console() -> Tables:
    from benchmarks import console

    return console.measure_console()


def measure_robust() -> Tables:
    from benchmarks import robust

    return robust.measure_robust(robust.data_folder())


def measure_attacks() -> Tables:
    from benchmarks import attacks

    return attacks.measure_attacks()


BENCHMARKS: dict[str, Callable[[], Tables]] = {
    "device": measure_device,
    "tasks": measure_tasks,
    "parts": measure_parts,
    "plan-formats": measure_plan_formats,
    "fleet": measure_fleet,
    "coordinator": measure_coordinator,
    "metrics": measure_metrics,
    "serving": measure_serving,
    "server-attacks": measure_server_attacks,
    "encodings": measure_encodings,
    "privacy": measure_privacy,
    "attacks": measure_attacks,
    "robust": measure_robust,
    "encodings-accuracy": measure_encodings_accuracy,
    "cpu": measure_cpu,
    "cuda": measure_cuda,
    "footprint": measure_footprint,
    "sandbox": measure_sandbox,
    "predictor": measure_predictor,
    "console": measure_console,
}
DEFAULT = ("device", "tasks", "sandbox", "predictor", "fleet", "coordinator", "privacy", "serving", "console")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="*", default=DEFAULT, help=", ".join(BENCHMARKS))
    names = parser.parse_args().name
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        sys.exit(f"benchmark is {unknown.pop()!r}; it must be one of {', '.join(BENCHMARKS)}")
    torch.set_num_threads(THREADS)
    with TemporaryDirectory(prefix="moonfed-") as keys:
        os.environ[KEYS_VARIABLE] = keys
        for name in names:
            record(BENCHMARKS[name](), OUTPUT / f"{name}.json")


if __name__ == "__main__":
    main()
