"""References to blobs: retention drops the older models' and releases what nothing else refers to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moonfed.blobs.store import BlobRef, ref_of_bytes
from moonfed.coordinator.rounds.retention import KEEP_ALL, Retention
from moonfed.coordinator.storage.store import Store
from moonfed.errors import NotFound
from tests.support.store_records import RUN, committed, kept_models


@pytest.mark.parametrize(("last", "every"), [(1, 0), (3, 0), (2, 4), (5, 1), (40, 0)])
def test_old_models_go_with_the_commit_and_their_rounds_stay(store: Store, last: int, every: int) -> None:
    store.add_run(RUN)
    gone: list[BlobRef] = []
    for round_ in range(1, 31):
        gone += committed(store, round_, Retention(last=last, every=every))
    expected = [round_ for round_ in range(1, 31) if round_ > 30 - last or (every and round_ % every == 0)]
    assert kept_models(store) == expected
    assert len(store.past_rounds("digits", None, 1000)) == 30
    released = {ref_of_bytes(b"model %d" % round_) for round_ in range(1, 31) if round_ not in expected}
    momenta = {ref_of_bytes(b"momentum %d" % round_) for round_ in range(1, 30)}
    assert set(gone) == released | momenta
    assert not any(store.refers_to(ref.sha256) for ref in gone)
    assert store.refers_to(RUN.initial.sha256), "model 0 stays"
    newest = store.latest_round("digits", "committed")
    assert newest
    assert set(newest.blobs) == {"model", "momentum"}


def test_manual_pruning_reports_the_number_of_deleted_models(store: Store) -> None:
    store.add_run(RUN)
    for round_ in range(1, 11):
        committed(store, round_)
    models, released = store.prune_run("digits", Retention(last=2, every=5))
    assert models == 7
    assert {ref_of_bytes(b"model %d" % round_) for round_ in (1, 2, 3, 4, 6, 7, 8)} == set(released)
    assert kept_models(store) == [5, 9, 10]
    assert store.prune_run("digits", Retention(last=2, every=5)) == (0, [])
    with pytest.raises(NotFound, match="'other'"):
        store.prune_run("other", KEEP_ALL)


def test_models_that_devices_may_have_started_from_stay_whatever_the_retention(store: Store) -> None:
    store.add_run(RUN)
    for round_ in range(1, 8):
        committed(store, round_)
    assert store.prune_run("digits", Retention(last=1, every=0), 4)[0] == 3
    assert kept_models(store) == [4, 5, 6, 7]


def test_blobs_of_another_run_are_not_released(store: Store) -> None:
    for run in ("digits", "other"):
        store.add_run(replace(RUN, run=run), {"plan.pt": ref_of_bytes(b"plan")})
        committed(store, 1, run=run)
    store.end_run("digits", "finished")
    assert store.delete_run("digits") == []
    store.end_run("other", "stopped")
    names = (b"manifest", b"signature", b"initial", b"plan", b"model 1", b"momentum 1")
    assert set(store.delete_run("other")) == {ref_of_bytes(name) for name in names}
    assert store.runs() == []
