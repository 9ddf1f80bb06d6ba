"""Errors of an object store: each is one sentence that names the store and reveals no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonfed.coordinator.storage.blobs.object_client import ObjectClient
from moonfed.errors import InvalidInput, NotFound, Unavailable
from tests.support.refusals import refused

pytestmark = pytest.mark.slow


def test_an_object_store_that_cannot_be_used_is_one_sentence(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url in ("s3:bucket", "s3://key:secret@bucket", "nowhere://x"):
        with pytest.raises(InvalidInput, match="blobs is") as rejected:
            ObjectClient(url)
        assert "secret" not in str(rejected.value)
    for url in ("s3://no-such-bucket/fleet", bucket):
        if url == bucket:
            monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
            monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        with pytest.raises((Unavailable, NotFound)) as away:
            ObjectClient(url)
        assert "\n" not in str(away.value)
        assert url in str(away.value)


def test_a_missing_bucket_is_named(bucket: str) -> None:
    with refused(Unavailable, "object store"):
        ObjectClient(bucket.replace("s3://", "s3://nowhere-"))
