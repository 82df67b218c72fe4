# kbroker's commands; `make help` lists them. A fresh machine needs Linux, Python >= 3.11 with its
# headers, a C compiler and zlib's header (Debian: make gcc python3-venv python3-dev, which brings
# zlib1g-dev); every target brings the rest into $(VENV) by itself.
#
# Stamps in $(VENV) say which extras are installed; a change of pyproject.toml, of
# release/kbroker_perf.toml or of constraints.txt installs again. Compiled modules stand beside their
# sources (.so) and are made again when a source, or the kind of build (KBROKER_DEBUG,
# KBROKER_SANITIZE, KBROKER_ABI3), changed.

PYTHON ?= python3
VENV ?= .venv
PY = $(VENV)/bin/python
JOBS ?= $(shell nproc)
# Processes that `make test` runs at once, each with its own brokers and JVMs; 0: in this one. Three
# more than there are processors, since a test waits half of its time.
TEST_PROCESSES ?= $(shell expr $(JOBS) + 3)
# Two jobs at once, unless the make that is asked has some already.
IN_PARALLEL = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j 2)
# Extra words for the program that a target runs, such as ARGS='-k kcat -x'.
ARGS ?=
PORT ?= 9092
DATA ?= ./data
CLUSTER_DATA ?= ./data-cluster
FRAMES ?= 1000000
# Histories of a simulated cluster that `make simulate` runs.
SEEDS ?= 0..10000
# Faults of a cluster of processes that `make soak` brings about, and the seed that draws them.
FAULTS ?= 200
SEED ?= 1
BOOTSTRAP ?=
LINTED = kbroker lab perf release spark_jobs tests setup.py

# A run of the tests starts hundreds of processes, and each would compile all of our Python anew:
# half of a broker's start, and of what pytest needs to find the tests.
unexport PYTHONDONTWRITEBYTECODE

BUILD_KIND = debug=$(KBROKER_DEBUG) sanitize=$(KBROKER_SANITIZE)
# Requirements of kbroker itself and of the named extras, one to a line. Those of `perf` and `report`
# are kbroker-perf's, which is here as source.
REQUIREMENTS = import sys, tomllib; \
  core, perf = (tomllib.load(open(name, "rb"))["project"] \
    for name in ("pyproject.toml", "release/kbroker_perf.toml")); \
  extras = {**core["optional-dependencies"], **perf["optional-dependencies"], "perf": perf["dependencies"]}; \
  wanted = sum((extras[extra] for extra in sys.argv[1:]), core["dependencies"]); \
  print(*(one for one in wanted if not one.startswith("kbroker")), sep="\n")

.DEFAULT_GOAL = help
.PHONY: help run cluster build wheel wheels image unit test tested collected test-fast test-debug test-debug-short test-asan test-tsan fuzz simulate soak exactly-once parity setup bench console-check walk report lint clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

run: build ## a broker on 127.0.0.1:9092 (PORT=) with its data under ./data (DATA=)
	@$(PY) -m kbroker start --data-dir $(DATA) --port $(PORT) $(ARGS)

cluster: build $(VENV)/.cluster ## ZooKeeper and three brokers on loopback, ports 9092 to 9094 (PORT=); needs Java and, once, Maven
	@$(PY) -m lab.local_cluster --port $(PORT) --data $(CLUSTER_DATA) $(ARGS)

build: $(VENV)/.run $(VENV)/bin/kbroker ## the virtual environment and the compiled modules, in place; .venv/bin/kbroker
	@mkdir -p build
	@echo '$(BUILD_KIND)' | cmp -s - build/.kind && force= || force=--force; \
	  $(PY) setup.py --quiet build_ext --inplace -j $(JOBS) $$force
	@echo '$(BUILD_KIND)' > build/.kind

wheel: build ## dist/kbroker-*.whl and kbroker_perf-*.whl, of what `make build` compiled: for Python 3.11 and later
	@$(PY) -m release.wheels $(ARGS)

wheels: $(VENV)/.release ## both for manylinux, x86_64 and aarch64, into dist/release: compiled by zig, audited
	@$(PY) -m release.wheels --platforms $(ARGS)

image: $(VENV)/.release wheels ## the image for containers, both machines, without an engine: dist/kbroker-image-*.tar; apt
	@$(PY) -m release.image $(ARGS)

unit: build $(VENV)/.test ## tests/unit, offline
	$(PY) -m pytest tests/unit $(ARGS)

test-fast: build $(VENV)/.test ## everything but the slow and the Java tests, with what is here
	$(PY) -m pytest -m 'not slow and not java' $(ARGS)

test: ## everything, set-up included; KBROKER_REQUIRE=all: no skips
	@$(MAKE) --no-print-directory $(IN_PARALLEL) tested  # packages come while the compilers work

tested: setup collected
	$(PY) -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder $(ARGS)

# Each process reads all tests: what pytest makes of them is written down before, by two, while
# set-up waits for a JVM.
collected: build $(VENV)/.test $(VENV)/.spark
	@$(PY) -m pytest -qq --collect-only tests/unit >/dev/null & \
	  $(PY) -m pytest -qq --collect-only --ignore=tests/unit >/dev/null; wait

parity: setup ## record Apache Kafka's answers again, then compare ours with them
	$(PY) -m tests.parity.record $(ARGS)
	$(PY) -m tests.parity.compare $(ARGS)
	$(PY) -m tests.clients.days.record

