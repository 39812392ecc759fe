"""Settings that every test shares."""

import hypothesis

# A busy machine is no reason to fail, and a failure must come back on the next run.
hypothesis.settings.register_profile("dpviz", deadline=None, derandomize=True)
hypothesis.settings.load_profile("dpviz")
