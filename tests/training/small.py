"""Small real data and settings that train in a blink."""

import dataclasses

from dpviz.privacy.schedules import Schedule
from dpviz.training.data.readers import Data, load
from dpviz.training.engine import Trainer
from dpviz.training.spec import RunSpec

TRAIN, TEST = 400, 300


def small_data() -> Data:
    whole = load("mnist", subset=TRAIN)
    return dataclasses.replace(whole, test_images=whole.test_images[:TEST], test_labels=whole.test_labels[:TEST])


def small_spec(**changes) -> RunSpec:
    """400 digits, batches of 80 (5 steps an epoch), a logistic regression."""
    knobs = dict(changes.pop("knobs", {}))
    if changes.get("method") == "screening":
        knobs = {"method.public_examples": 100} | knobs
    settings = {
        "schedule": Schedule.of("linear", start=2.0, end=1.0),
        "epochs": 2,
        "model": "logistic",
        "batch_size": 80,
        "clip_norm": 1.0,
        "subset": TRAIN,
    }
    return RunSpec(**(settings | changes), knobs=tuple(knobs.items()))


def quiet(**changes) -> RunSpec:
    """No clipping and no noise."""
    return small_spec(method="sgd", schedule=Schedule.of("constant", sigma=0.0), **changes)


def trainer(spec: RunSpec) -> Trainer:
    return Trainer(spec, data=small_data())


def curve(records) -> list[tuple]:
    """Everything in the records but the clock."""
    return [(r.epoch, r.step, r.train_loss, r.train_accuracy, r.test_loss, r.test_accuracy) for r in records]
