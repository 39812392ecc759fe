"""Which of a paper's settings is best within a budget? The full-length runs that come with dpviz, in pandas."""

import dpviz

PAPER, BUDGET = "losing-less", 3.0

runs = dpviz.load_runs()
runs = runs[(runs["source"] == "cached") & (runs["paper"] == PAPER) & (runs["dataset"] == "mnist")]

# Each run at its last epoch within the budget. Runs without a guarantee have NaN here, and so drop out.
within = runs[runs["epsilon_sound"] <= BUDGET].sort_values("epoch").groupby("run").tail(1)
table = within.groupby("experiment").agg(
    seeds=("run", "size"), accuracy=("test_accuracy", "mean"), epsilon=("epsilon_sound", "max")
)
print(f"{PAPER}, mean test accuracy within epsilon {BUDGET}:")
formats = {"accuracy": "{:.2%}".format, "epsilon": dpviz.epsilon_number}  # an upper bound, so it is rounded up
print(table.sort_values("accuracy", ascending=False).to_string(formatters=formats))
