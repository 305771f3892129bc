"""The systemd units, as they are installed: what runs, when, and that it steps back for everything else."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

from recalld_daemon.__main__ import _parser
from recalld_daemon.sleep.command import STOPPED

UNITS = Path(__file__).parents[2] / "systemd"


def unit(name: str) -> ConfigParser:
    found = ConfigParser(interpolation=None, strict=False)
    found.optionxform = str  # type: ignore[assignment, method-assign]
    found.read_string((UNITS / name).read_text(encoding="utf-8"))
    return found


def test_the_nightly_cycle_is_in_nobody_s_way() -> None:
    service = unit("recalld-sleep.service")["Service"]
    assert (service["Type"], service["IOSchedulingClass"], service["CPUSchedulingPolicy"]) == (
        "oneshot",
        "idle",
        "idle",
    )
    assert int(service["Nice"]) >= 10
    assert service["SuccessExitStatus"] == str(STOPPED)


def test_it_runs_each_night_and_makes_up_for_one_that_was_missed() -> None:
    timer = unit("recalld-sleep.timer")
    assert timer["Timer"]["OnCalendar"].startswith("*-*-* 0")
    assert timer["Timer"]["Persistent"] == "true"
    assert timer["Install"]["WantedBy"] == "timers.target"


def test_the_units_start_commands_that_there_are() -> None:
    starts = {"recalld.service": "run", "recalld-sleep.service": "sleep", "recalld-hooks.service": "hooks"}
    for name, command in starts.items():
        program, *arguments = unit(name)["Service"]["ExecStart"].split()
        assert program.endswith("/recalld")
        assert _parser().parse_args(arguments).command.__name__ == f"_{command}"
