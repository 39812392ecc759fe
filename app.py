"""The dashboard's entry: `streamlit run app.py`. A router and nothing else."""

from dpviz.ui.shell import run

run()
