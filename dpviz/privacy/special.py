"""SciPy's special functions, imported without the rest of NumPy.

Importing scipy.special copies every public name of NumPy, and looking at some of them loads parts that nobody here
needs: f2py, masked arrays, polynomials, test tools. Hiding their names meanwhile halves the time until a first epsilon.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


@contextmanager
def _loaded_names_only() -> Iterator[None]:
    names = vars(np)
    usual = {"__all__": names["__all__"], "__dir__": names["__dir__"]}
    loaded = [name for name in usual["__all__"] if name in names]
    names.update({"__all__": loaded, "__dir__": lambda: loaded})
    try:
        yield
    finally:
        names.update(usual)


with _loaded_names_only():
    from scipy.special import erf, erfcx, expit, gammaln, log_ndtr, ndtr, ndtri_exp, stdtr, stdtrit

__all__ = ["erf", "erfcx", "expit", "gammaln", "log_ndtr", "ndtr", "ndtri_exp", "stdtr", "stdtrit"]
