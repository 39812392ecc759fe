"""A worker of tests/training/test_team.py: trains runs of many kinds and writes down what it saw of each."""

import sys
from pathlib import Path

import torch

from dpviz.training.data.readers import Data
from dpviz.training.engine import Trainer
from dpviz.training.team import ALONE, Team
from tests.training.small import curve, small_data, small_spec

CASES = {
    "plain": {"epochs": 3, "model": "cnn-mnist"},
    "canaries": {"canaries": 30},
    "dynamic order": {"curriculum": "dynamic"},
    "screening": {"method": "screening"},
    "diagnostics": {"diagnostics": True},
    "augmented": {"dataset": "cifar10", "subset": 80, "batch_size": 20, "knobs": {"dataset.augment": True}},
    "secure": {"secure": True},
}


def colours() -> Data:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(90, 3, 32, 32, generator=generator)
    labels = torch.randint(10, (90,), generator=generator)
    return Data(images[:80], labels[:80], images[80:], labels[80:])


def seen_of(case: str, team: Team) -> dict:
    changes = CASES[case]
    trainer = Trainer(small_spec(**changes), data=colours() if "dataset" in changes else small_data(), team=team)
    sums, mean = [], trainer._noisy_mean

    def spy(parts: list[torch.Tensor], noise_std: float) -> list[torch.Tensor]:
        sums.append(torch.cat([part.flatten() for part in parts]))
        return mean(parts, noise_std)

    trainer._noisy_mean = spy
    records = list(trainer.epochs())
    return {
        "sums": torch.stack(sums),
        "weights": torch.cat([weights.detach().flatten() for weights in trainer.parameters]),
        "curve": torch.tensor(curve(records), dtype=torch.float64),
        "epsilon": [record.epsilon_sound for record in records],
        "examples": len(trainer.feed.examples.stored[1]),
        "audit": repr(trainer.audit),
    }


def main(folder: Path, rank: int, workers: int) -> None:
    torch.set_num_threads(1)
    team = Team.meet(folder / "meeting", rank, workers, "cpu") if workers > 1 else ALONE
    seen = {case: seen_of(case, team) for case in CASES}
    seen["alike"] = (team.alike("cuda (A100)"), team.alike(f"cuda (model {rank})"))
    torch.save(seen, folder / f"{workers}-{rank}.pt")
    if not team.alone:
        team.part_ways()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
