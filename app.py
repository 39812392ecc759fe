"""The dashboard's entry, for `python -m dpviz.serve` and for `streamlit run app.py`. A router and nothing else."""

import streamlit as st

from dpviz.ui.shell import front, run, warm_up

if __name__ == "__main__":  # a person's session
    run()
else:  # the server, once; Streamlit looks for these very words
    app = st.App(__file__, lifespan=warm_up, middleware=front())
