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
    r"""\b(?P<s>
      A(?:KIA|SIA|GPA|IDA|ROA|NPA)[0-9A-Z]{16}\b                       # AWS key ids
    | gh[pousr]_[A-Za-z0-9]{20,255} | github_pat_[A-Za-z0-9_]{20,255}  # GitHub
    | glpat-[A-Za-z0-9_-]{20,255}                                      # GitLab
    | sk-ant-[A-Za-z0-9_-]{8,255}                                      # Anthropic
    | sk-(?:proj-|svcacct-|admin-|or-v1-)?(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{20,255}  # OpenAI and the like
    | xox[abeoprs]-[A-Za-z0-9-]{10,255} | xapp-[0-9]-[A-Za-z0-9-]{10,255}            # Slack
    | [srp]k_(?:live|test)_[A-Za-z0-9]{10,255}                         # Stripe
    | AIza[A-Za-z0-9_-]{35}                                            # Google
    | npm_[A-Za-z0-9]{36} | pypi-[A-Za-z0-9_-]{50,255} | hf_[A-Za-z0-9]{30,255}
    | eyJ[A-Za-z0-9_-]{10,2000}\.[A-Za-z0-9_-]{10,2000}\.[A-Za-z0-9_-]{10,2000}  # JSON web tokens
    )""",
    re.VERBOSE,
)
_SLACK_HOOK = re.compile(r"hooks\.slack\.com/services/(?P<s>[A-Za-z0-9/]{20,255})")
_PRIVATE_KEY = re.compile(
    r"(?P<s>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z))",
    re.DOTALL,
)
_BEARER = re.compile(
    r"\b(?:bearer|authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?\w{1,20})\s{1,3}(?P<s>[A-Za-z0-9._~+/-]{16,4000}={0,2})",
    re.IGNORECASE,
)
_URL_PASSWORD = re.compile(r"://[^\s/:@'\"]{0,80}:(?P<s>[^\s/@'\"]{1,200})@")
_ASSIGNMENT = re.compile(
    r"""(?P<name>secret|token|passw(?:or)?d|passphrase|pwd|api[_\ -]?key|access[_\ -]?key|private[_\ -]?key|credential
        |auth[_-]?key|encryption[_-]?key)[A-Za-z0-9_.-]{0,20}
        (?:(?:\\{0,3}["'])?\s{0,3}(?:=>|:=|=|:)\s{0,3}|\s{1,3}(?:is|was)\s{1,3})
        (?P<q>(?:\\{0,3}["'`])?)(?P<s>(?:(?!\\{1,3}["'`])[^\s"'`,;)}\]]){6,400})  # \" in JSON""",
    re.VERBOSE | re.IGNORECASE,
)
_CODE_REFERENCE = re.compile(
    r"""^(?:[$<{%(\[.]|process\.|import\.|os\.|env\.|self\.|this\.|config\.|settings\.|secrets\.)
        |^[A-Za-z_][\w.]*[(\[]|^[a-z_]\w*(?:\.\w+)+$|^https?://|^[/~]|^(?:true|false|none|null|undefined)$""",
    re.VERBOSE | re.IGNORECASE,
)
_NAMES_PASSWORD = re.compile(r"passw(?:or)?d|passphrase|pwd", re.IGNORECASE)

_Rule = tuple[re.Pattern[str], tuple[str, ...]]
_CERTAIN: tuple[_Rule, ...] = (  # each with letters of which one must be there, which is quicker to see
    (_PRIVATE_KEY, ("-----BEGIN",)),
    (_TOKENS, ("AKIA", "ASIA", "AGPA", "AIDA", "AROA", "ANPA", "gh", "glpat-", "sk-", "xox", "xapp-", "k_live",
               "k_test", "AIza", "npm_", "pypi-", "hf_", "eyJ")),
    (_SLACK_HOOK, ("slack",)),
    (_URL_PASSWORD, ("://",)),
)  # fmt: skip
_BEARER_LETTERS = ("bearer", "authorization")
_ASSIGNMENT_LETTERS = ("secret", "token", "pass", "pwd", "key", "credential")
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
    for rule, letters in _CERTAIN:
        if any(some in text for some in letters):
            for match in rule.finditer(text):
                yield match.span(), match.span("s")
    lower = text.lower()
    if any(some in lower for some in _BEARER_LETTERS):
        for match in _BEARER.finditer(text):
            if _looks_random(match["s"]):
                yield match.span(), match.span("s")
    if any(some in lower for some in _ASSIGNMENT_LETTERS):
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
