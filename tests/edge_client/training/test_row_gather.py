"""Rows are gathered in the order of the batches, into the same buffers."""

from __future__ import annotations

import pytest
import torch

from moonfed.edge_client.training.row_gather import FetchedRows, ResidentRows

CPU = torch.device("cpu")


@pytest.mark.parametrize("rows", [ResidentRows, FetchedRows])
def test_rows_come_in_the_order_of_the_batches_into_the_same_buffers(
    rows: type[ResidentRows] | type[FetchedRows],
) -> None:
    """Test FetchedRows with streams that do nothing: its two slots take turns."""
    numbers, pictures = torch.arange(20), torch.randint(0, 256, (20, 2, 2, 3), dtype=torch.uint8)
    buffers = torch.empty(4, dtype=torch.int64), torch.empty(4, 2, 2, 3, dtype=torch.uint8)
    made, addresses = rows(CPU), [buffer.data_ptr() for buffer in buffers]
    for _ in range(3):  # epochs
        batches = torch.randperm(20).view(5, 4)
        made.begin([(numbers, buffers[0]), (pictures, buffers[1])], batches)
        for batch in batches:
            made.fill()
            assert torch.equal(buffers[0], batch)
            assert torch.equal(buffers[1], pictures[batch])
    assert [buffer.data_ptr() for buffer in buffers] == addresses


def test_an_epoch_that_ends_early_leaves_nothing_to_the_next() -> None:
    numbers, buffer = torch.arange(20), torch.empty(4, dtype=torch.int64)
    made, batches = FetchedRows(CPU), torch.randperm(20).view(5, 4)
    made.begin([(numbers, buffer)], batches)
    made.fill()
    made.begin([(numbers, buffer)], batches.flip(0))
    made.fill()
    assert torch.equal(buffer, batches[4])
