"""PNG and SVG of a figure, made in the browser from the picture that is shown: no package and no request needed."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

_mount = st.components.v2.component(
    "dpviz_image_buttons",
    html='<div class="images"><button data-format="png">PNG</button><button data-format="svg">SVG</button></div>',
    css="""
.images { display: flex; gap: 1rem; }
button { background: var(--st-background-color); border: 1px solid var(--st-border-color); color: var(--st-text-color);
  border-radius: var(--st-button-radius); cursor: pointer; font: 400 0.875rem var(--st-font); min-height: 2.5rem;
  padding: 0.25rem 0.75rem; }
button:hover, button:focus-visible { border-color: var(--st-primary-color); color: var(--st-primary-color); }
""",
    js=Path(__file__).with_name("image_buttons.js").read_text(encoding="utf-8"),
)


def image_buttons(container: str, name: str) -> None:
    """Buttons that save the figure in the Streamlit container with this key, on white, as `name`.png or .svg."""
    _mount(key=f"images.{container}", data={"container": container, "name": name}, width="content")
