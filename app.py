"""The dashboard's entry, for `dpviz app` and for `streamlit run app.py`. A router and nothing else."""

import streamlit as st

from dpviz.ui.common.shell import middleware, run, warm_up

if __name__ == "__main__":  # a person's session
    run()
else:  # the server, once; Streamlit looks for these very words
    app = st.App(__file__, lifespan=warm_up, middleware=middleware())
