"""What happened and what it costs. numpy and scipy only: no files, no clock, no torch."""

from dpviz.privacy.accountants import ACCOUNTANTS
from dpviz.privacy.assumptions import (
    ADJACENCIES,
    SAMPLINGS,
    Assumptions,
    adjacency_of,
    nearest_adjacency,
)
from dpviz.privacy.calibrate import MEASURES, Calibration, Target, calibrate, matching_constant, most_epochs
from dpviz.privacy.guarantees import guarantee, guarantee_path, prestige_guarantee, selection_cost, sound_risk
from dpviz.privacy.prices import delta, epsilon, epsilon_path, price_tags
from dpviz.privacy.rdp import rdp_table
from dpviz.privacy.records import Delta, Epsilon, Guarantee, Ledger, Phase, epoch_phases, steps_per_epoch
from dpviz.privacy.registry import InputError
from dpviz.privacy.risk import Bounds, Risk, risk
from dpviz.privacy.schedules import SCHEDULES, Schedule
from dpviz.privacy.selection import Selection, Spent, selection

__all__ = [
    "ACCOUNTANTS",
    "ADJACENCIES",
    "MEASURES",
    "SAMPLINGS",
    "SCHEDULES",
    "Assumptions",
    "Bounds",
    "Calibration",
    "Delta",
    "Epsilon",
    "Guarantee",
    "InputError",
    "Ledger",
    "Phase",
    "Risk",
    "Schedule",
    "Selection",
    "Spent",
    "Target",
    "adjacency_of",
    "calibrate",
    "delta",
    "epoch_phases",
    "epsilon",
    "epsilon_path",
    "guarantee",
    "guarantee_path",
    "matching_constant",
    "most_epochs",
    "nearest_adjacency",
    "prestige_guarantee",
    "price_tags",
    "rdp_table",
    "risk",
    "selection",
    "selection_cost",
    "sound_risk",
    "steps_per_epoch",
]
