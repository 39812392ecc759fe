"""Train logistic regression on 2,000 digits with falling noise; the run is saved and can be seen in the dashboard."""

import dpviz


def show(record):
    spent = dpviz.epsilon_number(record.epsilon_sound)  # an upper bound, so it is rounded up
    print(f"epoch {record.epoch}: test accuracy {record.test_accuracy:.1%}, epsilon at most {spent}")


run = dpviz.train(
    title="Falling noise on 2,000 digits",
    model="logistic",
    subset=2000,
    batch_size=200,
    learning_rate=2.0,
    schedule=[3.0, 2.0, 1.5],  # one noise multiplier per epoch
    on_epoch=show,
)
print(f"run {run.id} is {run.status}")
