"""What each tracker says that it holds, by its own reader: parameters as text, and curves as {name: {epoch: value}}."""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from dpviz.runs.store.records import Run

Curves = dict[str, dict[int, float]]


def read_tensorboard(place: str, run: Run) -> tuple[dict[str, str], Curves]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    events = EventAccumulator(str(Path(place) / run.id), size_guidance={"scalars": 0})
    events.Reload()
    points = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
    curves = {tag: {event.step: event.value for event in series} for tag, series in points.items() if series}
    assert all(len(curve) == len(points[tag]) for tag, curve in curves.items())  # no epoch twice
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    values = HParamsPluginData.FromString(content).session_start_info.hparams
    return {name: str(getattr(value, value.WhichOneof("kind"))) for name, value in values.items()}, curves


def read_mlflow(place: str, run: Run) -> tuple[dict[str, str], Curves]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{place}")
    experiment = client.get_experiment_by_name("dpviz").experiment_id
    (kept,) = client.search_runs([experiment], f"tags.`dpviz.run_id` = '{run.id}'")
    history = {name: client.get_metric_history(kept.info.run_id, name) for name in kept.data.metrics}
    return kept.data.params, {name: {point.step: point.value for point in points} for name, points in history.items()}


def read_trackio(place: str, run: Run) -> tuple[dict[str, str], Curves]:
    from trackio import Api
    from trackio.sqlite_storage import SQLiteStorage

    (kept,) = (kept for kept in Api().runs(place) if kept.config["run_id"] == run.id)
    curves: Curves = defaultdict(dict)
    for row in SQLiteStorage.get_logs(place, kept.name):
        for name, value in row.items():
            if name not in ("step", "timestamp"):
                curves[name][row["step"]] = value
    return {name: str(value) for name, value in kept.config.items()}, dict(curves)


def read_wandb(place: str, run: Run) -> tuple[dict[str, str], Curves]:
    """wandb reads an offline file by sending it; here its records are taken out of the file, as wandb defines them."""
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # as at the end of a process: only then is everything on the disk
    (file,) = Path.cwd().glob("wandb/offline-run-*/run-*.wandb")
    parameters: dict[str, str] = {}
    curves: Curves = defaultdict(dict)
    for blob in _wandb_blobs(file.read_bytes()):
        record = Record.FromString(blob)
        for item in record.run.config.update:
            parameters[item.key] = str(json.loads(item.value_json))
        row = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
        for name, value in row.items():
            if not name.startswith("_"):
                curves[name][row["_step"]] = value
    return parameters, dict(curves)


def _wandb_blobs(data: bytes) -> Iterator[bytes]:
    """The records of a log in LevelDB's format: blocks of 32 KiB, parts with checksum, length and kind before them."""
    place, blob = 7, b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        blob += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield blob
            blob = b""


READERS: dict[str, Callable[[str, Run], tuple[dict[str, str], Curves]]] = {
    "tensorboard": read_tensorboard,
    "mlflow": read_mlflow,
    "wandb": read_wandb,
    "trackio": read_trackio,
}
