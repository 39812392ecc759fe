"""schedules, epsilon and calibrate, as a person or a script would call them."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from dpviz.cli import main
from dpviz.privacy import SCHEDULES, epsilon
from dpviz.privacy.gaussian import log_delta

ROOT = Path(__file__).parents[2]
PAPER = "--schedule linear --start 5 --end 1 --epochs 20 --dataset-size 60000 --batch-size 600 --delta 1e-5"


def run(capsys: pytest.CaptureFixture[str], line: str) -> dict:
    assert main([*line.split(), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_epsilon_prints_both_conversions_and_the_band(capsys) -> None:
    found = run(capsys, f"epsilon {PAPER}")
    assert found["rdp"]["improved"] == pytest.approx(1.3994, abs=5e-4)
    assert found["rdp"]["classic"] == pytest.approx(1.7988, abs=5e-4)
    assert found["pld"]["lower"] <= 1.0038 <= found["pld"]["upper"]
    assert found["pld"]["fallback"] is None
    assert found["steps"] == 2000
    assert found["sigmas"][0] == 5
    assert found["sigmas"][-1] == 1


def test_the_path_ends_at_the_total(capsys) -> None:
    found = run(capsys, f"epsilon {PAPER} --path")
    assert found["path"][-1]["upper"] == found["pld"]["upper"]
    assert sum(found["shares"]) == pytest.approx(1)


def test_own_sigmas_and_csv_files_are_priced_alike(capsys, tmp_path) -> None:
    (tmp_path / "curve.csv").write_text("sigma\n5\n4\n3\n")
    listed = run(capsys, "epsilon --sigmas 5,4,3")
    assert listed["epochs"] == 3
    assert run(capsys, f"epsilon --csv {tmp_path / 'curve.csv'}")["pld"] == listed["pld"]


def test_shuffled_batches_show_the_poisson_figure_as_no_guarantee(capsys) -> None:
    found = run(capsys, f"epsilon {PAPER} --sampling shuffled")
    assert found["pld"]["upper"] == pytest.approx(10.535, abs=0.01)
    assert found["not_a_guarantee"]["poisson"]["upper"] == pytest.approx(1.005, abs=0.01)


def test_prices_without_sampling_are_named_zero_out(capsys) -> None:
    found = run(capsys, f"epsilon {PAPER} --sampling fixed-order --path")
    assert found["adjacency"] == "zero-out"
    assert found["pld"]["upper"] == pytest.approx(10.535, abs=0.01)
    assert found["path"][-1]["upper"] == found["pld"]["upper"]
    assert main(f"epsilon {PAPER} --sampling fixed-order".split()) == 0
    assert "zero-out: neighbours differ by one example that counts nothing" in capsys.readouterr().out
    assert run(capsys, "calibrate --target-epsilon 2 --sampling shuffled")["adjacency"] == "zero-out"


def test_zero_out_costs_what_add_remove_costs_under_poisson_sampling(capsys) -> None:
    found = run(capsys, f"epsilon {PAPER} --adjacency zero-out")
    assert found["adjacency"] == "zero-out"
    assert found["pld"] == run(capsys, f"epsilon {PAPER}")["pld"]


def test_no_noise_is_infinity_in_json(capsys) -> None:
    assert run(capsys, "epsilon --schedule constant --sigma 0")["pld"]["upper"] == "infinity"


@pytest.mark.parametrize("accountant", ["pld", "rdp", "rdp-classic"])
def test_calibrate_never_exceeds_its_target(capsys, accountant: str) -> None:
    found = run(capsys, f"calibrate --target-epsilon 1.0 --accountant {accountant} {PAPER}")
    assert 0.999 <= found["epsilon"]["upper"] <= 1.0
    sigmas = ",".join(map(str, found["sigmas"]))
    again = run(capsys, f"epsilon --sigmas {sigmas} --dataset-size 60000 --batch-size 600 --delta 1e-5")
    price = {"pld": again["pld"]["upper"], "rdp": again["rdp"]["improved"], "rdp-classic": again["rdp"]["classic"]}
    assert price[accountant] <= 1.0


def test_steps_and_a_sample_rate_replace_epochs_and_sizes(capsys) -> None:
    found = run(capsys, "epsilon --sample-rate 0.01 --steps 2000 --sigma 1.1")
    assert found["pld"] == run(capsys, "epsilon --epochs 20 --sigma 1.1")["pld"]
    assert (found["steps"], found["epochs"], found["sample_rate"]) == (2000, None, 0.01)
    assert run(capsys, "epsilon --sample-rate 0.01 --steps 2000 --sigmas 1.1")["pld"] == found["pld"]
    solved = run(capsys, "calibrate --sample-rate 0.01 --steps 2000 --target-epsilon 1")
    assert solved["steps"] == 2000
    again = run(capsys, f"epsilon --sample-rate 0.01 --steps 2000 --sigma {solved['sigmas'][0]!r}")
    assert 0.999 <= again["pld"]["upper"] <= 1


def test_an_epoch_may_be_rounded_up_or_counted_by_hand(capsys) -> None:
    line = "epsilon --dataset-size 60000 --batch-size 256 --sigma 1.1 --epochs 20"
    uppers = {}
    for rule, taken in (("round", 234), ("ceil", 235), ("100", 100)):
        found = run(capsys, f"{line} --steps-per-epoch {rule}")
        assert found["steps"] == 20 * taken
        counted = found["steps_per_epoch"]
        assert (counted["taken"], counted["round"], counted["ceil"]) == (taken, 234, 235)
        uppers[rule] = found["pld"]["upper"]
    assert uppers["100"] < uppers["round"] < uppers["ceil"]
    assert run(capsys, line)["pld"]["upper"] == uppers["round"], "the default"
    main(line.split())
    assert "20 epochs of 234 steps (1 / sample rate to the nearest whole number; rounded up it would be 235)" in (
        capsys.readouterr().out
    )
    main([*line.split(), "--steps-per-epoch", "ceil"])
    assert "20 epochs of 235 steps (1 / sample rate rounded up; to the nearest whole number it would be 234)" in (
        capsys.readouterr().out
    )
    solved = run(capsys, line.replace("epsilon", "calibrate --target-epsilon 1") + " --steps-per-epoch ceil")
    assert solved["steps"] == 4700
    sigmas = ",".join(map(repr, solved["sigmas"]))
    assert (
        0.999 <= run(capsys, f"epsilon --batch-size 256 --sigmas {sigmas} --steps-per-epoch ceil")["pld"]["upper"] <= 1
    )


def test_several_sigmas_take_their_steps_per_epoch(capsys) -> None:
    found = run(capsys, "epsilon --sample-rate 0.01 --sigmas 2,1 --steps-per-epoch 50")
    assert found["steps"] == 100
    assert found["pld"]["upper"] == epsilon([(2.0, 0.01, 50), (1.0, 0.01, 50)], 1e-5).upper


def test_calibration_comes_as_close_to_its_target_as_asked(capsys) -> None:
    for tolerance in (0.1, 1e-6):
        found = run(capsys, f"calibrate --target-epsilon 1 --sigma 3 --tolerance {tolerance}")
        assert 1 - tolerance <= found["epsilon"]["upper"] <= 1
        assert found["tolerance"] == tolerance


def test_what_calibration_returns_can_be_priced_again_as_a_knob(capsys) -> None:
    found = run(capsys, "calibrate --target-epsilon 1e-4 --sigma 1")
    assert found["sigmas"][0] > 1000
    again = run(capsys, f"epsilon --sigma {found['sigmas'][0]!r}")
    assert again["pld"]["upper"] == pytest.approx(found["epsilon"]["upper"], rel=1e-9)


def test_delta_can_be_asked_for_at_an_epsilon(capsys) -> None:
    found = run(capsys, f"epsilon {PAPER} --at-epsilon 1.0")
    at = found["delta_at"]
    assert set(at) == {"epsilon", "lower", "upper", "fallback"}
    assert 1e-6 < at["lower"] <= at["upper"] < 1.2e-5
    assert run(capsys, f"epsilon {PAPER.replace('1e-5', str(at['upper']))}")["pld"]["lower"] <= 1.0
    upper = run(capsys, f"epsilon {PAPER.replace('1e-5', str(at['lower']))}")["pld"]["upper"]
    assert upper >= 1.0, "both questions are about one curve"
    assert "delta_at" not in run(capsys, f"epsilon {PAPER}")


def test_delta_without_sampling_is_the_gaussian_one(capsys) -> None:
    line = "epsilon --sigma 2 --epochs 9 --sampling fixed-order --at-epsilon 2.0"
    at = run(capsys, line)["delta_at"]
    exact = math.exp(log_delta(2.0, 1.5))
    assert at["lower"] == pytest.approx(exact, rel=1e-9)
    assert at["upper"] == pytest.approx(exact, rel=1e-9)
    assert main(line.split()) == 0
    (told,) = [row for row in capsys.readouterr().out.splitlines() if row.startswith("at epsilon 2: delta")]
    shown = told.split()[4].rstrip(",")
    assert exact <= float(shown) <= 1.001 * exact


def test_an_rdp_bound_in_place_of_a_band_says_so(capsys) -> None:
    found = run(capsys, "epsilon --sigma 30 --delta 1e-300 --path")
    assert found["pld"]["upper"] == found["rdp"]["improved"]
    for priced in (found["pld"], found["path"][-1]):
        assert priced["fallback"].startswith("RDP upper bound, because")
        assert priced["wide"] is False
    assert main(["epsilon", "--sigma", "30", "--delta", "1e-300"]) == 0
    row = capsys.readouterr().out.splitlines()[1]
    assert row.startswith("PLD  ")
    assert "RDP upper bound, because delta 1e-300 is too small" in row
    assert "certified" not in row


@pytest.mark.parametrize("flags", ["--sigma 1.1", "--sigma 0.604 --sample-rate 2.32e-6 --steps 51120 --delta 8.4e-11"])
def test_a_band_is_called_wide_where_its_ends_are_far_apart(capsys, flags) -> None:
    found = run(capsys, f"epsilon {flags}")["pld"]
    assert found["wide"] == (found["upper"] - found["lower"] > max(0.03 * found["upper"], 0.005))
    assert main(["epsilon", *flags.split()]) == 0
    row = capsys.readouterr().out.splitlines()[1]
    assert row.startswith("PLD, certified, wide" if found["wide"] else "PLD, certified  ")


def test_printed_epsilons_are_rounded_up_and_never_to_zero(capsys) -> None:
    upper = run(capsys, "epsilon --sigma 1000")["pld"]["upper"]
    assert main(["epsilon", "--sigma", "1000"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert line.split()[2] == "0.00073"
    assert 0.00072 < upper < 0.00073


@pytest.mark.parametrize("solve", ["scale", "epochs"])
def test_calibrate_without_a_target_asks_for_one(capsys, solve) -> None:
    assert main(["calibrate", "--schedule", "linear", "--solve", solve]) == 2
    assert "--target-epsilon" in capsys.readouterr().err


def test_calibrate_solves_for_epochs_and_for_the_matching_constant(capsys) -> None:
    most = run(capsys, "calibrate --solve epochs --target-epsilon 3 --schedule constant --sigma 1.1")
    assert most["epsilon"]["upper"] <= 3
    match = run(capsys, f"calibrate --solve match {PAPER}")
    assert match["sigmas"][0] == pytest.approx(1.837, abs=4e-3)


def test_schedules_lists_every_one_with_its_knobs(capsys) -> None:
    found = run(capsys, "schedules")
    assert [entry["name"] for entry in found["schedules"]] == list(SCHEDULES)


@pytest.mark.parametrize("line", ["schedules", f"epsilon {PAPER} --path", "calibrate --target-epsilon 2"])
def test_people_get_tables(capsys, line: str) -> None:
    assert main(line.split()) == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) >= 4
    assert "{" not in text


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("epsilon --sigmas 5,-2,3", "got -2 (epoch 2)"),
        ("epsilon --sigmas 5,nan", "got nan (epoch 2)"),
        ("epsilon --sigmas inf", "got inf (epoch 1)"),
        ("epsilon --sigmas ,", "epoch 1"),
        ("epsilon --epochs 0", "epochs must be a whole number from 1 to 100,000, got 0"),
        ("epsilon --epochs 1e9", "got 1000000000"),
        ("epsilon --epochs 2.5", "must be a whole number, got '2.5'"),
        ("epsilon --batch-size 70000", "--batch-size must be at most the dataset's 60,000 examples, got 70,000"),
        ("epsilon --batch-size 0", "--batch-size must be a whole number >= 1, got 0"),
        ("epsilon --delta 0", "delta must be above 0 and below 1, got 0"),
        ("epsilon --delta 1.5", "delta must be above 0 and below 1, got 1.5"),
        ("epsilon --delta nan", "delta must be above 0 and below 1, got nan"),
        ("epsilon --delta x", "must be a number, got 'x'"),
        ("epsilon --schedule cosin", "unknown schedule 'cosin'; choose one of constant, linear"),
        ("epsilon --schedule linear --rate 2", "linear has no knob 'rate'; it has start, end"),
        ("epsilon --schedule linear --start -1", "start must be a number from 0 to 1e+09, got -1"),
        ("epsilon --schedule custom", "give --sigmas 5,4,3 or --csv FILE"),
        ("epsilon --schedule linear --sigmas 1,2", "give one of --schedule, --sigmas and --csv"),
        ("epsilon --csv no-such.csv", "cannot read 'no-such.csv'"),
        ("epsilon --csv .", "cannot read '.'"),
        ("epsilon --adjacency both", "unknown adjacency 'both'; choose one of add-remove, zero-out, replace-one"),
        ("epsilon --sampling any", "unknown sampling 'any'"),
        (
            "epsilon --sampling shuffled --adjacency add-remove",
            "one example less would shift all later batches; choose zero-out or replace-one",
        ),
        (
            "calibrate --target-epsilon 1 --sampling fixed-order --adjacency add-remove",
            "choose zero-out or replace-one",
        ),
        ("epsilon --colour red", "unrecognized arguments: --colour red"),
        ("epsilon --steps 5 --epochs 3", "--steps counts all steps and replaces --epochs; give one or the other"),
        ("epsilon --steps 5 --steps-per-epoch ceil", "replaces --steps-per-epoch"),
        ("epsilon --steps 5 --schedule linear", "--steps needs one noise multiplier for all steps"),
        ("epsilon --steps 5 --sigmas 2,1", "give --epochs and --steps-per-epoch"),
        ("epsilon --steps 0", "--steps must be a whole number >= 1, got 0"),
        ("epsilon --steps 5 --sampling shuffled", "with shuffled batches each example is met once per epoch"),
        ("epsilon --steps-per-epoch ceil --sampling fixed-order", "with fixed-order batches each example is met once"),
        ("epsilon --steps-per-epoch up", "must be round, ceil or a whole number, got 'up'"),
        ("epsilon --steps-per-epoch 0", "--steps-per-epoch must be a whole number >= 1, got 0"),
        ("epsilon --sample-rate 0.1 --batch-size 5", "--sample-rate replaces --dataset-size and --batch-size"),
        ("epsilon --at-epsilon nan", "epsilon must be a finite number >= 0, got nan"),
        ("epsilon --at-epsilon -1", "epsilon must be a finite number >= 0, got -1"),
        ("epsilon --sample-rate nan", "--sample-rate must be above 0 and at most 1, got nan"),
        ("epsilon --sample-rate 0", "--sample-rate must be above 0 and at most 1, got 0"),
        ("epsilon --sigma 1e10", "sigma must be a number from 0 to 1e+09"),
        ("calibrate --target-epsilon 1 --tolerance nan", "tolerance (share below the target) must be above 0"),
        ("calibrate --target-epsilon 1 --tolerance 1", "must be above 0 and below 1, got 1"),
        ("calibrate --solve match --target-epsilon 1", "--solve match meets the schedule's own epsilon"),
        ("calibrate --solve epochs --target-epsilon 1 --epochs 3", "--solve epochs finds a whole number of epochs"),
        ("calibrate", "say which epsilon to meet"),
        ("calibrate --target-epsilon -1", "target epsilon must be a finite number > 0, got -1.0"),
        ("calibrate --target-epsilon 1 --accountant prv", "unknown accountant 'prv'"),
        ("epsilom", "invalid choice: 'epsilom'"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(capsys, line: str, says: str) -> None:
    assert main(line.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert says in captured.err


def test_the_module_runs_as_a_program() -> None:
    command = [sys.executable, "-m", "dpviz"]
    helped = subprocess.run([*command, "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "examples:" in helped.stdout
    failed = subprocess.run([*command, "epsilon", "--sigmas", "-1"], cwd=ROOT, capture_output=True, text=True)
    assert failed.returncode == 2
    assert "Traceback" not in failed.stderr
