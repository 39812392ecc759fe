"""Benchmarks: dpviz beside its peers, each row measured in one run."""
