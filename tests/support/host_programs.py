"""The real programs in which agents live, at the versions our hooks were seen to work with: fetched once, run for real.

Each is an npm package of a named version in a cache directory (`RECALLD_TEST_HOSTS`, else recalld-tests in the user's
cache). Installed without running the packages' own scripts; run without a key, against a model's stand-in on loopback,
with a home of its own. What one needs to be run so is here and nowhere else.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mock_models import Call

REQUIRED = os.environ.get("RECALLD_TEST_HOSTS_REQUIRED", "").split()  # hosts that no test may be skipped for
INSTALL_SECONDS = 300.0  # a slow line; 3 to 10 s are usual
RUN_SECONDS = 120.0  # bounds a run that hangs; 1 to 6 s are usual


class NotInstalled(Exception):
    """The program can't be had here; the text says why."""


@dataclass(frozen=True, slots=True)
class Program:
    """host: as `recallctl install` names it. binaries: where the program may lie in node_modules, the first there is.

    arguments: of a run that answers one prompt, with the conversation before it where `again` is set.
    """

    host: str
    package: str
    version: str
    binaries: Sequence[str]
    arguments: Callable[[str, bool], Sequence[str]]
    shell: Callable[[str], Call]
    environ: Callable[[str], Mapping[str, str]] = lambda url: {}
    settings: Callable[[str], Mapping[str, str]] = lambda url: {}  # path below the home -> text
    tells_starts: bool = False  # our hooks hear of a tool call before it runs

    @property
    def name(self) -> str:
        return f"{self.host} {self.version}"


@dataclass(slots=True)
class Home:
    """A user's home with a project in it, for one program; `environ` is all that the program is given."""

    path: Path
    program: Program
    binary: Path
    url: str
    extra: dict[str, str] = field(default_factory=dict)  # environment
    flags: list[str] = field(default_factory=list)  # of each run, besides the program's own

    @property
    def project(self) -> Path:
        return self.path / "project"

    @property
    def environ(self) -> dict[str, str]:
        known = {"PATH": os.environ["PATH"], "HOME": str(self.path), "LANG": "C.UTF-8", "SHELL": "/bin/bash"}
        return {**known, "TERM": "dumb", **self.program.environ(self.url), **self.extra}

    def prepare(self, files: Mapping[str, str]) -> None:
        """The home as it is before the first run. files: path below the project -> text; scripts can be run."""
        for below, text in self.program.settings(self.url).items():
            _write(self.path / below, text)
        for below, text in files.items():
            _write(self.project / below, text)

    def run(self, prompt: str, again: bool = False) -> subprocess.CompletedProcess[str]:
        command = [str(self.binary), *self.program.arguments(prompt, again), *self.flags]
        done = subprocess.run(
            command, env=self.environ, cwd=self.project, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=RUN_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, f"{self.program.name}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done


@contextmanager
def one_run_of_claude_code(home: Home) -> Iterator[Callable[[str], None]]:
    """One process that answers prompt after prompt, as in a terminal: no session ends between them."""
    flags = ["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
    command = [str(home.binary), *flags, "--allowedTools", "Bash", "Read", "Agent"]
    with subprocess.Popen(
        command, env=home.environ, cwd=home.project, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        said, heard = process.stdin, process.stdout
        assert said is not None
        assert heard is not None
        end = threading.Timer(RUN_SECONDS, process.kill)
        end.start()

        def say(prompt: str) -> None:
            message = {"type": "user", "message": {"role": "user", "content": prompt}}
            print(json.dumps(message), file=said, flush=True)
            assert any(json.loads(line)["type"] == "result" for line in heard), "it ended before it answered"

        try:
            yield say
        finally:
            said.close()
            process.wait()
            end.cancel()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if text.startswith("#!"):
        path.chmod(0o755)


# ---------------------------------------------------------------- the programs


def _named(name: str, key: str, **more: str) -> Callable[[str], Call]:
    return lambda command: Call(name, {key: command, **more})


def _claude(prompt: str, again: bool) -> Sequence[str]:
    return ["-p", prompt, *(["--continue"] if again else []), "--allowedTools", "Bash", "Read", "Agent"]


def _codex(prompt: str, again: bool) -> Sequence[str]:
    free = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust"]
    return ["exec", *(["resume", "--last"] if again else []), *free, prompt]


def _copilot(prompt: str, again: bool) -> Sequence[str]:
    return ["-p", prompt, *(["--continue"] if again else []), "--allow-all-tools"]


def _gemini(prompt: str, again: bool) -> Sequence[str]:
    return ["-p", prompt, *(["--resume", "latest"] if again else []), "--yolo", "--model", "gemini-2.5-flash"]


def _opencode(prompt: str, again: bool) -> Sequence[str]:
    return ["run", *(["--continue"] if again else []), prompt]


CODEX_SETTINGS = """model = "m"
model_provider = "stand-in"
[model_providers.stand-in]
name = "stand-in"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "STAND_IN_KEY"
"""
GEMINI_SETTINGS: Mapping[str, Any] = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"disableAutoUpdate": True},
}


def _opencode_settings(url: str) -> str:
    options = {"baseURL": f"{url}/v1", "apiKey": "none"}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "mock", "options": options, "models": {"m": {"name": "m"}}}
    return json.dumps({"model": "mock/m", "share": "disabled", "autoupdate": False, "provider": {"mock": provider}})


