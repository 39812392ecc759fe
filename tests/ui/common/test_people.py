"""Sign-in: without it nothing changes; with it a page shows a person their own runs and nobody else's."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from dpviz.runs import Store
from dpviz.ui.common.navigation import PAGES
from tests.browser import ROOT
from tests.page_words import page_words
from tests.views.made_runs import keep, made_run

PROVIDER = {"auth": {"redirect_uri": "http://127.0.0.1/oauth2callback", "cookie_secret": "x" * 20, "client_id": "y"}}
ANN = {"is_logged_in": True, "iss": "https://id.example", "sub": "1", "email": "ann@example.org"}
BOB = ANN | {"sub": "2", "email": "bob@example.org"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("DPVIZ_CACHED_RUNS", str(tmp_path / "cached"))
    return tmp_path / "runs"


def open_page(script: str, user: dict | None, **query) -> AppTest:
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    if user is not None:
        at.user, at.secrets = user, dict(PROVIDER)
    for name, value in query.items():
        at.query_params[name] = value
    at.switch_page(script).run()
    assert not at.exception
    return at


def owner_of(user: dict) -> str:
    """The owner that pages give this person."""
    at = AppTest.from_string("import streamlit as st\nfrom dpviz.ui.common.auth import person\nst.text(person())")
    at.user = user
    return at.run().text[0].value


def give(folder, user: dict, **changes) -> str:
    """A finished run that belongs to this person."""
    return keep(folder, made_run(**changes), owner=owner_of(user))


@pytest.mark.parametrize("script", [page.script for page in PAGES])
def test_who_is_not_signed_in_sees_the_button_and_nothing_else(folder, script):
    give(folder, ANN, title="Secret")
    at = open_page(script, {"is_logged_in": False})
    assert [button.label for button in at.button] == ["Sign in"]
    assert "Secret" not in page_words(at)
    assert not at.selectbox


def test_a_token_without_a_subject_is_nobody(folder):
    at = open_page("pages/train.py", {"is_logged_in": True, "email": "ann@example.org"})
    assert [button.label for button in at.button] == ["Sign in"]


def test_each_provider_gets_its_button(folder):
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    at.user = {"is_logged_in": False}
    at.secrets = {"auth": PROVIDER["auth"] | {"google": {"client_id": "a"}, "okta": {"client_id": "b"}}}
    at.run()
    assert [button.label for button in at.button] == ["Sign in with google", "Sign in with okta"]


@pytest.mark.parametrize("script", ["pages/train.py", "pages/compare.py", "pages/gradients.py"])
def test_a_person_sees_their_own_runs_only(folder, script):
    give(folder, ANN, title="Of Ann", diagnostics=True)
    give(folder, BOB, title="Of Bob", diagnostics=True)
    keep(folder, made_run(title="Of nobody", diagnostics=True))
    shown = page_words(open_page(script, ANN))
    assert "Of Ann" in shown
    assert "Of Bob" not in shown
    assert "Of nobody" not in shown


@pytest.mark.parametrize("script", ["pages/train.py", "pages/gradients.py"])
def test_a_link_to_another_persons_run_shows_nothing_of_it(folder, script):
    give(folder, ANN, title="Of Ann", diagnostics=True)
    other = give(folder, BOB, title="Of Bob", diagnostics=True)
    assert "Of Bob" not in page_words(open_page(script, ANN, run=other))


def test_another_persons_run_can_be_neither_deleted_renamed_stopped_nor_resumed(folder):
    other = give(folder, BOB, title="Of Bob", status="stopped", count=2)
    code = (
        "import streamlit as st\nfrom dpviz.privacy import InputError\nfrom dpviz.ui.common import runs\n"
        "for deed in (runs.store().delete, runs.stop, runs.resume, lambda i: runs.store().rename(i, 'x')):\n"
        f"    try:\n        deed({other!r})\n        st.text('done')\n    except InputError as error:\n"
        "        st.text(str(error))\n"
    )
    at = AppTest.from_string(code, default_timeout=60)
    at.user = ANN
    at.run()
    assert not at.exception
    assert [text.value.partition(" run ")[0] for text in at.text] == ["there is no"] * 4
    assert Store(folder).get(other).title == "Of Bob"


def test_a_person_deletes_their_own(folder):
    mine = give(folder, ANN, title="Of Ann")
    kept = give(folder, BOB, title="Of Bob")
    at = open_page("pages/train.py", ANN)
    next(button for button in at.button if button.label == "Yes, delete it").click().run()
    assert not at.exception
    assert [run.id for run in Store(folder).list().runs] == [kept]
    assert not (folder / mine).exists()


def test_cached_runs_and_reported_results_are_everybodys(tmp_path, monkeypatch):
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    at = open_page("pages/compare.py", ANN)
    assert "full-length" in page_words(at)
    assert "reported" in page_words(at)


def test_owners_are_neither_names_nor_addresses_and_differ_by_issuer():
    owners = {owner_of(user) for user in (ANN, BOB, ANN | {"iss": "https://other.example"})}
    assert len(owners) == 3
    assert owner_of(ANN | {"email": "new@example.org"}) in owners
    assert all(len(owner) == 32 and "ann" not in owner for owner in owners)


def test_without_configuration_nobody_is_asked_and_every_run_is_shown(folder):
    keep(folder, made_run(title="Plain"))
    at = open_page("pages/train.py", None)
    assert "Plain" in page_words(at)
    assert not {"Sign in", "Sign out"} & {button.label for button in at.button}
    assert owner_of({"email": "test@example.com"}) == ""
