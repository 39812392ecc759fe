"""dpviz: the privacy-utility trade-off of differentially private training, at pointer speed.

    import dpviz
    dpviz.epsilon([(1.1, 0.01, 2000)], delta=1e-5)   # noise 1.1, sample rate 0.01, 2,000 steps

Names are imported on first use: `import dpviz` loads nothing else, prices need numpy and scipy, `load_runs` pandas,
`train` and `sweep` torch. docs/api.md shows them at work.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpviz.privacy import (
        Epsilon,
        Guarantee,
        InputError,
        Ledger,
        Phase,
        Risk,
        Schedule,
        Target,
        calibrate,
        delta,
        epoch_phases,
        epsilon,
        epsilon_path,
        guarantee,
        matching_constant,
        risk,
    )
    from dpviz.privacy.audit import Audit
    from dpviz.privacy.rounding import epsilon_number
    from dpviz.runs import Run
    from dpviz.runs.api import sweep, train
    from dpviz.runs.sweeps.spec import Sweep
    from dpviz.runs.tracking.exporters import export_runs
    from dpviz.runs.tracking.importers import import_run
    from dpviz.runs.tracking.opacus import register_with_opacus
    from dpviz.runs.tracking.track import track
    from dpviz.training.audit import StepAudit
    from dpviz.training.spec import RunSpec
    from dpviz.views.run_table import load_runs

__version__ = "0.1.0"

__all__ = [
    "Audit",
    "Epsilon",
    "Guarantee",
    "InputError",
    "Ledger",
    "Phase",
    "Risk",
    "Run",
    "RunSpec",
    "Schedule",
    "StepAudit",
    "Sweep",
    "Target",
    "__version__",
    "calibrate",
    "delta",
    "epoch_phases",
    "epsilon",
    "epsilon_number",
    "epsilon_path",
    "export_runs",
    "guarantee",
    "import_run",
    "load_runs",
    "matching_constant",
    "register_with_opacus",
    "risk",
    "sweep",
    "track",
    "train",
]

# Where a name lives, if not in dpviz.privacy.
_HOMES = {
    "Audit": "dpviz.privacy.audit",
    "Run": "dpviz.runs",
    "RunSpec": "dpviz.training.spec",
    "StepAudit": "dpviz.training.audit",
    "Sweep": "dpviz.runs.sweeps.spec",
    "epsilon_number": "dpviz.privacy.rounding",
    "export_runs": "dpviz.runs.tracking.exporters",
    "import_run": "dpviz.runs.tracking.importers",
    "load_runs": "dpviz.views.run_table",
    "register_with_opacus": "dpviz.runs.tracking.opacus",
    "sweep": "dpviz.runs.api",
    "track": "dpviz.runs.tracking.track",
    "train": "dpviz.runs.api",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dpviz' has no attribute {name!r}")
    try:
        value = getattr(import_module(_HOMES.get(name, "dpviz.privacy")), name)
    except ModuleNotFoundError as error:
        needed = f"dpviz.{name} needs {error.name}; install it with pip install 'dpviz[train]'"
        raise ImportError(needed, name=error.name) from error
    globals()[name] = value  # the next use does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
