"""Text that people or files bring, as Markdown that shows it as it was typed."""

from __future__ import annotations

import re

MARKUP = re.compile(
    r"""[\\`*\[\]<>$~|&]       # code, emphasis, links, pictures, HTML, formulas, tables, entities
      | (?<![^\W_])_|_(?![^\W_])  # emphasis; inside a word an underscore is one already
      | :[\w+/-]+: | :(?=\w)   # :smile: and :material/home:, whose both ends count; :red[...]
      | ^[-+=#]                # lists and headings
      | (?<=\d)[.)](?=\s)      # numbered lists
    """,
    re.VERBOSE | re.MULTILINE,
)


def plain(text: str) -> str:
    """Nothing in it is taken for markup, least of all for a picture on another host.

    Only ASCII punctuation can be escaped in Markdown: a backslash before a long dash would be shown. Streamlit draws
    `->` as an arrow and links a bare address to itself, escaped or not.
    """
    return MARKUP.sub(lambda markup: re.sub(r"\W|_", r"\\\g<0>", markup[0]), text)


def sentence(text: object) -> str:
    """An error's words with a capital and a full stop; a setting's name in front is written as people write it."""
    words = re.sub(r"^[a-z]+(_[a-z]+)+\b", lambda name: name[0].replace("_", " "), str(text))
    return plain(words[:1].upper() + words[1:]) + ("" if words.endswith(".") else ".")
