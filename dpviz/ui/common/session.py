"""Keys of a session, made in one way: a page has one `Keys` for its widgets and a `Slot` for each value it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import streamlit as st

T = TypeVar("T")


@dataclass(frozen=True)
class Keys:
    """Keys of a page's widgets: `Keys("train")("title", run_id)` is train.title.<run id>."""

    page: str

    def __call__(self, *parts: object) -> str:
        return ".".join([self.page, *map(str, parts)])


@dataclass(frozen=True)
class Slot(Generic[T]):
    """One value that outlives a script run, with what it is before it was set."""

    key: str
    first: T

    def get(self) -> T:
        value: T = st.session_state.get(self.key, self.first)
        return value

    def set(self, value: T) -> None:
        st.session_state[self.key] = value

    def take(self) -> T:
        """The value, once: the next look finds the first value again."""
        value: T = st.session_state.pop(self.key, self.first)
        return value
