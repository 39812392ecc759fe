"""What the figures of runs share: how a column is shown on an axis, the colours, and the empty plot to draw in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Told apart on white and on black, and by people who do not tell red from green (after Okabe & Ito, 2008).
COLOURS = ("#2f7ed8", "#e08214", "#159b77", "#c754a5", "#8a6fdf", "#d9544d", "#5aa5c9", "#a8862b")
GREY = "rgba(128, 128, 128, 0.75)"
PALE = "rgba(128, 128, 128, 0.28)"


@dataclass(frozen=True)
class Axis:
    """How a column is shown: its title with the unit, and the format of a number in a hover box."""

    title: str
    hover: str = ".4g"

    def hovered(self, letter: str) -> str:
        """Its line in a hover box: "Epoch: 3" for letter x."""
        return f"{self.title}: %{{{letter}:{self.hover}}}"


AXES: dict[str, Axis] = {
    "epoch": Axis("Epoch", "d"),
    "epsilon_sound": Axis("Epsilon spent (sound)"),
    "epsilon_claimed": Axis("Epsilon spent (claimed)"),
    "minutes": Axis("Training time (minutes)", ".2f"),
    "test_accuracy": Axis("Test accuracy (%)", ".2f"),
    "train_accuracy": Axis("Training accuracy (%)", ".2f"),
    "test_loss": Axis("Test loss"),
    "train_loss": Axis("Training loss"),
    "noise_multiplier": Axis("Noise multiplier σ"),
}
EPOCH_COLUMNS = tuple(AXES)  # what an epoch's record says; the rest is worked out from it
AXES["members_found"] = Axis("Members found at 0.1 % false alarms (%, at most)", ".3g")
LOG_TICKS = [digit * 10.0**power for power in range(-4, 6) for digit in (1, 2, 5)]
AXIS = {"showgrid": True, "automargin": True}
PERCENT = ("test_accuracy", "train_accuracy")


def layout(x: str, y: str, *, height: int = 360, log_x: bool = False) -> dict[str, Any]:
    """What every figure shares: axes with titles, the legend at the foot; `uirevision` keeps a person's zoom.

    Plotly's own buttons appear above the plot, so nothing else may be there. Axes make room for their numbers, which
    on a phone are as wide as on a desk.
    """
    ticks = {"tickvals": LOG_TICKS, "ticktext": [f"{tick:g}" for tick in LOG_TICKS]} if log_x else {}
    return {
        "height": height,
        "margin": {"l": 56, "r": 16, "t": 32, "b": 48},
        "showlegend": True,
        "xaxis": {"title": {"text": x}, "type": "log" if log_x else "linear", **AXIS, **ticks},
        "yaxis": {"title": {"text": y}, **AXIS},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 0, "yanchor": "bottom", "yref": "container"},
        "modebar": {"bgcolor": "rgba(0, 0, 0, 0)"},
        "hovermode": "closest",
        "uirevision": f"{x}/{y}/{log_x}",
    }


def epoch_ticks(last: float) -> dict[str, Any]:
    """Whole epochs on an axis: every one of up to ten, then every second, fifth, tenth ..."""
    step = next((step for step in (1, 2, 5, 10, 20, 50, 100, 200) if last <= 10 * step), 500)
    return {"tick0": step if step > 1 else 1, "dtick": step}


def tinted(colour: str, alpha: float) -> str:
    """A #rrggbb colour made see-through."""
    red, green, blue = (int(colour[k : k + 2], 16) for k in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {alpha:g})"
