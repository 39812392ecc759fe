"""Who is at the page. Without sign-in (no `[auth]` in .streamlit/secrets.toml) runs have no owner.

Sign-in is Streamlit's own, by OpenID Connect. dpviz keeps no names and no addresses: an owner is a hash of what the
provider calls its issuer and its subject.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import streamlit as st


def claims() -> Mapping[str, Any]:
    """What the provider says of the visitor; has `is_logged_in` only where sign-in is configured."""
    return st.user


def person() -> str:
    """The signed-in person as runs carry it; empty where sign-in is not configured.

    Where it is configured and nobody is signed in, the script ends here: no page can go on as if it were a person.
    """
    found = claims()
    if "is_logged_in" not in found:
        return ""
    if not found["is_logged_in"] or not found.get("sub"):
        _ask()
    named = f"{found.get('iss', '')}\n{found['sub']}"
    return hashlib.sha256(named.encode()).hexdigest()[:32]


def sign_out_button() -> None:
    """Who is signed in, and the way out; nothing where nobody can sign in."""
    if person():
        with st.sidebar:
            st.text(f"Signed in as {claims().get('email') or claims().get('name') or 'you'}")
            st.button("Sign out", on_click=st.logout)


def _ask() -> None:
    st.title("dpviz")
    st.write("Please sign in. You will see your own runs, the full-length runs and what the papers report.")
    for provider in _providers():
        words = f"Sign in with {provider}" if provider else "Sign in"
        st.button(words, type="primary", on_click=st.login, args=(provider,) if provider else ())
    st.stop()


def _providers() -> list[str]:
    """Names of the configured providers; one without a name is Streamlit's default."""
    named = [name for name, value in st.secrets["auth"].items() if isinstance(value, Mapping)]
    return named or [""]
