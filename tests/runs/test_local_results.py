"""Results of the local command as files."""

import json
import math

import pytest

from dpviz.privacy.tables import InputError
from dpviz.runs.local_results import local_results, read_result

ROW = {"method": "djw", "budget": 1.0, "mean_error": 0.2, "std_error": 0.01, "loss": "hinge", "batch_size": 1}


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
