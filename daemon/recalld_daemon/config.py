"""Configuration: one TOML file, every key typed, with a default, a unit and a sentence of its own.

The table `KEYS` is the only place where a key is described: reading, checking, `recalld config` and docs/config.md are
all made from it. Unknown keys and bad values are errors that name the file, the line, the key and the remedy; a daemon
never starts on a configuration it understood only in part. Flags of the command line override the file.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class ConfigError(Exception):
    """A configuration that can't be used; the text names file, line, key and remedy."""


@dataclass(frozen=True, slots=True)
class Config:
    """What `recalld run` runs on. Units are in the names or in `KEYS`."""

    watch: tuple[str, ...] = ()
    transcripts: bool = True
    claude_code: bool = True
    codex: bool = True
    copilot: bool = True
    gemini: bool = True
    opencode: bool = True
    project_scope: bool = False
    undated: str = "changed"
    encoder: str = "default"
    query_prompt: str | None = None
    passage_prompt: str | None = None
    allow_download: bool = False
    token_dims: int = 64
    cross_encoder: str = "none"
    bulk_threads: int = 1
    stale_after: int = 2
    max_snippets: int = 3
    boundary_tokens: int = 240
    session_tokens: int = 8_000
    false_rate: float = 0.05
    threshold_shift: float = 0.0
    user_names: tuple[str, ...] = ()
    agent_names: tuple[str, ...] = ()
    late_interaction: bool = True
    ranker: bool = True
    more_lanes: tuple[str, ...] = ()
    cross_encoder_ms: float = 15.0
    inject: bool = True
    online: bool = True
    withheld_share: float = 0.03
    observed_boundaries: int = 4
    least_queries: int = 200
    keep_versions: int = 3
    hook_wait_seconds: float = 0.03
    http_hooks: bool = True
    heartbeat_seconds: float = 5.0
    session_idle_seconds: float = 14_400.0
    max_sessions: int = 256
    keep_recalls: int = 20_000
    tcp_address: str = ""
    tcp_secret_file: str = ""
    tcp_clients_file: str = ""
    log_level: str = "info"
    source: str = field(default="", compare=False)  # the file it came from, for messages


Check = Callable[[Any], str | None]  # a complaint, or None


def between(low: float, high: float) -> Check:
    return lambda value: None if low <= value <= high else f"must lie between {low:g} and {high:g}"


def one_of(*choices: str) -> Check:
    return lambda value: None if value in choices else "must be one of " + ", ".join(choices)


def _text_list(value: Any) -> str | None:
    return None if all(isinstance(item, str) and item for item in value) else "must be a list of non-empty strings"


def _lane_list(value: Any) -> str | None:
    return None if all(item in ("subjects", "graph") for item in value) else 'may hold "subjects" and "graph"'


@dataclass(frozen=True, slots=True)
class Key:
    """One key: where it stands in the file, its type, and what the user should know."""

    section: str
    name: str
    attribute: str
    kind: type
    unit: str
    says: str
    check: Check | None = None


