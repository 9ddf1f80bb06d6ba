"""A database and its blob store belong together: no coordinator uses half of a state, or another's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from moonfed.coordinator.storage.blobs.object_client import ObjectClient
from moonfed.coordinator.storage.blobs.ownership import BlobLocation, DirectoryLocation, ObjectLocation
from moonfed.coordinator.storage.opening import open_storage
from moonfed.coordinator.storage.store import Store
from moonfed.errors import WrongState
from tests.support.postgresql import Server
from tests.support.refusals import refused

pytestmark = pytest.mark.slow

ELSEWHERE = "the blobs of this database are not in .*: give all coordinators on one database the same --blobs"


@pytest.fixture(params=["directory", "objects"])
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], BlobLocation]:
    """Return a new place each time."""
    number = iter(range(9))

    def make() -> BlobLocation:
        if request.param == "objects":
            return ObjectLocation(ObjectClient(f"{request.getfixturevalue('bucket')}/{next(number)}"))
        directory = tmp_path / str(next(number))
        directory.mkdir()
        return DirectoryLocation(directory)

    return make


def test_a_database_accepts_only_its_first_blob_store(store: Store, new_place: Callable[[], BlobLocation]) -> None:
    first, other = new_place(), new_place()
    for _ in range(2):
        store.claim_blobs(first)
    with pytest.raises(WrongState, match=ELSEWHERE):
        store.claim_blobs(other)
    assert other.read() is None, "nothing was written there"
    store.claim_blobs(first)


def test_the_blob_store_of_another_database_is_rejected(
    open_store: Callable[[], Store], new_place: Callable[[], BlobLocation]
) -> None:
    place, store = new_place(), open_store()
    place.write("what the moonfed coordinators on database 1234 keep\n")
    with refused(WrongState, "blobs"):
        store.claim_blobs(place)
    store.claim_blobs(new_place())
    with pytest.raises(WrongState, match=ELSEWHERE):
        store.claim_blobs(place)


def test_an_interrupted_start_can_be_repeated(store: Store, new_place: Callable[[], BlobLocation]) -> None:
    place = new_place()

    class Killed(Exception):
        pass

    class Until:
        where = place.where
        read = staticmethod(place.read)

        def write(self, text: str) -> None:
            place.write(text)
            raise Killed

    with pytest.raises(Killed):
        store.claim_blobs(Until())
    store.claim_blobs(place)


def test_a_second_coordinator_with_another_blob_store_does_not_start(
    tmp_path: Path, postgresql_server: Server, bucket: str
) -> None:
    database = postgresql_server.new_database()
    with ExitStack() as stack:
        stack.enter_context(open_storage(tmp_path / "first", database))
        for blobs in ("", bucket):
            with pytest.raises(WrongState, match=ELSEWHERE), open_storage(tmp_path / "second", database, blobs):
                pass
    with open_storage(tmp_path / "first", database):
        pass


def test_several_coordinators_share_one_object_store_and_no_second_database_does(
    tmp_path: Path, postgresql_server: Server, bucket: str
) -> None:
    database = postgresql_server.new_database()
    with open_storage(tmp_path / "first", database, bucket), open_storage(tmp_path / "second", database, bucket):
        another = "holds the blobs of another database"
        with pytest.raises(WrongState, match=another), open_storage(tmp_path / "third", blobs=bucket):
            pass
