"""What encodings save on the wire, what they cost in time, and whether anything is lost of what is learned.

Bytes are those of updates as the coordinator has receipts for them. Accuracies are final ones of simulations on the
digits, five parties of uneven classes, several seeds; each seed's two simulations differ in their encodings alone. The
rounds are enough for accuracies to stand still: before that they jump by several points from round to round, and the
last one would say more about chance than about encodings.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.report import Figure, say
from coordinator.records import AttemptId
from coordinator.storage.state_directory import open_state
from experiments.fleet.engine import EngineSettings
from experiments.fleet.layout import RUN, Layout
from experiments.fleet.run import run_simulation
from experiments.simulation import Simulation
from moonfed.bundle import read_bundle
from moonfed.encoded_models import decode_model, encode_model
from moonfed.encodings import KNOWN, PLAIN, parse_encoding
from moonfed.manifest import MODEL
from moonfed.schema import TensorSpec, model_size
from moonfed.tensors import file_size, write_model

SEEDS, ROUNDS, PARTIES, WORKERS = 5, 20, 5, 2
VALUES = 11_200_000  # of the model whose encoding is timed: 44.8 MB, in four layers


def measure_encodings(seeds: int = SEEDS, rounds: int = ROUNDS, values: int = VALUES) -> list[Figure]:
    return [*_learning(seeds, rounds), *_times(values)]


def _learning(seeds: int, rounds: int) -> list[Figure]:
    accuracies: dict[str, list[float]] = {str(PLAIN): [], "int8": []}
    ratios: list[float] = []
    for seed in range(seeds):
        for up, found in accuracies.items():
            say(f"digits, seed {seed}, {up} up")
            with tempfile.TemporaryDirectory() as directory:
                accuracy, ratio = _simulated(Path(directory) / "simulation", seed, rounds, up)
            say(f"accuracy {100 * accuracy:.2f} %, bytes {ratio:.4f} of float32's")
            found.append(100 * accuracy)
            ratios.append(ratio)
    means = {up: statistics.fmean(found) for up, found in accuracies.items()}
    return [
        Figure(name="digits, final accuracy, float32 up", value=means[str(PLAIN)], unit="%"),
        Figure(name="digits, final accuracy, int8 up", value=means["int8"], unit="%"),
        Figure(name="accuracy lost to int8 up", value=means[str(PLAIN)] - means["int8"], unit="points", at_most=0.5),
        Figure(name="bytes up, int8 / float32", value=max(ratios[1::2]), unit="times", at_most=0.27),
    ]


def _simulated(output: Path, seed: int, rounds: int, up: str) -> tuple[float, float]:
    """The final accuracy, and an update's model in bytes over those of the float32 file."""
    simulation = Simulation(
        dataset="digits",
        parties=PARTIES,
        rounds=rounds,
        beta=0.5,
        settings={"epochs": 10, "batch_size": 32},
        uplink_encoding=up,
        seed=seed,
    )
    result = run_simulation(simulation, output, engine=EngineSettings(workers=WORKERS))
    plain = file_size(read_bundle(result.bundle).manifest.tensors)
    with open_state(Layout(output).coordinator) as state:
        last = AttemptId(run=RUN, round=rounds, attempt=1)
        sent = [answer.blobs[MODEL].size for answer in state.store.answers(last)]
    return result.accuracy, statistics.fmean(sent) / plain


def _times(values: int) -> list[Figure]:
    """Of a model whose change is noise, which compresses worst, in one thread."""
    specs = tuple(TensorSpec(f"layer{number}.weight", (values // 4,), "parameter") for number in range(4))
    generator, size, figures = np.random.default_rng(0), model_size(specs), []
    with tempfile.TemporaryDirectory() as directory:
        files = {name: Path(directory) / name for name in ("begun", "trained", "zero", "error", "encoded", "decoded")}
        begun = generator.normal(0, 0.05, size).astype(np.float32)
        write_model(files["begun"], specs, [begun])
        write_model(files["trained"], specs, [begun + generator.normal(0, 0.001, size).astype(np.float32)])
        write_model(files["zero"], specs, [np.zeros(size, np.float32)])
        for name in KNOWN[1:]:
            say(f"encoding and decoding {4 * size / 1e6:.1f} MB, {name}")
            encoding = parse_encoding("encoding", name)
            base = files["begun"] if encoding.lossy else None
            feedback = {"error": files["zero"], "new_error": files["error"]} if encoding.lossy else {}
            started = time.perf_counter()
            encode_model(files["trained"], files["encoded"], specs, encoding, begun_with=base, **feedback)
            encoded = time.perf_counter()
            decode_model(files["encoded"], files["decoded"], specs, encoding, begun_with=base)
            decoded = time.perf_counter()
            ratio = files["encoded"].stat().st_size / files["begun"].stat().st_size
            figures += [
                Figure(name=f"{name}: bytes / float32", value=ratio, unit="times"),
                Figure(name=f"{name}: encoding {4 * size / 1e6:.1f} MB", value=encoded - started, unit="s"),
                Figure(name=f"{name}: decoding", value=decoded - encoded, unit="s"),
            ]
    return figures
