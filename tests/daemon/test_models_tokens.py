"""Which tokens a text becomes, which are kept, and where they stand in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from recalld_daemon.models.files import find_folder
from recalld_daemon.models.tokens import CHARACTERS, STOP_WORDS, TextTokenizer, TokenizedText, batches, padded

FOLDER: Path = find_folder("default", allow_download=False)


def tokenizer(prompt: str = "", limit: int = 256) -> TextTokenizer:
    return TextTokenizer(Tokenizer.from_file(str(FOLDER / "tokenizer.json")), prompt, limit, 256)


def check(text: str, pieces: list[str], prompt: str = "") -> TokenizedText:
    """The kept tokens' spans, as they stand in the text."""
    (found,) = tokenizer(prompt)([text])
    assert [text[start:end] for start, end in zip(found.starts, found.ends, strict=True)] == pieces
    return found


def test_spans_are_those_of_the_words() -> None:
    check("Deploy  the Staging-key, to Straße 5!", ["Deploy", "Staging", "key", "St", "raße", "5"])


def test_a_word_in_pieces_has_a_span_for_each_piece() -> None:
    check("kubectl", ["ku", "be", "ct", "l"])


def test_stop_words_and_bare_punctuation_are_dropped_unless_there_is_nothing_else() -> None:
    check("What is it that we have to do about -- billing?", ["billing"])
    check("What is it?", ["What", "is", "it", "?"])
    check("", [])


def test_a_piece_that_continues_a_word_is_never_a_stop_word() -> None:
    text = "Kofia"  # ko ##fi ##a: the last piece is no article
    (found,) = tokenizer()([text])
    assert "".join(text[start:end] for start, end in zip(found.starts, found.ends, strict=True)) == text
    assert "a" in STOP_WORDS


def test_the_prompt_is_encoded_and_never_kept() -> None:
    bare, prompted = check("push it", ["push"]), check("push it", ["push"], prompt="query: ")
    assert len(prompted.ids) == len(bare.ids) + 2
    assert tokenizer("query: ").prompt_tokens == 2


def test_long_texts_are_cut_beside_the_prompt() -> None:
    words = "word " * 1000
    assert [len(tokenizer(limit=64)([words])[0].ids), len(tokenizer("query: ", 64)([words])[0].ids)] == [64, 66]
    assert len(tokenizer("query: ", 256)([words])[0].ids) == 256  # the model's own bound


def test_offsets_fit_sixteen_bits() -> None:
    (found,) = tokenizer()([" " * (CHARACTERS - 3) + "end" + "beyond"])
    assert found.starts.tolist() == [CHARACTERS - 3]
    assert found.ends.tolist() == [CHARACTERS]


@pytest.mark.parametrize("text", ["a\ud83dkey", "NUL\0key", "emoji 🗝 key", "\u202ekey", "鍵 key"])
def test_p031_odd_characters_leave_the_spans_right(text: str) -> None:
    (found,) = tokenizer()([text])
    assert found.ends[-1] == text.index("key") + 3
    assert "key".endswith(text[found.starts[-1] : found.ends[-1]].removeprefix("NUL\0"))


def test_batches_hold_like_lengths_and_every_text_once() -> None:
    texts = tokenizer()([("word " * count).strip() for count in (3, 200, 5, 90, 4, 100, 180)])
    seen: list[int] = []
    for positions, ids, mask in batches(texts, size=3):
        lengths = [len(texts[position].ids) for position in positions]
        assert len(positions) <= 3
        assert 2 * min(lengths) >= max(lengths)
        assert mask.sum(axis=1).tolist() == lengths
        assert ids.shape[1] % 8 == 0
        seen += positions
    assert sorted(seen) == list(range(7))


def test_padding_is_masked() -> None:
    ids, mask = padded([np.array([5, 6, 7]), np.array([8])], multiple=4)
    assert ids.tolist() == [[5, 6, 7, 0], [8, 0, 0, 0]]
    assert mask.tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]
