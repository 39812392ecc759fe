"""Files that people take with them: one entry per format, and a row of buttons for a table of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, ParamSpec

import streamlit as st

P = ParamSpec("P")


@dataclass(frozen=True)
class FileFormat(Generic[P]):
    """A kind of file: the words on its button, the file's name ("{name}.csv"), its MIME type, and how it is made.

    `why_not` gets what `make` gets, and says in a sentence why it cannot be made; empty: it can.
    """

    title: str
    file: str
    mime: str
    make: Callable[P, bytes]
    why_not: Callable[P, str] = lambda *_, **__: ""
    help: str = ""


def download_buttons(formats: Sequence[FileFormat[P]], name: str, *content: P.args, **more: P.kwargs) -> None:
    """One button per format; the file is made when its button is pressed."""
    for entry in formats:
        why_not, file = entry.why_not(*content, **more), entry.file.format(name=name)
        st.download_button(
            entry.title,
            partial(entry.make, *content, **more),
            file,
            entry.mime,
            key=f"download.{file}",
            on_click="ignore",
            disabled=bool(why_not),
            help=why_not or entry.help or None,
        )
