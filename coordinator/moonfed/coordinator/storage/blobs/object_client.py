"""A client for an object store by URL, through fsspec: whole files by key, and one-sentence errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from moonfed.coordinator.storage.transient_errors import as_full_disk
from moonfed.errors import InvalidInput, MoonfedError, NotFound, Unavailable

MARKER = "moonfed"  # an object that names the location's owner; writing it at the start proves write access


class ObjectClient:
    """The objects under one URL, such as s3://bucket/prefix. Blocking, from any thread.

    Credentials and endpoints are the environment's (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL and the like), never the URL's.
    """

    def __init__(self, url: str) -> None:
        if "@" in url:  # there may be a secret before it
            raise InvalidInput("blobs is a URL with credentials; they belong in the environment", field="credentials")
        if not url.partition("://")[2].strip("/"):
            raise InvalidInput(f"blobs is {url!r}; it must be like s3://BUCKET/PREFIX", field="blobs", value=url)
        self.url = url.rstrip("/")
        self._files, self._root = _open(self.url)
        with self._found():
            self.write(b"what moonfed's coordinators keep\n", MARKER)

    def put(self, path: Path, key: str) -> None:
        """Store a whole file; durable on return."""
        with self._explained():
            self._files.put_file(str(path), self._key(key))

    def write(self, content: bytes, key: str) -> None:
        """Store some bytes; durable on return."""
        with self._explained():
            self._files.pipe_file(self._key(key), content)

    def get(self, key: str, path: Path) -> None:
        """Fetch an object into a file; raises NotFound."""
        with self._explained():
            self._files.get_file(self._key(key), str(path))

    def read(self, key: str) -> bytes:
        """Read a small object; raises NotFound."""
        with self._explained():
            content: bytes = self._files.cat_file(self._key(key))
        return content

    def size(self, key: str) -> int:
        """Return an object's size in bytes; raises NotFound."""
        with self._explained():
            return int(self._files.info(self._key(key))["size"])

    def delete(self, key: str) -> None:
        """Delete an object if it exists."""
        try:
            with self._explained():
                self._files.rm_file(self._key(key))
        except NotFound:
            pass

    def listed(self, prefix: str) -> Iterator[tuple[str, int, float | None]]:
        """Yield (key, size, time stored) of the objects below a prefix; the time is None if unknown."""
        with self._explained():
            found: dict[str, dict[str, Any]] = self._files.find(self._key(prefix), detail=True)
        for name, entry in found.items():
            key = name.removeprefix(self._root).lstrip("/")
            yield key, int(entry["size"]), _stored(entry)

    def _key(self, key: str) -> str:
        return f"{self._root}/{key}"

    @contextmanager
    def _found(self) -> Iterator[None]:
        """Report a missing bucket: these calls look for no object, so NotFound means that the bucket does not exist."""
        try:
            yield
        except NotFound as error:
            raise Unavailable(
                f"the object store {self.url} cannot be used: there is no such bucket, or access to it is denied",
                field="object store",
                value=self.url,
            ) from error

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except MoonfedError:
            raise
        except FileNotFoundError as error:
            raise NotFound(f"there is no such object in {self.url}") from error
        except Exception as error:  # each kind of store has its own errors
            if full := as_full_disk(error):  # this machine's
                raise full from error
            reason = (str(error).strip().splitlines() or ["no reason given"])[0]
            raise Unavailable(f"the object store {self.url} cannot be used: {reason}") from error


def _open(url: str) -> tuple[Any, str]:
    try:
        import fsspec

        files, root = fsspec.url_to_fs(url, skip_instance_cache=True, use_listings_cache=False)
    except ImportError:
        scheme = url.partition("://")[0]
        raise InvalidInput(
            f"blobs is {url!r}, which needs fsspec's package for {scheme}; for s3, run pip install 'moonfed[s3]'"
        ) from None
    except ValueError as error:
        raise InvalidInput(f"blobs is {url!r}; it must be like s3://BUCKET/PREFIX ({error})") from error
    return files, root.rstrip("/")


def _stored(entry: dict[str, Any]) -> float | None:
    for name in ("LastModified", "mtime", "created", "updated", "last_modified"):
        when = entry.get(name)
        if isinstance(when, datetime):
            return when.timestamp()
        if isinstance(when, (int, float)):
            return float(when)
    return None
