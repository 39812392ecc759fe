"""Where things are: the one module that knows the project's folders and the person's.

In a checkout app.py, pages, cached runs and MNIST lie beside the package; a wheel carries them inside it.
"""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
IN_CHECKOUT = (PACKAGE.parent / "app.py").is_file() and (PACKAGE.parent / "pyproject.toml").is_file()
ROOT = PACKAGE.parent if IN_CHECKOUT else PACKAGE / "bundled"
APP = ROOT / "app.py"
PROJECT_DATA = ROOT / "data"


def runs_folder() -> Path:
    """A person's own runs: DPVIZ_RUNS, else `runs` of a checkout, else the user's data folder."""
    asked = os.environ.get("DPVIZ_RUNS")
    if asked:
        return Path(asked)
    return ROOT / "runs" if IN_CHECKOUT else user_data_folder() / "runs"


def cached_runs_folder() -> Path:
    """The papers' full-length runs: DPVIZ_CACHED_RUNS, else those that come with dpviz."""
    return Path(os.environ.get("DPVIZ_CACHED_RUNS") or ROOT / "cached_runs")


def own_data_folder() -> Path:
    """Datasets that a person added: in DPVIZ_DATA, else in `data` of a checkout, else in the user's data folder."""
    asked = os.environ.get("DPVIZ_DATA")
    if asked:
        return Path(asked).expanduser() / "own"
    return (PROJECT_DATA if IN_CHECKOUT else user_data_folder() / "data") / "own"


def cache_folder() -> Path:
    """What can be made or downloaded again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dpviz"


def user_data_folder() -> Path:
    import platformdirs  # an extra's, and needed outside of a checkout only

    return Path(platformdirs.user_data_dir("dpviz", appauthor=False))
