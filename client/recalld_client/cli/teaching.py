"""How --help is laid out: prose is wrapped to the width, examples and lists stay as they were written."""

from __future__ import annotations

import argparse
import textwrap


class HelpFormatter(argparse.HelpFormatter):
    """Wraps each paragraph of a description or an epilog, except those with an indented line."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(_laid_out(paragraph, width) for paragraph in text.strip().split("\n\n"))


def _laid_out(paragraph: str, width: int) -> str:
    return paragraph if "\n  " in paragraph else textwrap.fill(paragraph, width, break_on_hyphens=False)
