from __future__ import annotations

import math

import pytest

from dpviz.views.axes import COLOURS
from dpviz.views.diagnostics import (
    FAINT,
    confusion_figure,
    cosine_figure,
    diagnostics_at,
    has_diagnostics,
    layer_figure,
    layer_frame,
    norm_figure,
    series_figure,
    series_frame,
    update_figure,
)
from tests.views.made_runs import made_run

SEEN = made_run(diagnostics=True)
PLAIN = made_run()


def test_a_run_without_diagnostics_says_so_and_gives_empty_frames():
    assert has_diagnostics(SEEN)
    assert not has_diagnostics(PLAIN)
    assert len(series_frame(PLAIN)) == len(layer_frame(PLAIN)) == 0
    assert diagnostics_at(PLAIN, 1) == {}


def test_the_parts_of_an_update_are_read_epoch_by_epoch_and_what_is_not_finite_is_nan():
    frame = series_frame(SEEN)
    assert list(frame["noise"]) == [0.25, 0.5, 0.75, 1.0]
    assert frame["hessian_eigenvalue"].map(math.isnan).all()


def test_layers_have_a_row_an_epoch():
    frame = layer_frame(SEEN)
    assert len(frame) == 8
    assert list(frame[frame["epoch"] == 2]["weight_norm"]) == [2.0, 6.0]


def test_the_histogram_shows_the_clipping_norm_and_colours_what_is_clipped():
    figure = norm_figure(diagnostics_at(SEEN, 1))
    assert list(figure.data[0].y) == [2, 4, 2]
    assert list(figure.data[0].marker.color) == [COLOURS[0], COLOURS[0], COLOURS[1]]
    assert figure.layout.shapes[0].x0 == 0.1
    assert figure.layout.annotations[0].text == "clipping norm 0.1"


def test_norms_of_many_sizes_stand_on_a_log_axis():
    norms = {"edges": [0.01, 0.1, 1.0, 10.0], "counts": [5, 3, 1]}
    figure = norm_figure({**diagnostics_at(SEEN, 1), "gradient_norms": norms, "clip_norm": 0.1})
    assert list(figure.data[0].x) == pytest.approx([-1.5, -0.5, 0.5])
    assert list(figure.data[0].width) == pytest.approx([1, 1, 1])
    assert list(figure.data[0].marker.color) == [COLOURS[0], COLOURS[1], COLOURS[1]]
    assert figure.layout.shapes[0].x0 == pytest.approx(-1)
    assert list(figure.layout.xaxis.ticktext) == ["0.01", "0.1", "1", "10"]


def test_without_clipping_there_is_no_clip_line():
    figure = norm_figure({**diagnostics_at(SEEN, 1), "clip_norm": None})
    assert len(figure.layout.shapes) == 0


def test_the_chosen_epoch_is_marked_in_every_series():
    frame = series_frame(SEEN)
    for figure in (update_figure(frame, 3), cosine_figure(frame, 3), series_figure(frame, "logit_norm", 3)):
        assert figure.layout.shapes[0].x0 == 3


@pytest.mark.parametrize("column", ["weight_norm", "pre_activation_norm"])
def test_layers_are_one_line_each(column):
    assert [trace.name for trace in layer_figure(layer_frame(SEEN), column).data] == ["layer 1", "layer 2"]


def test_a_confusion_matrix_is_coloured_by_the_share_of_its_true_class():
    heatmap, numbers = confusion_figure([[30, 10], [0, 0]]).data
    assert heatmap.z.tolist() == [[75.0, 25.0], [0.0, 0.0]]
    assert list(numbers.text) == [30, 10, 0, 0]
    assert list(zip(numbers.y, numbers.x, strict=True))[1] == ("0", "1")
    assert list(numbers.textfont.color)[:2] == ["white", FAINT]


def test_nothing_gives_empty_axes_with_titles():
    frame, layers = series_frame(PLAIN), layer_frame(PLAIN)
    figures = [norm_figure({}), update_figure(frame), cosine_figure(frame), confusion_figure([])]
    figures += [layer_figure(layers, "weight_norm"), series_figure(frame, "cosine")]
    for figure in figures:
        assert figure.layout.xaxis.title.text
        assert figure.layout.yaxis.title.text


def test_signal_bias_and_noise_share_a_log_axis_on_which_the_smallest_is_seen():
    figure = update_figure(series_frame(SEEN))
    assert figure.layout.yaxis.type == "log"
    assert [trace.name.partition(":")[0] for trace in figure.data] == ["signal", "clipping bias", "noise"]
