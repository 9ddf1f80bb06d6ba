"""Representations of trained models, laid out in the plane by t-SNE (van der Maaten, Hinton 2008)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from moonfed.blobs.tensors import open_model, split
from moonfed.bundle.files import read_bundle
from moonfed.experiments.datasets import SplitDataSet, load_dataset
from moonfed.experiments.fleet.preparation import bundle_recipe
from moonfed.experiments.fleet.results import SimulationResult
from moonfed.experiments.fleet.run import party_model
from moonfed.experiments.plots import draw_points, picture, share_legend
from moonfed.experiments.simulation import POOLED
from moonfed.experiments.subsets import subset
from moonfed.export.model_zoo import build_network

BATCH = 250


def draw_vectors(
    path: Path, title: str, results: Sequence[tuple[str, SimulationResult]], data: Path | None, *, samples: int
) -> None:
    """Draw the representations of each labelled simulation's models.

    `samples`: number of test samples, the same for all models. `data`: the folder with the data set's files.
    """
    shown = [(f"{label}, {name}", result, file) for label, result in results for name, file in _models(result)]
    loaded = _test_samples(results[0][1], data, samples)
    columns = 2 if len(shown) % 2 == 0 else len(shown)
    rows = len(shown) // columns
    with picture(path, rows, columns, width=3.4, height=3.4, title=f"{title}: t-SNE, marked by class") as grid:
        for axes, (label, result, file) in zip(grid, shown, strict=True):
            points = to_plane(hidden_vectors(result, file, loaded))
            draw_points(axes, points, loaded.test.labels, len(loaded.classes))
            axes.set_title(label, fontsize=9)
        share_legend(grid, title="class")


def _models(result: SimulationResult) -> list[tuple[str, Path]]:
    """Return the model of pooled data; else the global model, if there is one, and the first party's own."""
    first = result.simulation.names[0]
    own = party_model(result.output, first)
    if result.simulation.method == POOLED and result.model:
        return [("all samples", result.model)]
    return [("global model", result.model), (f"{first}'s model", own)] if result.model else [(first, own)]


def _test_samples(result: SimulationResult, data: Path | None, samples: int) -> SplitDataSet:
    loaded = load_dataset(result.simulation.dataset, data)
    return subset(loaded, train_samples=0, test_samples=min(samples, len(loaded.test.labels)), seed=0)


def hidden_vectors(result: SimulationResult, model_file: Path, data: SplitDataSet) -> npt.NDArray[np.float32]:
    """Compute z of the test samples [N, D] under the simulation's network with that model's weights."""
    recipe = bundle_recipe(result.simulation, data)
    network = build_network(
        recipe.model,
        recipe.input,
        recipe.target,
        mean=recipe.mean,
        deviation=recipe.deviation,
        projection=recipe.head,
    )
    manifest = read_bundle(result.bundle).manifest
    weights = split(open_model(model_file, manifest.tensors), manifest.tensors)
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in weights.items()}
    network.load_state_dict({**network.state_dict(), **tensors})  # BatchNorm's step counts are not exchanged
    network.eval()
    with torch.no_grad():
        starts = range(0, len(data.test.inputs), BATCH)
        batches = (torch.from_numpy(data.test.inputs[start : start + BATCH]) for start in starts)
        return torch.cat([network.represent(batch) for batch in batches]).numpy()


def to_plane(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Lay out vectors [N, D] as points [N, 2] with the same neighbourhoods; the layout is reproducible."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="openmp"):  # more threads than idle cores wait for each other, for minutes
        points: npt.NDArray[np.float32] = TSNE(n_components=2, init="pca", random_state=0).fit_transform(vectors)
    return points
