"""Size and speed of the encodings of models on the wire."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.report import Figure, Tables, progress
from moonfed.blobs.encoded_models import decode_model, encode_model
from moonfed.blobs.schema import TensorSpec, model_size
from moonfed.blobs.tensors import write_model
from moonfed.encodings import known_encodings, parse_encoding

BYTES_AT_MOST = {"rotated4": 0.13, "rotated1": 0.036}  # relative to float32
VALUES = 11_200_000  # of the timed model: 44.8 MB, in four layers


def measure_encodings(values: int = VALUES) -> Tables:
    """Encode and decode a model whose change is noise, the worst case for compression, in one thread."""
    specs = tuple(TensorSpec(f"layer{number}.weight", (values // 4,), "parameter") for number in range(4))
    generator, size = np.random.default_rng(0), model_size(specs)
    with tempfile.TemporaryDirectory() as directory:
        files = {name: Path(directory) / name for name in ("begun", "trained", "zero", "error", "encoded", "decoded")}
        begun = generator.normal(0, 0.05, size).astype(np.float32)
        write_model(files["begun"], specs, [begun])
        write_model(files["trained"], specs, [begun + generator.normal(0, 0.001, size).astype(np.float32)])
        write_model(files["zero"], specs, [np.zeros(size, np.float32)])
        for name in known_encodings()[1:]:
            progress(f"encoding and decoding {4 * size / 1e6:.1f} MB, {name}")
            encoding = parse_encoding("encoding", name)
            base = files["begun"] if encoding.lossy else None
            error, left = (files["zero"], files["error"]) if encoding.lossy else (None, None)
            started = time.perf_counter()
            encode_model(
                files["trained"], files["encoded"], specs, encoding, initial_model=base, error=error, new_error=left
            )
            encoded = time.perf_counter()
            decode_model(files["encoded"], files["decoded"], specs, encoding, initial_model=base)
            decoded = time.perf_counter()
            ratio = files["encoded"].stat().st_size / files["begun"].stat().st_size
            most = BYTES_AT_MOST.get(encoding.number)
            yield [
                Figure(name=f"{name}: bytes / float32", value=ratio, unit="times", at_most=most),
                Figure(name=f"{name}: encoding {4 * size / 1e6:.1f} MB", value=encoded - started, unit="s"),
                Figure(name=f"{name}: decoding", value=decoded - encoded, unit="s"),
            ]
