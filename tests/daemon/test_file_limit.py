"""How many files the daemon may have open: each connection is one, and libzmq does not survive the lack of one."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from recalld_daemon.service import FILES, raise_file_limit


@pytest.fixture
def hard() -> Iterator[int]:
    """The hard limit; both limits are put back afterwards."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield limits[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_the_soft_limit_is_raised_to_the_hard_one(hard: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    raise_file_limit()
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert soft == (FILES if hard == resource.RLIM_INFINITY else min(hard, FILES))


def test_a_limit_that_is_high_already_is_left_alone(hard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr("recalld_daemon.service.FILES", 16)
    raise_file_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
