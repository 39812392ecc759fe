# dpviz: `make app` opens the dashboard, `make test` runs every test. Both need only Python 3.11+ on Debian or Ubuntu.
PYTHON ?= python3
BIN := .venv/bin
HOST ?= 127.0.0.1
PORT ?= 8501

.PHONY: app test test-faults test-speed test-gpu test-trackers fuzz big-table lint format certify audits mutants bench clean

app: .venv/runtime
	$(BIN)/python -m dpviz app --host $(HOST) --port $(PORT)

test: .venv/dev
	@sh tests/find-nginx
	DPVIZ_CHROMIUM="$$(sh tests/find-chromium)" $(BIN)/python -m pytest -n 2 --dist loadfile

# What `make test` leaves out: servers, nodes and workers killed and doubled, in real browsers and clusters (some minutes).
test-faults: .venv/dev
	DPVIZ_CHROMIUM="$$(sh tests/find-chromium)" $(BIN)/python -m pytest -m faults

# Bars in seconds: pointer, pages and Compare on a machine that does nothing else (two minutes).
test-speed: .venv/dev
	DPVIZ_CHROMIUM="$$(sh tests/find-chromium)" $(BIN)/python -m pytest -m speed -n 0

# On a machine with a GPU: what `make test` checks with the CPU in its place, on CUDA or MPS (a minute).
test-gpu: .venv/dev
	$(BIN)/python -m pytest -m gpu tests/training -n 0 -rs

# What `make test` skips: runs exported to MLflow, Weights & Biases and Trackio, and read back (their clients: a minute).
test-trackers: .venv/trackers
	PYTHONPATH=$(CURDIR)/.venv/trackers $(BIN)/python -m pytest tests/runs/tracking/test_exporters.py -n 0

# Slow: 10,000 random inputs to every parser and accountant, new ones each time.
fuzz: .venv/dev
	DPVIZ_FUZZ=10000 $(BIN)/python -m pytest tests/fuzz -o timeout=0

# Slow: a table of 2 million rows and 20 columns is added and trained on; prints time and memory (about a minute).
big-table: .venv/dev
	DPVIZ_ROWS=2000000 $(BIN)/python -m pytest tests/cli/test_data.py -k large_table -s

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Slow: 200 random ledgers against an oracle of our own, dp_accounting and riskcal (about an hour).
certify: .venv/dev
	DPVIZ_LEDGERS=200 $(BIN)/python -m pytest tests/privacy/test_random_ledgers.py tests/privacy/test_random_risks.py -o timeout=0

# Slow: 1,000 simulated honest runs of full length with canaries, and sabotaged runs on all of MNIST (some minutes).
audits: .venv/dev
	DPVIZ_AUDITS=1 $(BIN)/python -m pytest tests/privacy/test_audit.py tests/training/test_audit.py -o timeout=0

# Slow: some fifty small wrong edits, one by one; each must make a test fail (some minutes).
mutants: .venv/dev
	$(BIN)/python -m tests.mutants

bench: .venv/dev
	$(BIN)/python -m dpviz bench accountant
	$(BIN)/python -m dpviz bench training
	$(BIN)/python -m dpviz bench scale

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "dpviz needs Python 3.11 or newer; set PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -m venv .venv || { echo "cannot make .venv; on Debian or Ubuntu: apt-get install python3-venv"; exit 1; }

.venv/runtime: requirements.txt pyproject.toml .venv/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

.venv/dev: requirements-dev.txt requirements-cluster.txt requirements-signin.txt requirements.txt pyproject.toml .venv/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@ .venv/runtime

# In a folder of their own: what they need would move versions of other packages.
.venv/trackers: requirements-trackers.txt .venv/dev
	rm -rf $@
	$(BIN)/pip install --quiet --disable-pip-version-check --target $@ -c requirements.txt -r requirements-trackers.txt

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
