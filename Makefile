# make run · make build · make unit · make test · make bench · make lint
PYTHON ?= python3
VENV ?= .venv
PY = $(VENV)/bin/python
JOBS ?= 2

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip setuptools "cython>=3.1,<3.4"
	$(PY) -c "import tomllib; d = tomllib.load(open('pyproject.toml', 'rb'))['project']; print(*d['dependencies'], sep='\n')" \
	  | $(PY) -m pip install --quiet -r /dev/stdin
	touch $@

.PHONY: build run
build: $(VENV)/.installed
	$(PY) setup.py --quiet build_ext --inplace -j $(JOBS)

run: build
	$(PY) -m kbroker start --data-dir ./data --port 9092
