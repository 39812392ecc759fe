"""What one run, one queue and one upload may ask for. The operator of a server sets each by an environment variable.

Every run's settings pass `check_spec` where they enter the store; queue and upload are checked where they arrive.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from dpviz.privacy.registry import InputError
from dpviz.training.spec import RunSpec
from dpviz.training.tables import MODELS


@dataclass(frozen=True)
class Limit:
    """The most of something: its default, the environment variable that sets another, and how a person calls it."""

    default: int
    variable: str
    noun: str
    advice: str

    @property
    def most(self) -> int:
        """The limit in force; a variable that is no whole number >= 1 is an error, never ignored."""
        text = os.environ.get(self.variable, "").strip()
        if not text:
            return self.default
        if not (text.isascii() and text.isdigit() and int(text[:18]) >= 1 and len(text) <= 18):
            raise InputError(f"{self.variable} must be a whole number >= 1, got {text[:40]!r}; correct or unset it")
        return int(text)

    def check(self, amount: float) -> None:
        """Refuse more than the limit in one sentence."""
        if not amount <= self.most:
            raise InputError(
                f"at most {self.most:,} {self.noun} are allowed here, got {amount:,}; {self.advice} "
                f"(the limit is set by {self.variable})"
            )


LIMITS: dict[str, Limit] = {
    "epochs": Limit(10_000, "DPVIZ_MAX_EPOCHS", "epochs per run", "take fewer epochs"),
    "batch_size": Limit(65_536, "DPVIZ_MAX_BATCH", "examples per batch", "take smaller batches"),
    "weights": Limit(5_000_000, "DPVIZ_MAX_WEIGHTS", "weights per model", "choose a smaller model"),
    "queue": Limit(500, "DPVIZ_MAX_QUEUE", "waiting runs", "wait until some have ended"),
    "upload": Limit(20, "DPVIZ_MAX_UPLOAD_MB", "MB per file", "bring fewer rows"),
    "own_data": Limit(20_000, "DPVIZ_MAX_DATA_MB", "MB per own dataset", "bring fewer or smaller examples"),
    "own_datasets": Limit(100, "DPVIZ_MAX_DATASETS", "own datasets", "remove one that is no longer needed"),
}


def check_spec(spec: RunSpec) -> RunSpec:
    """Settings that this server takes; anything above a limit is refused by name."""
    LIMITS["epochs"].check(spec.epochs)
    LIMITS["batch_size"].check(spec.batch_size)
    LIMITS["weights"].check(MODELS[spec.model].weights(spec.data, spec.knobs_of("model")))
    return spec


def refuse_own_model(spec: RunSpec) -> None:
    """A model of a person's own is code, and settings may come from a link, an upload or somebody else's run."""
    if MODELS[spec.model].own:
        raise InputError(
            f"model {spec.model} is code of your own, which pages do not run; use the command line (dpviz train, "
            "dpviz sweep, dpviz runs resume) or Python"
        )


def limits_words() -> str:
    """The limits of a run in one line, for pages."""
    parts = (f"{LIMITS[name].most:,} {LIMITS[name].noun}" for name in ("epochs", "batch_size", "weights", "queue"))
    return f"At most {', '.join(parts)}."


READ_ONLY = "DPVIZ_READ_ONLY"


def read_only() -> str:
    """Why nothing can be launched, changed or uploaded here; empty if it can."""
    text = os.environ.get(READ_ONLY, "").strip().lower()
    locked = text not in ("", "0", "false", "no")  # a word that nobody foresaw locks rather than opens
    return f"This dashboard is read-only ({READ_ONLY} is set): runs can be looked at, not changed." if locked else ""


def refuse_if_read_only() -> None:
    """The last word, behind every button that pages disable."""
    reason = read_only()
    if reason:
        raise InputError(reason[:1].lower() + reason[1:].rstrip("."))
