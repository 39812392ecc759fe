"""Inline Streamlit components that draw as SVG: their files joined with what all of them share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st

_FOLDER = Path(__file__).parent


def svg_component(name: str, folder: Path, parts: Sequence[str]) -> Any:
    """The component that these files of a folder make up.

    An inline component is one module, so its scripts are joined; each uses names of those before it.
    """
    files = (_FOLDER / "svg.css", _FOLDER / "svg.js", *(folder / part for part in parts))

    def joined(kind: str) -> str:
        return "\n".join(file.read_text(encoding="utf-8") for file in files if file.suffix == kind)

    return st.components.v2.component(name, html=joined(".html"), css=joined(".css"), js=joined(".js"))
