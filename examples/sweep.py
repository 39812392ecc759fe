"""Constant against falling noise at equal epsilon, and what it costs to have chosen the better one."""

import dpviz
from dpviz.runs.sweeps.result import price_words

result = dpviz.sweep(
    title="Constant or falling noise",
    epsilon=2.0,
    settings={"model": "logistic", "subset": 2000, "batch_size": 200, "learning_rate": 2.0, "epochs": 3},
    grid={"schedule": ["constant", "linear"]},
    on_run=lambda run: print(f"{run.title}: {run.status}"),
)
for row in result.rows:
    print(f"{row.candidate.label}: test accuracy {row.mean:.1%} at epsilon {dpviz.epsilon_number(row.epsilon)}")
print(f"The winner is {result.winner.candidate.label}.")
for sentence in price_words(result):
    print(sentence)
