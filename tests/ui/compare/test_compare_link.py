"""Links to the Compare page: they read back as they were written, and what means nothing is refused in a sentence."""

from __future__ import annotations

import pytest

from dpviz.papers import PAPERS
from dpviz.privacy import InputError
from dpviz.training.tables import DATASETS
from dpviz.ui.compare.link import ALL, Comparison, link_to, parse_link, to_link
from dpviz.views.comparison.experiments import group_of
from tests.views.made_runs import made_run


@pytest.mark.parametrize(
    "shown",
    [
        Comparison(),
        Comparison(show=(), dataset=ALL, paper="screening", view="fit", epsilon="claimed", log=False),
        Comparison(view="equal", at=0.25, highlight=("cached/curricula/constant-1", "", "own/0123456789abcdef")),
        Comparison(baseline="own/0123456789abcdef", colour="optimizer", group="optimizer.momentum", facet="loss"),
        Comparison(rest=False, search="adam 0.5", cells=("batch_size", "learning_rate"), view="heat"),
        *(Comparison(dataset=dataset) for dataset in DATASETS),
        *(Comparison(paper=paper) for paper in PAPERS),
    ],
)
def test_a_link_gives_back_what_was_shown(shown):
    assert parse_link(to_link(shown)) == shown


def test_the_link_of_the_first_view_names_its_dataset_alone():
    assert to_link(Comparison()) == {"dataset": "mnist"}


def test_a_link_to_runs_opens_their_dataset_with_them_in_colour():
    run = made_run(dataset="fashion-mnist")
    shown = parse_link(link_to([run]))
    assert (shown.dataset, shown.highlight) == ("fashion-mnist", (group_of(run),))
    assert parse_link(link_to([run, made_run()])).dataset == ALL


@pytest.mark.parametrize(
    ("params", "word"),
    [
        ({"view": "pie"}, "view"),
        ({"dataset": "imagenet"}, "dataset"),
        ({"show": "own,others"}, "show"),
        ({"epsilon": "true"}, "epsilon"),
        ({"log": "yes"}, "log"),
        ({"at": "nan"}, "at"),
        ({"at": "-1"}, "at"),
        ({"highlight": "own/../../etc"}, "highlight"),
        ({"highlight": "<script>"}, "highlight"),
        ({"highlight": ",".join(["own/a"] * 61)}, "highlight"),
        ({"baseline": "mine"}, "baseline"),
        ({"colour": "__class__"}, "colour"),
        ({"cells": "loss"}, "cells"),
        ({"search": "x" * 81}, "search"),
        ({"page": "2"}, "page"),
    ],
)
def test_a_link_that_means_nothing_is_refused_in_a_sentence(params, word):
    with pytest.raises(InputError, match=word):
        parse_link(params)
