"""The guarantee card: the claimed and the sound epsilon, what they rest on, and what they do not cover."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dpviz.privacy.records import Guarantee
from dpviz.privacy.registry import InputError
from dpviz.privacy.risk import Risk
from dpviz.ui.common.markdown import sentence
from dpviz.views.numbers import delta_text, epsilon_remark, epsilon_text, risk_sentence

CLAIMED = "What the method's authors would quote for these settings."
SOUND = "What holds, with every use of the data priced."
FPR = 0.001
ATTACKER = "The attacker sees every noisy step, knows all other examples and has any computer; δ plays no part."


def guarantee_card(guarantee: Guarantee, risk: Risk | None = None, *, title: str = "Guarantee") -> None:
    """Both epsilons side by side, what the sound one means, then the small print in full."""
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
        if risk is not None:
            st.markdown(f"What it means: {risk_sentence(risk, FPR)}", help=ATTACKER)
        holds, leaves_out = st.columns(2)
        holds.markdown(_list("It rests on", guarantee.assumptions))
        leaves_out.markdown(_list("Not covered", guarantee.not_covered))


def input_error(error: InputError) -> None:
    """What a person has to put right, as one sentence."""
    st.error(sentence(error))


def _list(heading: str, lines: Sequence[str]) -> str:
    return "\n".join([f"**{heading}**", *(f"- :small[{line}]" for line in lines)])
