"""Secrets are masked before anything is embedded or stored, character for character, so that offsets stay computable.

A rule is a pattern whose group `s` is the secret; all else in the match is the context that betrays it. A secret is
replaced by as many MASK characters as it is long. Assignments (`KEY=value`) are masked only where the value looks
random or the name says "password": a git SHA, code that reads a variable, or prose about keys stays as it is.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

MASK = "█"  # neither letter nor punctuation: tokenizers see one unknown word, FTS none; one character per character

_TOKENS = re.compile(
    r"""(?P<s>
      \b(?:AKIA|ASIA|AGPA|AIDA|AROA|ANPA)[0-9A-Z]{16}\b                # AWS key ids
    | \bgh[pousr]_[A-Za-z0-9]{20,255}                                  # GitHub
    | \bgithub_pat_[A-Za-z0-9_]{20,255}
    | \bglpat-[A-Za-z0-9_-]{20,}                                       # GitLab
    | \bsk-ant-[A-Za-z0-9_-]{8,}                                       # Anthropic
    | \bsk-(?:proj-|svcacct-|admin-|or-v1-)?(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{20,}  # OpenAI and like ones
    | \bxox[abeoprs]-[A-Za-z0-9-]{10,} | \bxapp-[0-9]-[A-Za-z0-9-]{10,}     # Slack
    | \b(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}                    # Stripe
    | \bAIza[A-Za-z0-9_-]{35}                                          # Google
    | \bnpm_[A-Za-z0-9]{36} | \bpypi-[A-Za-z0-9_-]{50,} | \bhf_[A-Za-z0-9]{30,}
    | \beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}  # JSON web tokens
    )""",
    re.VERBOSE,
)
_SLACK_HOOK = re.compile(r"hooks\.slack\.com/services/(?P<s>[A-Za-z0-9/]{20,})")
_PRIVATE_KEY = re.compile(
    r"(?P<s>-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\Z))",
    re.DOTALL,
)
_BEARER = re.compile(r"\b(?:bearer|basic|token)\s+(?P<s>[A-Za-z0-9._~+/-]{16,}={0,2})", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@'\"]{0,80}:(?P<s>[^\s/@'\"]{1,200})@", re.IGNORECASE)
_ASSIGNMENT = re.compile(
    r"""(?P<name>[A-Za-z0-9_.-]{0,40}(?:secret|token|passw(?:or)?d|passphrase|pwd|api[_-]?key|access[_-]?key
        |private[_-]?key|credential|auth[_-]?key|encryption[_-]?key)[A-Za-z0-9_.-]{0,20})
        ["']?\s{0,3}(?:=|:=|=>|:)\s{0,3}(?P<q>["'`]?)(?P<s>[^\s"'`,;)}\]]{6,400})""",
    re.VERBOSE | re.IGNORECASE,
)
_CODE_REFERENCE = re.compile(
    r"""^(?:\$|<|\{|%|\(|\[|\.|process\.|import\.|os\.|env\.|self\.|this\.|config\.|settings\.|secrets\.)
        |^[A-Za-z_][\w.]*[(\[]|^[a-z_]\w*(?:\.\w+)+$|^https?://|^[/~]|^(?:true|false|none|null|undefined)$""",
    re.VERBOSE | re.IGNORECASE,
)
_NAMES_PASSWORD = re.compile(r"passw(?:or)?d|passphrase|pwd", re.IGNORECASE)
_HINTS = re.compile(
    r"[A-Z0-9]{16}|_[A-Za-z0-9]{10}|sk-|glpat|xox|xapp|AIza|pypi-|eyJ|slack|-----BEGIN|bearer|basic|token|://"
    r"|secret|passw|passphrase|pwd|key|credential",
    re.IGNORECASE,
)
RANDOM_BITS = 3.0  # Shannon bits per character: English words of 16 letters lie near 3.2, but carry no digits


def redact(text: str) -> str:
    """The same text, as many characters long, with every secret masked."""
    spans = [secret for _, secret in secrets(text)]
    if not spans:
        return text
    parts: list[str] = []
    at = 0
    for start, end in sorted(spans):
        if end <= at:
            continue
        start = max(start, at)
        parts += (text[at:start], MASK * (end - start))
        at = end
    parts.append(text[at:])
    return "".join(parts)


def secrets(text: str) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Each secret as (the characters that betray it, the characters to mask), half open; not sorted, may overlap."""
    if not _HINTS.search(text):
        return
    for rule in (_PRIVATE_KEY, _TOKENS, _SLACK_HOOK, _URL_PASSWORD):
        for match in rule.finditer(text):
            yield match.span(), match.span("s")
    for match in _BEARER.finditer(text):
        if _looks_random(match["s"]):
            yield match.span(), match.span("s")
    for match in _ASSIGNMENT.finditer(text):
        if _is_secret_value(match["name"], match["s"], bool(match["q"])):
            yield match.span(), match.span("s")


def _is_secret_value(name: str, value: str, quoted: bool) -> bool:
    """Whether what is assigned to a telling name is a secret: not code, not a placeholder, random or a password."""
    if _CODE_REFERENCE.search(value) or set(value) <= set("*.xX-_•█"):
        return False
    if _looks_random(value):
        return True
    wordlike = value.replace("-", "").replace("_", "").isalpha()
    return bool(_NAMES_PASSWORD.search(name)) and (quoted or not wordlike)


def _looks_random(value: str) -> bool:
    """16 characters or more, letters and digits mixed, and no plain repetition."""
    if len(value) < 16 or not any(c.isdigit() for c in value) or not any(c.isalpha() for c in value):
        return False
    counts = Counter(value)
    bits = -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values())
    return bits >= RANDOM_BITS