CLAUDE_CODE = Program(
    host="claude-code",
    package="@anthropic-ai/claude-code",
    version="2.1.332",
    binaries=["@anthropic-ai/claude-code-linux-*/claude", "@anthropic-ai/claude-code-darwin-*/claude"],
    arguments=_claude,
    shell=_named("Bash", "command", description="runs it"),
    environ=lambda url: {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    },
    tells_starts=True,
)
CODEX = Program(
    host="codex",
    package="@openai/codex",
    version="0.171.0",
    binaries=[".bin/codex"],
    arguments=_codex,
    shell=_named("exec_command", "cmd"),
    environ=lambda url: {"STAND_IN_KEY": "none"},
    settings=lambda url: {".codex/config.toml": CODEX_SETTINGS.format(url=url)},
)
COPILOT = Program(
    host="copilot",
    package="@github/copilot",
    version="1.0.102",
    binaries=[".bin/copilot"],
    arguments=_copilot,
    shell=_named("bash", "command", description="runs it"),
    environ=lambda url: {
        "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
        "COPILOT_MODEL": "m",
        "COPILOT_OFFLINE": "true",
    },
)
GEMINI = Program(
    host="gemini",
    package="@google/gemini-cli",
    version="0.61.0",
    binaries=[".bin/gemini"],
    arguments=_gemini,
    shell=_named("run_shell_command", "command"),
    environ=lambda url: {
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_API_KEY": "none",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    },
    settings=lambda url: {".gemini/settings.json": json.dumps(GEMINI_SETTINGS)},
)
OPENCODE = Program(
    host="opencode",
    package="opencode-ai",
    version="1.18.33",
    binaries=["opencode-*-baseline/bin/opencode", "opencode-*/bin/opencode"],
    arguments=_opencode,
    shell=_named("bash", "command", description="runs it"),
    environ=lambda url: {
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
    },
    settings=lambda url: {".config/opencode/opencode.json": _opencode_settings(url)},
    tells_starts=True,
)
PROGRAMS = (CLAUDE_CODE, CODEX, COPILOT, GEMINI, OPENCODE)


# ---------------------------------------------------------------- the packages


def installed_or_skipped(program: Program) -> Path:
    """For a test: skipped by name where the program can't be had, failed where it must be (`REQUIRED`)."""
    try:
        return installed(program)
    except NotInstalled as missing:
        if program.host in REQUIRED:
            pytest.fail(f"{program.name}: {missing}")
        pytest.skip(f"{program.name}: {missing}")


def installed(program: Program) -> Path:
    """The program's binary, its package fetched first where it is not there yet. Raises NotInstalled."""
    directory = _cache() / f"{program.host}-{program.version}"
    if not directory.is_dir():
        _fetch(program, directory)
    for pattern in program.binaries:
        for found in sorted((directory / "node_modules").glob(pattern)):
            return found
    raise NotInstalled(f"{program.package}@{program.version} holds no program for this machine: {directory}")


def _cache() -> Path:
    users = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("RECALLD_TEST_HOSTS") or users / "recalld-tests")


def _fetch(program: Program, directory: Path) -> None:
    """Beside its place and then moved there, so that what is there is whole."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if not npm or not node:
        raise NotInstalled(f"{program.package}@{program.version}: neither there nor to be had: no npm on PATH")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent) as fresh:
        flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
        command = [npm, "install", "--prefix", fresh, *flags, f"{program.package}@{program.version}"]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise NotInstalled(f"{' '.join(command)}: nothing after {INSTALL_SECONDS:.0f} s") from None
        if done.returncode != 0:
            raise NotInstalled(f"{' '.join(command)}: exit {done.returncode}: {done.stderr[-500:]}")
        Path(fresh).rename(directory)
        Path(fresh).mkdir()  # for the context manager to remove


# ---------------------------------------------------------------- our hooks in it


def install_hooks(home: Home, *flags: str) -> None:
    """`recallctl install`, as its user would run it."""
    command = [sys.executable, "-m", "recalld_client.cli", "install", home.program.host, *flags]
    done = subprocess.run(
        command, env=home.environ, cwd=home.project, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
