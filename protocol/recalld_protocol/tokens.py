"""How many tokens of a model's context a text takes: one stated rule, the same for whoever counts.

No tokenizer is asked: every model has its own, and the client must stay light. English prose has four to five letters
to a token, code and paths three to four, so 3.5 counts a little too much rather than too little; what is not ASCII
counts a token per character, which is about right for Chinese and far too much for accents.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recalld_protocol.messages import Snippet

CHARACTERS_PER_TOKEN = 3.5
FRAME_TOKENS = 12  # what a rendered snippet has beside its words, path and date: quotes, dashes, byte offsets


def tokens_of(text: str) -> int:
    """Tokens of a text, rounded up.

    >>> tokens_of("never tag before CI is green"), tokens_of(""), tokens_of("港")
    (8, 0, 1)
    """
    plain = sum(character.isascii() for character in text) if not text.isascii() else len(text)
    return math.ceil(plain / CHARACTERS_PER_TOKEN) + len(text) - plain


def snippet_tokens(snippet: Snippet) -> int:
    """Tokens of a snippet as it stands in the agent's context."""
    return tokens_of(snippet.text) + tokens_of(snippet.path) + tokens_of(snippet.date) + FRAME_TOKENS
