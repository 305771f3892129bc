"""What all tests share: no network, one thread, and one cache in which the packaged encoder is prepared once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(scope="session")
def model_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `cache_dir` in which the default encoder is ready; RECALLD_TEST_MODEL_CACHE names one to keep between runs."""
    from recalld_daemon.models.files import open_files
    from recalld_daemon.models.home import Job, prepared

    kept = os.environ.get("RECALLD_TEST_MODEL_CACHE")
    cache_dir = Path(kept) if kept else tmp_path_factory.mktemp("models")
    files = open_files("default", cache_dir, allow_download=False)
    prepared(files, Job("default", str(cache_dir), 64), lambda phase, done, total: None)
    return cache_dir
