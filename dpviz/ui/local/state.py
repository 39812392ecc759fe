"""What the Local privacy page keeps in a session, and words that its parts share."""

from __future__ import annotations

from typing import Any

from dpviz.training.local.spec import ANSWERED, TRUE
from dpviz.ui.common.session import Keys, Slot
from dpviz.ui.local.job import Job

LOCAL = Keys("local")
JOB: Slot[Job | None] = Slot(LOCAL("job"), None)
GRADIENT_LABELS = {ANSWERED: "the answered label (as printed)", TRUE: "the person's own label"}


def keyed(*parts: object) -> dict[str, Any]:
    """Arguments of a widget that keeps its value when the person looks at another page."""
    return {"key": LOCAL(*parts), "persist_state": "session"}
