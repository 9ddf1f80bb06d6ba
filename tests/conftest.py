"""Settings and marks of every test."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from moonfed.signing.key_files import KEYS_VARIABLE
from tests.support.forked_programs import fork_programs, forked_programs, fresh_programs
from tests.support.session_cache import CACHE
from tests.support.shared_operators import share_operators
from tests.support.shared_tables import share_tables
from tests.support.signatures import write_keys
from tests.support.temporary_directory import use_memory

__all__ = ["forked_programs", "fresh_programs"]

SHARED = pytest.StashKey[bool]()  # True once the operators of ONNX graphs are shared

# The same examples everywhere, so that a commit passes or fails on every machine alike, however busy that one is.
settings.register_profile("moonfed", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("moonfed")


def pytest_configure(config: pytest.Config) -> None:
    """Store compiled modules, and make the directory of keys, plans and bundles that both test processes share."""
    # The programs that tests start import hundreds of modules: let only the first one compile them.
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if CACHE not in os.environ:
        use_memory()
        os.environ[CACHE] = tempfile.mkdtemp(prefix="moonfed-tests-")
        write_keys(Path(os.environ[CACHE]) / "keys")
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(CACHE)))
    fork_programs()
    os.environ[KEYS_VARIABLE] = str(Path(os.environ[CACHE]) / "keys")


def pytest_collection() -> None:
    """Collect no garbage while tests are collected, of which all objects remain."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exempt what was collected, millions of objects, from garbage collection, and make full collections rare.

    Bundles get no graph plans, except in tests about them.
    """
    if "moonfed.export.bundle_builder" in sys.modules:
        importlib.import_module("tests.support.without_graph_plans")
    share_tables()
    gc.freeze()
    gc.set_threshold(700, 10, 40)
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with a long test that would be the last."""
    items.sort(key=lambda item: not item.nodeid.startswith("tests/test_notebook.py"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Undo the level of our log that a command set which an earlier test ran; share what exports would register."""
    logging.getLogger("moonfed").setLevel(logging.NOTSET)
    if not item.config.stash.get(SHARED, False):
        item.config.stash[SHARED] = share_operators()