test-debug: build $(VENV)/.test ## a debug build, in a tree of its own: locks, logs, simulated brokers with threads whose turns a seed decides; 12 minutes at most
	@$(PY) -m tests.sanitizers.debug $(ARGS)

test-debug-short: build $(VENV)/.test ## of that, the simulated brokers with threads alone
	@$(PY) -m tests.sanitizers.debug --short $(ARGS)

test-asan: build $(VENV)/.test ## address and undefined sanitizers over the compiled core, 20 minutes at most
	@$(PY) -m tests.sanitizers.address $(ARGS)

test-tsan: build $(VENV)/.test ## the thread sanitizer: replicas by themselves, then one broker under everything at once
	@$(PY) -m tests.sanitizers.thread

fuzz: build $(VENV)/.test ## hostile frames: FRAMES= of them, by default a million
	@$(PY) -m tests.fuzz.frames --frames $(FRAMES) $(ARGS)

simulate: build $(VENV)/.test ## histories of a simulated cluster: SEEDS=FIRST..LAST; goes on where it stopped
	@$(PY) -m tests.simulation --seeds $(SEEDS) $(ARGS)

soak: setup ## faults of three brokers and ZooKeeper under load: FAULTS= of them from SEED=; half an hour; as root all kinds
	@nice -n 19 $(PY) -m tests.cluster --faults $(FAULTS) --seed $(SEED) $(ARGS)

exactly-once: setup ## users' scenarios of transactions under kills, by real clients; a quarter of an hour; Java, Go
	@$(PY) -m tests.exactly_once $(ARGS)

setup: build $(VENV)/.test $(VENV)/.spark ## what the tests need: kcat, promtool, jars, client programs
	@$(PY) -m tests.support.setup

bench: setup ## kbroker beside Apache Kafka and the machine's limit
	$(PY) -m kbroker perf compare $(ARGS)

console-check: build $(VENV)/.test ## every page of the console in Chromium, light and dark, wide and narrow: pictures in build/console; AXE=axe.min.js
	@$(PY) -m tests.console.check $(if $(AXE),--axe '$(AXE)') $(ARGS)

walk: build $(VENV)/.test $(VENV)/.cluster ## the units whose functions run for one request; a build of its own, minutes the first time; Java
	@$(PY) -m perf.walk $(ARGS)

report: build $(VENV)/.report ## load, topics, Spark, a page: build/report/report.html (BOOTSTRAP= of a running broker)
	@$(PY) -m spark_jobs.first_report --bootstrap-server '$(BOOTSTRAP)' $(ARGS)

lint: build $(VENV)/.lint ## ruff, mypy and cython-lint, behind whatever else runs
	nice -n 19 $(VENV)/bin/ruff check $(LINTED)
	nice -n 19 $(VENV)/bin/ruff format --check $(LINTED)
	nice -n 19 $(VENV)/bin/mypy
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" nice -n 19 cython-lint --max-line-length 100 kbroker perf

clean: ## what was built or installed here; data and caches of downloads stay
	rm -rf $(VENV) build dist *.egg-info
	find kbroker perf \( -name '*.so' -o -name '*.html' \) -delete
	find kbroker lab perf release spark_jobs tests -name __pycache__ -type d -prune -exec rm -rf {} +
	find kbroker perf -name '*.pyx' | sed 's/pyx$$/c/' | xargs -r rm -f

# -- the virtual environment, by layers

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "kbroker needs Python 3.11 or later; this is $$($(PYTHON) --version): make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "no virtual environment: on Debian, apt-get install python3-venv python3-dev" >&2; exit 1; }

$(VENV)/.run: pyproject.toml release/kbroker_perf.toml constraints.txt | $(VENV)/bin/python
	@$(call install,setuptools wheel cython)

# What an editable install leaves there, without asking pip to build: the command, from any folder.
$(VENV)/bin/kbroker: Makefile | $(VENV)/bin/python
	@printf '%s\n' '#!$(abspath $(VENV))/bin/python' 'import sys' 'sys.path.insert(0, "$(CURDIR)")' \
	  'from kbroker.cli.main import main' 'sys.exit(main())' > $@ && chmod +x $@

# What a broker of a cluster needs: a client of ZooKeeper.
$(VENV)/.cluster: $(VENV)/.run
	@$(call install,,cluster)

$(VENV)/.test: $(VENV)/.run
	@$(call install,,test perf)

# What `make report` needs, without the tests' clients.
$(VENV)/.report: $(VENV)/.run
	@$(call install,,perf report)

$(VENV)/.spark: $(VENV)/.test
	@$(call install,,report)

# A compiler for older systems, and what judges wheels.
$(VENV)/.release: $(VENV)/.run
	@$(call install,,release)

# mypy reads the types of pyspark.
$(VENV)/.lint: $(VENV)/.spark
	@$(call install,,lint)

# $(call install,packages,extras): kbroker's dependencies, the packages and the extras, as pinned.
define install
echo "installing into $(VENV): $(strip kbroker's dependencies $(1) $(2))"; \
$(PY) -c '$(REQUIREMENTS)' $(2) > $@.txt && \
$(PY) -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt $(1) -r $@.txt && \
touch $@
endef