KEYS: tuple[Key, ...] = (
    Key("sources", "watch", "watch", list, "paths",
        "Directories of Markdown and text files to index and follow. `~` is expanded; a missing one is waited for.",
        _text_list),
    Key("sources", "transcripts", "transcripts", bool, "",
        "Index the sessions that agents keep on this machine; false: of no host, whatever stands below."),
    Key("sources", "claude_code", "claude_code", bool, "",
        "Index Claude Code's transcripts ($CLAUDE_CONFIG_DIR/projects, by default ~/.claude/projects)."),
    Key("sources", "codex", "codex", bool, "",
        "Index Codex's sessions ($CODEX_HOME/sessions and archived_sessions, by default in ~/.codex)."),
    Key("sources", "copilot", "copilot", bool, "",
        "Index Copilot CLI's sessions ($COPILOT_HOME/session-state, by default in ~/.copilot)."),
    Key("sources", "gemini", "gemini", bool, "",
        "Index Gemini CLI's sessions (.gemini/tmp in $GEMINI_CLI_HOME, by default in ~)."),
    Key("sources", "opencode", "opencode", bool, "",
        "Index OpenCode's sessions (opencode.db in $XDG_DATA_HOME/opencode, by default ~/.local/share/opencode)."),
    Key("sources", "project_scope", "project_scope", bool, "",
        "true: a watched directory inside a git work tree is seen by that project's sessions only; false: by all."),
    Key("sources", "undated", "undated", str, "",
        'When a note without a date of its own counts as written: "changed" when its file was, or "always".',
        one_of("changed", "always")),
    Key("models", "encoder", "encoder", str, "name or path",
        '"default" is all-MiniLM-L6-v2 tuned for late interaction; "minilm" the same untuned; else any '
        "sentence-transformers model, by path or name."),
    Key("models", "query_prompt", "query_prompt", str, "text",
        "Put before every query. Left out: the model's own query prompt."),
    Key("models", "passage_prompt", "passage_prompt", str, "text",
        "Put before every passage. Left out: the model's own document prompt."),
    Key("models", "allow_download", "allow_download", bool, "",
        "Let a model that is named, and not on this machine, be downloaded. Otherwise nothing ever asks the network."),
    Key("models", "token_dims", "token_dims", int, "dimensions",
        "Width of the token vectors that late interaction compares, one byte each.", between(16, 384)),
    Key("models", "cross_encoder", "cross_encoder", str, "name or path",
        'Reads the first passages together with the query: "none", or any sentence-transformers CrossEncoder.'),
    Key("models", "bulk_threads", "bulk_threads", int, "threads",
        "Threads of the low-priority process that indexes.", between(1, 64)),
    Key("recall", "user_names", "user_names", list, "names",
        'What you are called where others write of you: whose words "what did I decide" looks for.',
        _text_list),
    Key("recall", "agent_names", "agent_names", list, "names",
        'What your agent is called, beside "assistant": whose words "what did you suggest" looks for.',
        _text_list),
    Key("recall", "late_interaction", "late_interaction", bool, "",
        "Re-rank the best 100 passages token by token. Off: fusion answers alone."),
    Key("recall", "ranker", "ranker", bool, "",
        "Order the best 100 by the learned ranker. Off: by hand-set weights."),
    Key("recall", "more_lanes", "more_lanes", list, "names",
        'Lanes that are off: "subjects" (what is about the same as the query), "graph" (one hop further).',
        _lane_list),
    Key("recall", "cross_encoder_ms", "cross_encoder_ms", float, "milliseconds",
        "The cross-encoder scores as many of the best passages as it can in this time.", between(1, 5000)),
    Key("recall", "threshold_shift", "threshold_shift", float, "log-odds",
        "Added to the gate's thresholds: above 0 speaks less, below 0 speaks more.", between(-5, 5)),
    Key("recall", "false_rate", "false_rate", float, "share",
        "Of the moments at which nothing fits, the share that may get a snippet nevertheless. Less is more silence.",
        between(0.001, 0.5)),
    Key("recall", "max_snippets", "max_snippets", int, "snippets",
        "At most so many at one boundary.", between(1, 3)),
    Key("recall", "boundary_tokens", "boundary_tokens", int, "tokens",
        "At most so many tokens at one boundary; a usual snippet has some forty.", between(40, 2_000)),
    Key("recall", "session_tokens", "session_tokens", int, "tokens",
        "At most so many tokens in one session, as long as the daemon runs; then it is silent there.",
        between(40, 10_000_000)),
    Key("recall", "stale_after", "stale_after", int, "boundaries",
        "A late snippet is dropped when so many boundaries have passed since its own.", between(0, 20)),
    Key("recall", "inject", "inject", bool, "",
        "false: watch and learn, say nothing."),
    Key("learning", "online", "online", bool, "",
        "Let the query adapter take a small step after each snippet that helped. Off: only the nightly cycle learns."),
    Key("learning", "withheld_share", "withheld_share", float, "share",
        "Of the snippets that pass the gate, the share that is withheld at random, to learn what showing is worth. "
        "0: none.", between(0, 0.5)),
    Key("learning", "observed_boundaries", "observed_boundaries", int, "boundaries",
        "For so many boundaries after a snippet was shown, what the agent does tells whether it was used.",
        between(1, 50)),
    Key("learning", "least_queries", "least_queries", int, "queries",
        "With fewer distinct queries that have an answer, the nightly cycle trains nothing.", between(20, 100_000)),
    Key("learning", "keep_versions", "keep_versions", int, "versions",
        "How many versions of what was learned are kept, to go back to.", between(1, 100)),
    Key("hooks", "hook_wait_seconds", "hook_wait_seconds", float, "seconds",
        "How long a host's hook may wait for the recall of its own turn or tool call; what is later slips.",
        between(0, 0.1)),
    Key("hooks", "http", "http_hooks", bool, "",
        "Serve HTTP hooks on 127.0.0.1, with a token, once `recallctl install` has set one up."),
    Key("daemon", "heartbeat_seconds", "heartbeat_seconds", float, "seconds",
        "How often a quiet client is asked for a sign of life.", between(0.1, 600)),
    Key("daemon", "session_idle_seconds", "session_idle_seconds", float, "seconds",
        "A session without any message for so long is closed.", between(1, 30 * 86_400)),
    Key("daemon", "max_sessions", "max_sessions", int, "sessions",
        "Open sessions at once; further ones are told to try later.", between(1, 4096)),
    Key("daemon", "keep_recalls", "keep_recalls", int, "recalls",
        "How many past recalls `recallctl why` can explain.", between(100, 10_000_000)),
    Key("daemon", "log_level", "log_level", str, "",
        "What is written to standard error.", one_of("debug", "info", "warning", "error")),
    Key("tcp", "address", "tcp_address", str, "tcp://host:port",
        "Also listen on TCP. Needs both key files: TCP is only served encrypted (CURVE)."),
    Key("tcp", "secret_file", "tcp_secret_file", str, "path",
        "The daemon's CURVE secret key (40 characters, Z85), as `recalld keys` makes it."),
    Key("tcp", "clients_file", "tcp_clients_file", str, "path",
        "The public keys of the clients that may connect, one a line (Z85); what follows a space is a comment."),
)  # fmt: skip

