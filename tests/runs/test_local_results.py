"""Results of the local command as files."""

import dataclasses
import json
import math

import pytest

from dpviz.papers import LOCAL_RECIPES
from dpviz.privacy.registry import InputError
from dpviz.runs.local_results import local_results, read_result, rows_of

ROW = {
    "method": "djw",
    "budget": 1.0,
    "mean_error": 0.2,
    "std_error": 0.01,
    "loss": "hinge",
    "batch_size": 1,
    "errors": [0.2],
}


def test_results_that_come_with_dpviz_can_be_read_and_name_no_folder_of_a_machine():
    results, warnings = local_results()
    assert not warnings
    for result in results:
        assert result.provenance["command"].startswith("python -m dpviz local")
        assert "/" not in result.provenance["command"]
        assert result.provenance["minutes"] >= 0
        assert all(len(row["errors"]) == result.settings["repeats"] for row in result.rows)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"data": "a", "rows": [{}], "differences": [], "settings": {}, "provenance": {}}', "[" * 5000],
)
def test_a_damaged_result_is_skipped_with_a_sentence(tmp_path, content):
    (tmp_path / "bad.json").write_text(content)
    results, warnings = local_results(tmp_path)
    assert results == ()
    assert len(warnings) == 1
    assert "bad" in warnings[0]


def test_a_row_that_is_not_a_number_is_refused(tmp_path):
    content = {"data": "a", "rows": [{**ROW, "mean_error": math.nan}], "differences": [], "settings": {}}
    (tmp_path / "nan.json").write_text(json.dumps({**content, "provenance": {"kind": "measured"}}))
    with pytest.raises(InputError, match="a row or its provenance is wrong"):
        read_result(tmp_path / "nan.json")


@pytest.mark.parametrize("errors", [None, [], "none", [0.2, None], [0.2, math.nan], [1.2]])
def test_a_row_needs_its_errors_as_fractions(tmp_path, errors):
    content = {"data": "a", "rows": [{**ROW, "errors": errors}], "differences": [], "settings": {}}
    (tmp_path / "odd.json").write_text(json.dumps({**content, "provenance": {"kind": "measured"}}))
    with pytest.raises(InputError, match="is not a result"):
        read_result(tmp_path / "odd.json")


def test_every_experiment_under_local_privacy_comes_with_dpviz_as_the_paper_repeats_it():
    results, _ = local_results()
    for recipe in LOCAL_RECIPES.values():
        (row,) = rows_of(recipe, results)
        assert (row["method"], row["loss"], row["budget"]) == (recipe.spec.method, recipe.spec.loss, 1.0)
        assert len(row["errors"]) == 20
        assert sum(row["errors"]) / 20 == pytest.approx(row["mean_error"], abs=1e-5)


def test_a_result_with_other_settings_than_the_recipes_is_not_the_experiment():
    results, _ = local_results()
    recipe = LOCAL_RECIPES["prestige/a7a-djw-hinge"]
    for changes in ({"share": 0.5}, {"epochs": 11}, {"epsilon": 1.1}, {"batch_size": 5}):
        other = dataclasses.replace(recipe, spec=dataclasses.replace(recipe.spec, **changes))
        assert not list(rows_of(other, results))
    assert not list(rows_of(dataclasses.replace(recipe, data="diabetes130"), results))
