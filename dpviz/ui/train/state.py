"""What the Train page keeps in a session. Its widgets are `train.`, `sweep.` and `learn.<field>`."""

from __future__ import annotations

from dpviz.ui.common.handover import ScheduleHandover
from dpviz.ui.common.session import Keys, Slot

TRAIN, SWEEP, LEARN = Keys("train"), Keys("sweep"), Keys("learn")

NOTE = Slot(TRAIN("note"), "")  # where the form's settings come from
CURVE: Slot[tuple[float, ...]] = Slot(TRAIN("curve"), ())  # sigmas of a drawn schedule, if one was brought along
HANDED: Slot[ScheduleHandover | None] = Slot(TRAIN("handed"), None)  # the same, with the assumptions of its price
ADDED = Slot(TRAIN("added"), "")  # own data that were added just now
SELECTED: Slot[tuple[str, ...] | None] = Slot(TRAIN("selected"), None)  # ids of runs; None: nobody chose so far

# A launch that was asked for, kept until the form was read to its end: another event may cut the script short before.
ASKED = Slot(TRAIN("asked"), "")
LAUNCH, QUICK_LOOK = "Launch", "Quick look"  # the form's settings, or the same in seconds
SWEEP_ASKED = Slot(SWEEP("asked"), "")
LEARN_ASKED = Slot(LEARN("asked"), "")
SWEEP_HANDED: Slot[bool | None] = Slot(SWEEP("handed"), None)  # whether the schedule brought along shall be swept
SWEEP_OPEN = Slot(SWEEP("open"), False)  # whether the sweep's form is unfolded
