"""risk and calibrate to a risk, as a person or a script would call them."""

import json

import pytest

from dpviz.cli import main
from dpviz.privacy import epoch_phases, epsilon, risk

FLAGS = "--sigmas 3,2,1 --dataset-size 60000 --batch-size 600 --delta 1e-5"
PHASES = epoch_phases([3.0, 2.0, 1.0], 0.01)


def run(capsys: pytest.CaptureFixture[str], line: str) -> dict:
    assert main([*line.split(), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_risk_prints_its_bands(capsys) -> None:
    found, truth = run(capsys, f"risk {FLAGS} --fpr 0.001,0.1 --prior 0.7"), risk(PHASES)
    assert list(found) == ["advantage", "tpr", "success", "gdp", "profile"]
    assert found["advantage"] == truth.advantage._asdict()
    assert found["tpr"] == [{"fpr": fpr, **truth.tpr(fpr)._asdict()} for fpr in (0.001, 0.1)]
    assert found["success"] == {"prior": 0.7, **truth.success(0.7)._asdict()}
    assert found["gdp"] == truth.gdp._asdict()
    assert found["profile"][0] == {
        "epsilon": 0.0,
        "delta_lower": truth.advantage.lower,
        "delta_upper": truth.advantage.upper,
    }
    assert found["profile"][-1]["epsilon"] == epsilon(PHASES, 1e-5).upper
    assert found["profile"][-1]["delta_lower"] <= 1e-5


def test_a_person_reads_a_sentence_and_what_it_rests_on(capsys) -> None:
    assert main(f"risk {FLAGS} --sampling fixed-order".split()) == 0
    text = capsys.readouterr().out
    assert text.startswith("An attacker who accepts 1 false alarm in 1,000 finds at most ")
    assert "zero-out: neighbours differ by one example that counts nothing" in text
    assert "certified" in text


def test_a_risk_without_a_band_says_so(capsys) -> None:
    found = run(capsys, "risk --sample-rate 1e-9 --steps 10 --sigma 1e-6")
    assert found["fallback"].startswith("RDP upper bound, because")
    assert found["tpr"][0]["lower"] == 0.001


def test_no_noise_is_the_full_risk(capsys) -> None:
    found = run(capsys, "risk --sigmas 0 --sample-rate 1")
    assert found["tpr"][0] == {"fpr": 0.001, "lower": 1.0, "upper": 1.0}
    assert found["gdp"]["mu"] == "infinity"


@pytest.mark.parametrize(
    ("flags", "target"),
    [
        ("--target-advantage 0.1", {"value": 0.1, "measure": "advantage", "fpr": 0.001}),
        ("--target-tpr 0.2 --fpr 0.05", {"value": 0.2, "measure": "tpr", "fpr": 0.05}),
        ("--target-mu 0.5", {"value": 0.5, "measure": "mu", "fpr": 0.001}),
    ],
)
def test_calibrate_meets_a_risk(capsys, flags: str, target: dict) -> None:
    found = run(capsys, f"calibrate {flags} {FLAGS}")
    assert found["target"] == target
    assert 0.999 * target["value"] <= found["achieved"] <= target["value"]
    assert found["sigmas"] == pytest.approx([3 * found["factor"], 2 * found["factor"], found["factor"]])
    assert main(f"calibrate {flags} {FLAGS}".split()) == 0
    assert f"achieved {target['measure']}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("risk --fpr 0.1,x", "--fpr must be numbers with commas between them"),
        ("risk --fpr 2", "fpr is a probability and must be from 0 to 1, got 2.0"),
        ("risk --prior nan", "prior is a probability"),
        ("calibrate --target-mu 1 --target-tpr 0.1", "give one target, got --target-tpr and --target-mu"),
        ("calibrate --target-mu 1 --fpr 0.1", "--fpr goes with --target-tpr only"),
        ("calibrate --target-mu 1 --solve epochs", "say which epsilon to meet"),
        ("calibrate --target-mu 1 --solve match", "leave --target-mu out"),
    ],
)
def test_what_makes_no_sense_is_a_sentence(capsys, line: str, words: str) -> None:
    assert main(line.split()) == 2
    assert words in capsys.readouterr().err
