# Two commands on a fresh machine: `make run` and `make test`. Each sets up a virtual environment in .venv first, once.

PYTHON ?= python3
RANKS ?= 32
FILE ?= runs/h100_1024.yaml
VENV := .venv
READY := $(VENV)/.ready
EXTRAS := mpi,plots,trace,study,dev

export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: run test test-openmpi test-torch services lint setup clean studies

run: $(READY)
	mpirun -n $(RANKS) python -m netsim run $(FILE)

test: $(READY) services lint
	python -m pytest

# What the tests of batch jobs and of the HTML report start for real. Without root, or where they are there, nothing is installed.
SERVICES := chromium slurmctld slurmd slurm-client munge
services:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && ! dpkg -s $(SERVICES) > /dev/null 2>&1; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(SERVICES) > /dev/null; fi

# The tests that start mpirun once more, on Debian's Open MPI in place of the MPICH of the mpi extra.
test-openmpi: $(READY)
	command -v mpirun.openmpi > /dev/null || { \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openmpi-bin libopenmpi3; }
	MPIRUN=mpirun.openmpi MPI4PY_LIBMPI=libmpi.so.40 python -m pytest -m mpi

# The tests that execute kernels with PyTorch, which `make test` skips; pinned, for some of what they look at is not documented.
test-torch: $(READY)
	$(VENV)/bin/pip install --quiet torch==2.13.0
	python -m pytest -m torch

# The pages of docs/studies, from their files; what is done already is not simulated again.
studies: $(READY)
	for file in runs/studies/*.yaml; do python -m netsim study $$file --page docs/studies --quiet || exit 1; done

lint: $(READY)
	ruff check .
	mypy
	lint-imports

setup: $(READY)

# Debian ships python3 without venv: where making one fails, python3-venv is installed. Set-up repeats when the dependencies change.
$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV) || { \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv && $(PYTHON) -m venv --clear $(VENV); }
	$(VENV)/bin/pip install --quiet --editable '.[$(EXTRAS)]'
	touch $@

clean:
	rm -rf $(VENV) results build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
