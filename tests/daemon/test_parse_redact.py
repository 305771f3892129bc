"""Secrets never get into the store; what only looks like one is not harmed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest_parsing import parse
from recalld_daemon.ingest.redact import MASK, redact, secrets

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc/def+\n-----END RSA PRIVATE KEY-----"
SECRETS = [
    ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
    ("push with ghp_0123456789abcdefghijABCDEFGHIJ012345 now", "ghp_0123456789abcdefghijABCDEFGHIJ012345"),
    ("sk-ant-api03-abcDEF_123-456", "sk-ant-api03-abcDEF_123-456"),
    ("OPENAI is sk-proj-abcdefghij0123456789XYZ", "sk-proj-abcdefghij0123456789XYZ"),
    ("xoxb-123456789012-abcdefGHIJKL", "xoxb-123456789012-abcdefGHIJKL"),
    (PEM, PEM),
    ("postgres://u:pw@h/db", "pw"),
    ("redis://:hunter2@cache:6379", "hunter2"),
    ("Authorization: Bearer abcDEF0123456789abcDEF", "abcDEF0123456789abcDEF"),
    ("curl -H 'authorization: Basic dXNlcjpwYXNzd29yZDEyMw=='", "dXNlcjpwYXNzd29yZDEyMw=="),
    ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ('"api_key": "8d7f6a5b4c3d2e1f0a9b8c7d"', "8d7f6a5b4c3d2e1f0a9b8c7d"),
    ("DB_PASSWORD=s3cr3t!pw", "s3cr3t!pw"),
    ("password: 'correct horse'"[:24], "correct"),
    ("the staging password is Tr0ub4dor-9x, change it", "Tr0ub4dor-9x"),
    ("our API key is 8d7f6a5b4c3d2e1f0a9b8c7d from now on", "8d7f6a5b4c3d2e1f0a9b8c7d"),
]
HARMLESS = [
    "commit 3f786850e387550fdab836ed7e6dc881de23001b",
    "the token 3f786850e387550fdab836ed7e6dc881de23001b is a commit",
    "a risk-based approach, task-oriented",
    "apiKey: import.meta.env.X",
    "apiKey: process.env.STRIPE_SECRET_KEY_PRODUCTION_1",
    "No API key in the build",
    "token: $TOKEN, password: ${DB_PASSWORD}, secret: <your-secret-1234567890>",
    "max_tokens: 4096, token_count: 128000000",
    "password: string; token: str = get_token_from_store_123(x)",
    "the password: required field",
    "the password is required, the token was rejected-by-proxy, the secret is kept elsewhere",
    "http://localhost:8080/a@b and git@github.com:ada/tidewater.git",
    "sk-learn-is-a-library-for-all",
]


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_p016_secrets_are_masked(text: str, secret: str) -> None:
    masked = redact(text)
    assert secret not in masked
    assert len(masked) == len(text)
    assert masked == text.replace(secret, MASK * len(secret))


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(("text", "secret"), [*SECRETS, ("""curl -d '{"password":"hunter2xyzQ"}' x""", "hunter2xyzQ")])
def test_p016_secrets_are_masked_in_a_call_s_arguments_too(text: str, secret: str, depth: int) -> None:
    """A command's quotes are escaped there, and once more in a log of it."""
    written, masked = text, text.replace(secret, MASK * len(secret))
    for _ in range(depth):
        written, masked = (json.dumps({"command": one}, ensure_ascii=False) for one in (written, masked))
    if secret != PEM:  # its line ends are written in two letters, and masked as two
        assert redact(written) == masked


@pytest.mark.parametrize("text", HARMLESS)
def test_p016_what_is_no_secret_is_not_harmed_in_arguments_either(text: str) -> None:
    written = json.dumps({"command": text})
    assert redact(written) == written


@pytest.mark.parametrize("text", HARMLESS)
def test_p016_what_is_no_secret_is_not_harmed(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_p016_no_secret_in_any_passage_of_any_source(tmp_path: Path, text: str, secret: str) -> None:
    around = f"{'We met at the harbour. ' * 30}\n\nBefore it. {text}\nAfter it. {'And then we left. ' * 30}\n"
    (tmp_path / "n.md").write_text(around)
    line = {"parentUuid": None, "type": "user", "message": {"role": "user", "content": around}}
    (tmp_path / "t.jsonl").write_text(json.dumps(line) + "\n")
    for file in (tmp_path / "n.md", tmp_path / "t.jsonl"):
        found = parse(file).all_text
        assert secret not in found
        assert "Before it." in found
        assert "After it." in found


@given(st.lists(st.sampled_from([*(text for text, _ in SECRETS), *HARMLESS, "\n", " ", "key=", "x" * 50])).map("".join))
def test_redaction_keeps_the_length_and_is_final(text: str) -> None:
    masked = redact(text)
    assert len(masked) == len(text)
    assert all(c in (m, "\n") or m == MASK for c, m in zip(text, masked, strict=True))
    assert all(0 <= a <= c < d <= b <= len(text) for (a, b), (c, d) in secrets(text))
