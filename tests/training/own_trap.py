"""A model that must never be imported: whoever opens a stranger's run would run a stranger's code."""


def net(input_shape, classes):
    raise AssertionError("this code was run")
