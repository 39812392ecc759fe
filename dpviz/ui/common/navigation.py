"""The pages of the dashboard: known before Streamlit is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dpviz.paths import ROOT


@dataclass(frozen=True)
class Place:
    """A page: its script, its name in the navigation, and its address (empty: the home page)."""

    script: str
    title: str
    url_path: str = ""

    @property
    def path(self) -> Path:
        return ROOT / self.script


PLACES = (
    Place("pages/schedule.py", "Schedule"),
    Place("pages/train.py", "Train", "train"),
    Place("pages/compare.py", "Compare", "compare"),
    Place("pages/gradients.py", "Gradients", "gradients"),
    Place("pages/papers.py", "Papers", "papers"),
    Place("pages/local.py", "Local privacy", "local"),
    Place("pages/guide.py", "Guide", "guide"),
)


def places() -> tuple[Place, ...]:
    """The pages whose scripts are there."""
    return tuple(place for place in PLACES if place.path.exists())
