"""dpviz.track as a callback of Hugging Face's Trainer and of Lightning; each is imported only when it is asked for.

    trainer = Trainer(..., callbacks=[hugging_face_callback(privacy_engine, delta=1e-5, name="my BERT")])
    trainer = Trainer(..., callbacks=[lightning_callback(privacy_engine, delta=1e-5, name="my CNN")])

An epoch is logged at each evaluation, by the numbers that it gave: eval_loss, val_acc and the like are the test data's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from dpviz.runs.tracking.metric_tables import row_numbers
from dpviz.runs.tracking.track import TrackedRun, track


class _Tracked:
    """What both callbacks do: track from the start to the end of training, and log once per evaluation."""

    def __init__(self, *source: Any, **about: Any) -> None:
        self._source, self._about = source, about
        self._open = contextlib.ExitStack()
        self.run: TrackedRun | None = None

    def begin(self) -> None:
        self.run = self._open.enter_context(track(*self._source, **self._about))

    def log(self, metrics: Mapping[str, Any]) -> None:
        if self.run is not None:
            numbers = row_numbers(metrics)
            numbers.pop("epoch", None)  # epochs are counted here
            self.run.log(**numbers)

    def end(self, error: BaseException | None = None) -> None:
        self._open.__exit__(type(error) if error else None, error, None)
        self.run = None


def hugging_face_callback(*source: Any, **about: Any) -> Any:
    """A TrainerCallback; its arguments are those of `dpviz.track`. A Trainer that fails says nothing to callbacks."""
    from transformers import TrainerCallback

    tracked = _Tracked(*source, **about)

    class Callback(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            tracked.begin()

        def on_evaluate(self, *_: Any, metrics: Mapping[str, Any], **__: Any) -> None:
            tracked.log(metrics)

        def on_train_end(self, *_: Any, **__: Any) -> None:
            tracked.end()

    return Callback()


def lightning_callback(*source: Any, **about: Any) -> Any:
    """A Lightning Callback; its arguments are those of `dpviz.track`."""
    from lightning.pytorch import Callback

    tracked = _Tracked(*source, **about)

    class Tracking(Callback):  # type: ignore[misc]
        def on_fit_start(self, *_: Any) -> None:
            tracked.begin()

        def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:  # after the epoch's validation
            tracked.log(trainer.callback_metrics)

        def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
            tracked.end(exception)

        def on_fit_end(self, *_: Any) -> None:
            tracked.end()

    return Tracking()
