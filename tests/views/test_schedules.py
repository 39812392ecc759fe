"""Schedules as data and as pictures."""

import numpy as np
import pytest

from dpviz.privacy import ACCOUNTANTS, SAMPLINGS, Ledger, epoch_phases, epsilon
from dpviz.views import schedules as views

RATE, DELTA = 0.01, 1e-5
LINEAR = tuple(np.linspace(5.0, 1.0, 8))


def price(sigmas, **assumptions):
    return epsilon(Ledger(epoch_phases(sigmas, RATE)), DELTA, **assumptions)


def test_a_curve_becomes_one_row_an_epoch():
    frame = views.schedule_frame({"falling": LINEAR, "flat": (2.0, 2.0)})
    assert list(frame.columns) == ["name", "epoch", "sigma"]
    assert len(frame) == 10
    assert frame[frame["name"] == "flat"]["epoch"].tolist() == [1, 2]
    figure = views.schedule_figure(frame)
    assert [trace.name for trace in figure.data] == ["falling", "flat"]
    assert figure.layout.yaxis.type == "log"


def test_an_epoch_without_noise_is_drawn_on_a_linear_axis():
    figure = views.schedule_figure(views.schedule_frame({"quiet": (1.0, 0.0)}))
    assert figure.layout.yaxis.type != "log"


def test_no_curve_gives_empty_axes_with_labels():
    figure = views.schedule_figure(views.schedule_frame({}))
    assert len(figure.data) == 0
    assert figure.layout.xaxis.title.text == "Epoch"
    assert "σ" in figure.layout.yaxis.title.text


def test_the_path_never_falls_and_ends_at_the_whole_price():
    frame = views.path_frame(LINEAR, RATE, DELTA)
    assert (frame["epsilon_upper"].diff().dropna() >= 0).all()
    assert (frame["epsilon_lower"] <= frame["epsilon_upper"]).all()
    rdp = views.path_frame(LINEAR, RATE, DELTA, accountant="rdp")
    assert rdp["epsilon_lower"].isna().all(), "RDP has no lower end, which is not the same as 0"
    assert frame["epsilon_upper"].iloc[-1] == price(LINEAR).upper
    line = views.path_figure({"mine": frame}).data[0]
    assert line.y[-1] == price(LINEAR).upper
    assert float(line.customdata[-1]) >= price(LINEAR).upper, "what the pointer shows is an upper bound"


def test_price_tags_add_up_and_name_the_dearest_epoch():
    frame = views.price_tag_frame(LINEAR, RATE, DELTA)
    assert frame["share"].sum() == pytest.approx(100)
    assert frame["share"].is_monotonic_increasing, "less noise costs more"
    words = views.price_tag_words(frame)
    assert f"{len(LINEAR)} epochs" in words
    assert "epoch 8: σ = 1 takes" in words
    assert views.price_tag_figure(frame).data[0].y.sum() == pytest.approx(100)


def test_equal_epochs_pay_half_each():
    assert views.price_tag_words(views.price_tag_frame((2.0,) * 10, RATE, DELTA)).startswith(
        "Half of the cost comes from 5"
    )


def test_what_if_prices_this_curve_under_every_assumption():
    frame = views.what_if_frame(LINEAR, RATE, DELTA)
    cases = sum(len(entry.adjacencies) for entry in SAMPLINGS.values())
    assert len(frame) == cases * len(ACCOUNTANTS)
    unsampled = frame[frame["sampling"] != "poisson"]
    assert set(unsampled["adjacency"]) == {"zero-out", "replace-one"}, "one example less would shift all batches"
    cells = frame.set_index(["sampling", "adjacency", "accountant"])["upper"]
    assert cells["poisson", "add-remove", "pld"] == price(LINEAR).upper
    assert cells["fixed-order", "replace-one", "rdp"] == (
        price(LINEAR, sampling="fixed-order", adjacency="replace-one", accountant="rdp").upper
    )
    for case, rows in frame.groupby(["sampling", "adjacency"]):
        uppers = rows.set_index("accountant")["upper"]
        assert uppers["pld"] <= uppers["rdp"] <= uppers["rdp-classic"], case


def test_the_what_if_table_has_a_row_a_case_and_a_column_an_accountant():
    table = views.what_if_table(views.what_if_frame(LINEAR, RATE, DELTA))
    assert list(table.columns) == ["Batches", "Neighbours", *ACCOUNTANTS.titles.values()]
    assert table["Batches"].tolist() == ["Poisson"] * 3 + ["Fixed order"] * 2 + ["Shuffled"] * 2
    assert not table.isna().any().any()


def test_the_what_if_figure_has_a_series_an_accountant():
    figure = views.what_if_figure(views.what_if_frame(LINEAR, RATE, DELTA))
    assert [trace.name for trace in figure.data] == list(ACCOUNTANTS.titles.values())
    assert all(len(trace.x) == 7 for trace in figure.data)
    assert figure.layout.xaxis.type == "log"
