"""The guarantee card: the claimed and the sound epsilon, what they rest on, and what they do not cover."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dpviz.privacy.records import Guarantee
from dpviz.privacy.registry import InputError
from dpviz.ui.common.markdown import sentence
from dpviz.views.numbers import delta_text, epsilon_remark, epsilon_text

CLAIMED = "What the method's authors would quote for these settings."
SOUND = "What holds, with every use of the data priced."


def guarantee_card(guarantee: Guarantee, *, title: str = "Guarantee") -> None:
    """Both epsilons side by side, then the small print in full."""
    with st.container(border=True):
        st.markdown(f"**{title}**")
        claimed, sound = st.columns(2)
        delta = next(
            (f" (δ = {delta_text(e.delta)})" for e in (guarantee.sound, guarantee.claimed) if e and e.delta), ""
        )
        claimed.metric("Claimed ε" + delta, epsilon_text(guarantee.claimed), help=CLAIMED)
        sound.metric("Sound ε" + delta, epsilon_text(guarantee.sound), help=SOUND)
        if guarantee.sound is None:
            st.error("There is no guarantee: no finite epsilon covers every use of the data.")
        claimed_only = None if guarantee.claimed == guarantee.sound else guarantee.claimed
        for name, cost in (("Claimed", claimed_only), ("Sound", guarantee.sound)):
            if cost is not None and epsilon_remark(cost):
                st.caption(f"{name} ε: {epsilon_remark(cost)}.")
        holds, leaves_out = st.columns(2)
        holds.markdown(_list("It rests on", guarantee.assumptions))
        leaves_out.markdown(_list("Not covered", guarantee.not_covered))


def input_error(error: InputError) -> None:
    """What a person has to put right, as one sentence."""
    st.error(sentence(error))


def _list(heading: str, lines: Sequence[str]) -> str:
    return "\n".join([f"**{heading}**", *(f"- :small[{line}]" for line in lines)])
