"""What a page says, as Streamlit's AppTest has it."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest


def page_words(at: AppTest) -> str:
    """Every text of a page, its sidebar and its tables."""
    return str(at.main) + str(at.sidebar) + "".join(frame.value.to_string() for frame in at.dataframe)
