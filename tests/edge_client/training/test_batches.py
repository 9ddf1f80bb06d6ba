"""Every batch holds its own samples' rows, labels, references and draws, wherever the data lie."""

from __future__ import annotations

import pytest
import torch

from moonfed.edge_client.training.batches import Batch, BatchFeed
from moonfed.edge_client.training.data_placement import Memory, Samples
from moonfed.edge_client.training.rng import epoch_batches, sample_draws
from tests.support.recording import RecordingPlan, numbered, settings

CPU = torch.device("cpu")
PLENTY = Memory(host=10**12)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def feed(plan: RecordingPlan, data: Samples, memory: Memory = PLENTY, **fields: object) -> BatchFeed:
    return BatchFeed(plan, data, settings(**fields), CPU, memory, lambda: None)


def taken(made: BatchFeed, epoch: int, batches: torch.Tensor) -> list[Batch]:
    """Return copies of an epoch's batches."""
    made.begin(epoch, batches)
    found = []
    for _ in batches:
        made.fill()
        found.append(Batch(*(buffer.clone() for buffer in made.batch)))
    return found


def test_a_batch_holds_its_samples_labels_references_and_draws() -> None:
    data = Samples(inputs=torch.arange(10.0).view(-1, 1), targets=torch.arange(10) + 100)
    chosen, made = settings(views=1), feed(RecordingPlan(references=2, draws=3), data, views=1)
    draws = sample_draws(10, 3, chosen, 0)
    for epoch in (1, 2):
        batches = epoch_batches(10, chosen, epoch)
        for index, batch in zip(batches, taken(made, epoch, batches), strict=True):
            assert batch.inputs.flatten().tolist() == index.tolist()
            assert torch.equal(batch.targets, index + 100)
            assert torch.equal(batch.draws, draws[index])
            expected = (index + draws[index].sum(1)).view(-1, 1, 1).repeat(1, 2, 3)
            torch.testing.assert_close(batch.references, expected)


def test_batches_and_references_of_mapped_samples_are_those_of_their_rows() -> None:
    rows, told = torch.tensor([3, 11, 4, 9, 0, 7, 8, 2, 10, 6]), list[int]()
    everything = torch.arange(12.0).view(-1, 1)
    data = Samples(
        inputs=everything, targets=torch.arange(12) + 100, rows=rows, expect=lambda some: told.extend(some.tolist())
    )
    copied = Samples(inputs=everything[rows], targets=rows + 100)
    batches = epoch_batches(10, settings(views=1), 1)
    expected = taken(feed(RecordingPlan(references=2, draws=3), copied, views=1), 1, batches)
    made = feed(RecordingPlan(references=2, draws=3), data, views=1)
    made.begin(1, batches)
    told.clear()
    found = taken(made, 1, batches)
    for batch, wanted in zip(found, expected, strict=True):
        assert all(map(torch.equal, batch, wanted))
    assert told == rows[batches.flatten()].tolist(), "each batch is read ahead once"
    moved = data.to("cpu")
    assert torch.equal(moved.inputs, copied.inputs)
    assert moved.nbytes == data.nbytes == copied.bytes_on(CPU)


REFERENCES = 10 * 2 * 3 * 4  # bytes: of ten samples, two of width three


@pytest.mark.parametrize(
    ("host", "fields", "cached"),
    [
        (2 * REFERENCES, {}, True),
        (2 * REFERENCES - 1, {}, False),
        (2 * 3 * REFERENCES, {"views": 3, "epochs": 5}, True),  # all views count, though only one is there at first
        (2 * 3 * REFERENCES - 1, {"views": 3, "epochs": 5}, False),
        (2 * 2 * REFERENCES, {"views": 2, "epochs": 5, "max_steps": 6}, True),
        (2 * 2 * REFERENCES - 1, {"views": 2, "epochs": 5, "max_steps": 6}, False),
    ],
)
def test_references_that_do_not_fit_are_left_to_the_step(host: int, fields: dict[str, int], cached: bool) -> None:
    plan = RecordingPlan(references=2, draws=1 if fields else 0)
    made = feed(plan, numbered(10), Memory(host=host), **fields)
    batches = epoch_batches(10, settings(**fields), 1)
    first = taken(made, 1, batches)[0]
    assert first.references.numel() == (4 * 2 * 3 if cached else 0)
    assert plan.calls.count("references") == (3 if cached else 1), "one batch tells how large they are"
    assert first.inputs.shape == (4, 1)


@pytest.mark.parametrize(
    ("fields", "draws", "cached"),
    [
        ({"epochs": 1}, 0, False),
        ({"epochs": 2}, 0, True),
        ({"epochs": 9, "max_steps": 2}, 0, False),  # of which eight samples are wanted
        ({"epochs": 9, "max_steps": 3}, 0, True),  # and twelve
        ({"epochs": 3, "views": 3}, 1, False),
        ({"epochs": 4, "views": 3}, 1, True),
        ({"epochs": 9, "views": 2, "max_steps": 5}, 1, False),
        ({"epochs": 9, "views": 2, "max_steps": 6}, 1, True),
    ],
)
def test_references_are_precomputed_only_if_the_steps_use_more_of_them(
    fields: dict[str, object], draws: int, cached: bool
) -> None:
    """Ten samples in batches of four, two steps in an epoch."""
    plan = RecordingPlan(references=2, draws=draws)
    made = feed(plan, numbered(10), PLENTY, **fields)
    batch = taken(made, 1, epoch_batches(10, settings(**fields), 1))[0]
    assert batch.references.numel() == (4 * 2 * 3 if cached else 0)
    assert plan.calls.count("references") == (3 if cached else 0)


@needs_cuda
@pytest.mark.parametrize("host", [True, False])
@pytest.mark.parametrize("references", [0, 2])
def test_batches_are_the_same_wherever_the_data_lie(host: bool, references: int) -> None:
    cuda, chosen = torch.device("cuda"), settings(epochs=3, views=2)
    data, plan = numbered(1000), RecordingPlan(references=references, draws=2)
    there = BatchFeed(
        plan,
        data if host else data.to("cuda"),
        chosen,
        cuda,
        Memory(host=10**12, accelerator=0 if host else 10**9),
        lambda: None,
    )
    here = feed(RecordingPlan(references=references, draws=2), data, epochs=3, views=2)
    for epoch in (1, 2, 3):
        batches = epoch_batches(1000, chosen, epoch)
        for left, right in zip(taken(there, epoch, batches), taken(here, epoch, batches), strict=True):
            assert left.inputs.is_cuda
            for on_cuda, on_cpu in zip(left, right, strict=True):
                torch.testing.assert_close(on_cuda.cpu(), on_cpu)
