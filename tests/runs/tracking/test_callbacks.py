"""The callbacks of Hugging Face's Trainer and Lightning, each with the real thing where it is installed."""

from __future__ import annotations

import pytest
import torch

from dpviz.runs import Store
from dpviz.runs.tracking.callbacks import hugging_face_callback, lightning_callback
from dpviz.training.data.readers import import_torchvision
from tests.runs.tracking.opacus_loop import DELTA, opacus_loop

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _torchvision():
    """Both packages import torchvision, whose operators a CPU-only torch may lack."""
    import_torchvision()


def logged(folder):
    (summary,) = Store(folder).list().runs
    return Store(folder).get(summary.id)


def is_the_loops(run, loop, epochs):
    assert (run.status, run.kind, len(run.epochs)) == ("done", "imported", epochs)
    assert [tuple(vars(phase).values()) for phase in run.spec.phases] == [
        (sigma, rate, steps // epochs) for sigma, rate, steps in loop.history for _ in range(epochs)
    ]
    assert run.epochs[-1].test_accuracy > 0.6


def test_lightning_logs_an_epoch_after_each_validation(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")
    loop = opacus_loop()

    class Module(lightning.LightningModule):
        automatic_optimization = False

        def __init__(self):
            super().__init__()
            self.model = loop.model

        def training_step(self, batch, index):
            loop.optimizer.zero_grad()
            self.manual_backward(torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1]))
            loop.optimizer.step()

        def validation_step(self, batch, index):
            self.log("val_acc", loop.accuracy())

        def configure_optimizers(self):
            return None

    callback = lightning_callback(loop.engine, delta=DELTA, name="by Lightning", store=tmp_path / "runs")
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        default_root_dir=tmp_path,
    )
    plain = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(loop.points, loop.labels), batch_size=200)
    trainer.fit(Module(), loop.loader, plain)
    is_the_loops(logged(tmp_path / "runs"), loop, 2)


def test_a_trainer_logs_an_epoch_at_each_evaluation(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    loop = opacus_loop()

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self):
            return loop.loader

        def training_step(self, model, inputs, num_items_in_batch=None):
            loop.optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(loop.model(inputs[0]), inputs[1])
            loss.backward()
            return loss.detach()

        def evaluate(self, *_, **__):
            metrics = {"eval_accuracy": float(loop.accuracy()), "eval_loss": 0.5}
            self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
            return metrics

    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"),
        num_train_epochs=2,
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
        max_grad_norm=0,
        use_cpu=True,
        disable_tqdm=True,
    )
    callback = hugging_face_callback(loop.engine, delta=DELTA, name="by Trainer", store=tmp_path / "runs")
    data = torch.utils.data.TensorDataset(loop.points, loop.labels)
    Trainer(
        loop.model,
        arguments,
        train_dataset=data,
        eval_dataset=data,
        optimizers=(loop.optimizer, None),
        callbacks=[callback],
    ).train()
    is_the_loops(logged(tmp_path / "runs"), loop, 2)