_BY_PLACE = {(key.section, key.name): key for key in KEYS}
_SECTIONS = tuple(dict.fromkeys(key.section for key in KEYS))


def load_config(path: Path | None, overrides: Mapping[str, Any] | None = None) -> Config:
    """The configuration in `path` (None or absent default file: all defaults), with `overrides` by attribute name.

    Raises ConfigError: unreadable file, TOML error, unknown section or key, bad value.
    """
    values: dict[str, Any] = {}
    if path is not None:
        values = _read(path)
        values["source"] = str(path)
    values.update(overrides or {})
    return _cross_checked(Config(**values))


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 (byte {error.start}); save it as UTF-8") from error
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    values: dict[str, Any] = {}
    for section, body in document.items():
        if section not in _SECTIONS:
            raise _unknown(path, text, "", section, _SECTIONS)
        if not isinstance(body, dict):
            raise ConfigError(f"{path}:{_line_of(text, '', section)}: `{section}` must be a section: [{section}]")
        for name, value in body.items():
            key = _BY_PLACE.get((section, name))
            if key is None:
                raise _unknown(path, text, section, name, [k.name for k in KEYS if k.section == section])
            values[key.attribute] = _checked(path, text, key, value)
    return values


def _checked(path: Path, text: str, key: Key, value: Any) -> Any:
    place = f"{path}:{_line_of(text, key.section, key.name)}: [{key.section}] {key.name}"
    if key.kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, key.kind) or (key.kind is int and isinstance(value, bool)):
        raise ConfigError(f"{place}: must be a {_TYPE_NAMES[key.kind]}, not {value!r}")
    complaint = key.check(value) if key.check else None
    if complaint:
        raise ConfigError(f"{place}: {complaint}, not {value!r}")
    return tuple(value) if isinstance(value, list) else value


_TYPE_NAMES = {
    list: "list",
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text in quotes",
}


def _unknown(path: Path, text: str, section: str, name: str, known: Any) -> ConfigError:
    near = difflib.get_close_matches(name, list(known), n=1)
    what = f"[{section}] {name}: unknown key" if section else f"[{name}]: unknown section"
    hint = f"did you mean `{near[0]}`?" if near else "known: " + ", ".join(known)
    return ConfigError(f"{path}:{_line_of(text, section, name)}: {what}; {hint}")


def _line_of(text: str, section: str, name: str) -> int:
    """The line (from 1) on which a key or, with section "", a section or top-level key is written; 1 if not found."""
    here = ""
    wanted = re.compile(rf'\s*["\']?{re.escape(name)}["\']?\s*[=.]')
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r'\s*\[\[?\s*["\']?([^\]"\']+?)["\']?\s*\]', line)
        if header:
            here = header.group(1).strip()
            if not section and here.split(".")[0] == name:
                return number
        elif (here == section and wanted.match(line)) or (
            not here and section and re.match(rf"\s*{re.escape(section)}\s*[.=].*{re.escape(name)}", line)
        ):
            return number
    return 1


def _cross_checked(config: Config) -> Config:
    if config.tcp_address and not (config.tcp_secret_file and config.tcp_clients_file):
        raise ConfigError(
            f"{config.source or 'flags'}: [tcp] address is set without secret_file and clients_file: "
            "TCP is only served encrypted; name both files or remove the address"
        )
    return config


def to_toml(config: Config) -> str:
    """The whole configuration as a commented file; what equals the default is commented out."""
    default, lines = (
        Config(),
        ["# recalld's configuration. Every key with its default; remove the # to change one."],
    )
    for section in _SECTIONS:
        lines += ["", f"[{section}]"]
        for key in (key for key in KEYS if key.section == section):
            value = getattr(config, key.attribute)
            unit = f" ({key.unit})" if key.unit else ""
            lines.append(f"# {key.says}{unit}")
            mark = "# " if value == getattr(default, key.attribute) else ""
            lines.append(f"{mark}{key.name} = {_toml_value(value)}")
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    if value is None:
        return '""'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)


assert {key.attribute for key in KEYS} == {f.name for f in dataclasses.fields(Config)} - {"source"}
