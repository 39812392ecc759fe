"""Settings as people read them: what curves are coloured, grouped and told apart by."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import pandas as pd

from dpviz.papers import PAPERS
from dpviz.privacy.registry import title_of
from dpviz.runs.store.imported import AnySpec, ImportedSpec
from dpviz.training.tables import CHOICES, DATASETS
from dpviz.views.numbers import delta_text
from dpviz.views.runs import schedule_words

Setting = str | float

TITLES = {
    "dataset": "Dataset",
    "paper": "Paper",
    "source": "Source",
    "method": "Method",
    "schedule": "Schedule family",
    "noise": "Noise",
    "loss": "Loss",
    "optimizer": "Optimizer",
    "clipping": "Clipping",
    "curriculum": "Curriculum",
    "model": "Model",
    "batch_size": "Batch size",
    "learning_rate": "Learning rate",
    "clip_norm": "Clipping norm",
    "epochs": "Epochs",
    "examples": "Training examples",
    "delta": "Delta",
    "learning_rate_schedule": "Learning-rate schedule",
    "clip_norm_schedule": "Clipping-norm schedule",
    "sweep": "Sweep",
    "run": "Run",
}
NUMBERS = ("batch_size", "learning_rate", "clip_norm", "epochs", "delta")


def setting_title(name: str) -> str:
    """ "Learning rate", or for a knob "Optimizer: momentum"."""
    choice, _, knob = name.partition(".")
    title = TITLES.get(choice, choice.replace("_", " ").capitalize())
    return f"{title}: {knob.replace('_', ' ')}" if knob else title


@lru_cache(maxsize=8192)
def settings_of(spec: AnySpec) -> dict[str, Setting]:
    """Every setting of a run but its seed: numbers as numbers, choices by their titles.

    Of an imported run, those of its facts that are settings here.
    """
    if isinstance(spec, ImportedSpec):
        named: dict[str, Setting] = {name: value for name, value in spec.facts if name in TITLES}
        named |= {"dataset": title_of(DATASETS, spec.dataset), "noise": schedule_words(spec), "delta": spec.delta}
        return named | ({"epochs": spec.epochs} if spec.epochs else {})
    chosen = {name: _choice(name, getattr(spec, name)) for name in CHOICES}
    return {
        **chosen,
        "schedule": "No noise" if not spec.private else spec.schedule.name.replace("-", " ").capitalize(),
        "noise": schedule_words(spec),
        **{name: getattr(spec, name) for name in NUMBERS},
        "examples": spec.examples,
        **{key: value if isinstance(value, int | float) else str(value) for key, value in spec.knobs},
    }


def _choice(name: str, value: str) -> str:
    title = title_of(CHOICES[name], value)
    return title[:1].upper() + title[1:]


PLAIN = {  # DP-SGD and nothing else, with constant noise: what others are first compared with
    "schedule": "Constant",
    **{
        name: _choice(name, value)
        for name, value in {
            "method": "dp-sgd",
            "loss": "cross-entropy",
            "clipping": "flat",
            "curriculum": "none",
        }.items()
    },
}


def setting_text(name: str, value: object) -> str:
    """A value in a table: 1e-5, 60,000, 0.25; empty where there is none."""
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return delta_text(value) if name == "delta" else f"{int(value):,}" if value == int(value) else f"{value:g}"
    return str(value)


def value_words(name: str, value: object) -> str:
    """A value outside its table: a word by itself, a number with the setting's title."""
    text, title = setting_text(name, value) or "not set", setting_title(name)
    return text if isinstance(value, str) else f"{title[:1].lower()}{title[1:]} {text}"


def paper_title(name: str) -> str:
    """A paper as people call it, not its folder's name."""
    return PAPERS[name].short_title if name in PAPERS else name


def varying(settings: pd.DataFrame) -> list[str]:
    """The settings in which the rows differ, in the order of TITLES, knobs last."""
    order = [*TITLES, *settings.columns]
    differing = {name for name in settings.columns if settings[name].astype(str).nunique() > 1}
    return [name for name in dict.fromkeys(order) if name in differing]


def differing_frame(settings: pd.DataFrame, groups: Sequence[str], names: Sequence[str]) -> pd.DataFrame:
    """The settings in which these groups differ, a row per setting and a column per group, and nothing else."""
    chosen = settings.reindex(list(groups))
    keys = [key for key in varying(chosen) if key != "run"]
    cells = [[setting_text(key, value) for value in chosen[key]] for key in keys]
    return pd.DataFrame(cells, index=[setting_title(key) for key in keys], columns=list(names))


def cell_frame(table: pd.DataFrame, settings: pd.DataFrame, down: str, across: str) -> pd.DataFrame:
    """Best accuracy at this epsilon for each pair of values of two settings; values in order, gaps as NaN."""
    ready = table[table["accuracy"].notna()]
    pairs = settings.reindex(ready.index)[[down, across]].assign(accuracy=ready["accuracy"]).dropna()
    if pairs.empty:
        return pd.DataFrame()
    cells = pairs.pivot_table(index=down, columns=across, values="accuracy", aggfunc="max", sort=False)
    return cells.reindex(index=_ordered(cells.index), columns=_ordered(cells.columns))


def _ordered(values: pd.Index) -> list[object]:
    """Numbers by size, words by the alphabet."""
    return sorted(values, key=lambda value: (isinstance(value, str), value if isinstance(value, str) else float(value)))
