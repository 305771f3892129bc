"""What `--watch` and `[sources] watch` may not name: told as a mistake of configuration, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from recalld_daemon.__main__ import main


@pytest.mark.parametrize("name", ["/notes/\udcff", "/notes/a\0b"])
def test_a_name_that_nothing_can_watch_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0")  # set: no new start of this process
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(variable, "1")
    assert main(["run", "--home", str(tmp_path), "--no-transcripts", "--watch", name]) == 2
    assert "can't be watched" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
