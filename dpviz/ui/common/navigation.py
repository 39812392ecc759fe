"""The pages of the dashboard, in the order of the navigation: known before Streamlit is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dpviz.paths import ROOT


@dataclass(frozen=True)
class Page:
    """A page: its script, its name in the navigation, its address (empty: the home page), its words in the Guide."""

    script: str
    title: str
    url_path: str
    how_to_read: str = ""

    @property
    def path(self) -> Path:
        return ROOT / self.script


PAGES = (
    Page(
        "pages/schedule.py",
        "Schedule",
        "",
        "Draw one noise multiplier σ for each epoch; more noise, less epsilon. The number with ≈ is the browser's "
        "estimate while you draw; the band after it is certified, the true epsilon lies between its ends. The lower "
        "curve is what has been spent after each epoch.",
    ),
    Page(
        "pages/train.py",
        "Train",
        "train",
        "Start a short run of the schedule in the background and watch accuracy against epochs and against the epsilon "
        "spent. A run keeps its settings and goes on if you close the page.",
    ),
    Page(
        "pages/compare.py",
        "Compare",
        "compare",
        "Lay your runs beside full-length runs and what papers report. Up and to the left is better: more accuracy for "
        "less epsilon. Compare at equal *sound* epsilon; a claimed one may not hold.",
    ),
    Page(
        "pages/gradients.py",
        "Gradients",
        "gradients",
        "Look inside a run: how long gradients are, how many are clipped, how much of an update is noise. These "
        "pictures come from private data and are not covered by epsilon.",
    ),
    Page(
        "pages/papers.py",
        "Papers",
        "papers",
        "What the papers report, table by table, and where their numbers can be checked.",
    ),
    Page(
        "pages/local.py",
        "Local privacy",
        "local",
        "Noise is added by each person before anything is sent. Epsilon is what one person loses.",
    ),
    Page("pages/guide.py", "Guide", "guide"),
)
