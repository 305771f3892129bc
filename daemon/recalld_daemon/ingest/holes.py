"""What is never indexed, wherever it stands: base64 and data URIs, key blocks, HTML comments, and our own words.

A passage is contiguous, so such a span is a hole between passages: what stands before and after it keeps its offsets.
Hosts write what we injected into their own logs, and agents quote it: a rendered line, a block of facts and the wrapper
around them are holes in every kind of source, the hosts' own wrappers in transcripts. Of a rendered line that was cut
short or rewritten, all that follows on its line is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from recalld_daemon.ingest.redact import MASK

Span = tuple[int, int]

LONG_WORD = 400  # characters of ASCII without a space: base64, minified code; the longest sensible links are shorter

_BLOBS = re.compile(
    r"""\]?\(?<?\bdata:[\w.+-]{1,60}/[\w.+-]{1,80}(?:;[\w=.+-]{1,60}){0,4},
            (?:<svg.*?(?:</svg>|\Z)|[^\s"'<>)\]]*)>?\)?             # data URI, with a link's syntax around it
      | \bdata:;?base64,[A-Za-z0-9+/=%_-]*
      | (?:^[ \t>]*[A-Za-z0-9+/=_-]{60,}[ \t]*(?:\r?\n|\Z)){3,}     # lines of base64
      | [!-~]{400,}""",
    re.VERBOSE | re.MULTILINE | re.DOTALL | re.IGNORECASE,
)
_QUOTE = r"""(?:\\*["“”]|&quot;|&\#34;)"""  # as it is written, escaped in JSON that was pasted, or made pretty
_DOTS = r"(?:…|\.\.\.|\\+u2026)"
_RENDERED = re.compile(
    rf"""[Rr]ecalled:\s{{1,3}}{_QUOTE}{_DOTS}
        (?:(?:(?!\n[ \t>]*\n)[^"“”]){{0,2000}}?{_DOTS}{_QUOTE}\s{{0,3}}(?:[—–-]{{1,2}}|\\+u2014)\s{{0,3}}
            [^\n]{{1,4200}}?:\d{{1,15}}-\d{{1,15}}(?![\w/])(?:\s\(\d{{4}}-\d\d-\d\d\))?  # all of a rendered line
          | [^\n]*)                                                                         # or what is left of one""",
    re.VERBOSE,
)
_TOLD_BY = re.compile(r"\b\w{1,40} hook additional context:\s{0,3}\Z")  # what Claude Code puts before a line
_FACTS = re.compile(
    r"""From[ ]memory,[ ]oldest[ ]first\.[ ]Quotations[ ]from[ ]the[ ]files[ ]named,[ ]not[ ]instructions:
        (?:(?:\r?\n|\\+n)[ \t>]*-[ ][^\n]{0,5000}?:\d{1,15}-\d{1,15}\))*""",
    re.VERBOSE,
)
_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.DOTALL,
)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_EMBED = re.compile(r"^[ \t>*+-]*!\[\[[^\]\n]{1,400}\]\][ \t]*\r?$", re.MULTILINE)
_FENCED = re.compile(r"^[ \t>]*(`{3,}|~{3,})[^\n]*\n.*?(?:^[ \t>]*\1|\Z)", re.MULTILINE | re.DOTALL)
_CONTEXT = re.compile(r"<(hook_context)\b")
_WRAPPER = re.compile(
    r"<(system[-_]reminder|command-name|command-message|command-args|command-contents|local-command-stdout"
    r"|local-command-stderr|local-command-caveat|bash-input|bash-stdout|bash-stderr|user-prompt-submit-hook"
    r"|user-memory-input|task-notification|ide_opened_file|ide_selection|ide_diagnostics|environment_context"
    r"|post-tool-use-hook|session-start-hook)\b[^>]{0,200}>"
)
_HOST = re.compile(
    r"<hook_context\b.*|^Tool \"[^\"\n]{1,200}\" \w+\. Additional guidance from \w+ hooks:", re.DOTALL | re.MULTILINE
)
_SAID = re.compile(r"[^\W_]{2,}|[\u2e80-\u9fff\uac00-\ud7af]")
_BLOB_TAIL = re.compile(r"[!-~]*")


def holes(text: str, *, comments: bool = False, host: bool = False) -> list[Span]:
    """Spans of characters that make no passage, in order, not overlapping.

    `comments`: HTML comments are, and lines that embed a file and say no more (markdown, outside fenced code); `host`:
    the wrappers that hosts put around what no one said (transcripts).
    """
    found = [match.span() for rule in (_BLOBS, _FACTS, _KEY_BLOCK) for match in rule.finditer(text)]
    found += [*_rendered(text), *_wrapped(text, _CONTEXT)]
    if comments:
        found += _comments(text)
    if host:
        found += [*_wrapped(text, _WRAPPER), *(match.span() for match in _HOST.finditer(text))]
    return _merged(found)


def solids(text: str, gaps: list[Span]) -> Iterator[Span]:
    """What lies between the holes."""
    at = 0
    for start, end in gaps:
        if start > at:
            yield at, start
        at = max(at, end)
    if at < len(text):
        yield at, len(text)


def blob_tail(text: str) -> int:
    """How many characters at the beginning still belong to a blob that began in an earlier piece of the same line."""
    match = _BLOB_TAIL.match(text)
    return match.end() if match else 0


def says_something(text: str, words: int) -> bool:
    """Whether there are as many words in it that are not masked away."""
    return len(_SAID.findall(text.replace(MASK, " "))) >= words


def _rendered(text: str) -> Iterator[Span]:
    for match in _RENDERED.finditer(text):
        before = text[max(0, match.start() - 100) : match.start()]
        told_by = _TOLD_BY.search(before)
        yield match.start() - (len(before) - told_by.start() if told_by else 0), match.end()


def _wrapped(text: str, opening: re.Pattern[str]) -> Iterator[Span]:
    """From an opening tag to its end. In one pass: a pattern over both would look for a missing end again and again."""
    at, endless = 0, set[str]()
    for match in opening.finditer(text):
        tag = match[1]
        if match.start() < at or tag in endless:
            continue
        end = text.find(f"</{tag}>", match.end())
        if end < 0:
            endless.add(tag)
        else:
            at = end + len(tag) + 3
            yield match.start(), at


def _comments(text: str) -> list[Span]:
    if "<!--" not in text and "![[" not in text:
        return []
    fenced = [match.span() for match in _FENCED.finditer(text)]
    comments = [match.span() for rule in (_COMMENT, _EMBED) for match in rule.finditer(text)]
    return [(a, b) for a, b in comments if not any(first <= a < last for first, last in fenced)]


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if start == end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
