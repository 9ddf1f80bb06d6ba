PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# Tests wait for what they start: with two processes, two cores are idle for a quarter of the time, with three for 7 %.
PARALLEL := --numprocesses 4 --dist worksteal
ARITHMETIC := tests/export/methods tests/export/test_training_plan.py tests/edge_client/training \
	tests/experiments/fleet/test_server_rules.py
unexport PYTHONDONTWRITEBYTECODE # where it is set, each program would compile torch again
DEMO_INSTALLED := $(VENV)/demo-installed
INSTALLED := $(VENV)/installed
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

CPU_TORCH := { $(INSTALL) uv && UV_HTTP_RETRIES=0 $(BIN)/uv pip install --quiet --python $(BIN)/python \
	--constraint constraints.txt --torch-backend=cpu torch 2> /dev/null; } # gigabytes of CUDA less

.PHONY: setup demo test quick processors soak images lower-bounds old-torch python314 search fuzz audit requirements results screenshots release lint bench proto operators layers docs reference

setup: $(INSTALLED) ## makes .venv with everything, and build/ with the servers that tests compare ours with

$(INSTALLED): $(DEMO_INSTALLED)
	$(INSTALL) --editable '.[dev]'
	$(BIN)/python -m tests.support.install_servers
	$(BIN)/python -m pytest --collect-only --quiet > /dev/null # compiles the tests once, not in each of four processes
	touch $@

$(DEMO_INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info < (3, 14) else "moonfed is developed with Python 3.11 to 3.13; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip uninstall --quiet --quiet --yes onnxruntime-gpu # which an earlier setup installed; onnxruntime would overwrite it
	command -v nvidia-smi > /dev/null || $(CPU_TORCH) || true # without PyTorch's index, pip finds a torch below
	$(INSTALL) --no-compile --editable '.[console,experiments]' # Python compiles what it imports
	touch $@

demo: $(DEMO_INSTALLED) ## installs what the demo needs, and runs a coordinator and five devices on this machine; writes build/demo/summary.json
	$(BIN)/moonfed-experiments demo --output build/demo

test: setup ## runs every test, in four processes
	$(BIN)/python -m pytest $(PARALLEL)

quick: setup ## runs the fast tests of every part: three minutes
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow"

processors: setup ## tests the arithmetic on the kernels of older processors: two minutes
	for setting in ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=SSE41; do \
		echo "$$setting" && env "$$setting" $(BIN)/python -m pytest $(PARALLEL) $(ARITHMETIC) || exit 1; \
	done

soak: setup ## kills a coordinator 200 times at random, in three kinds of runs: about 20 minutes
	MOONFED_KILLS=200 $(BIN)/python -m pytest tests/faults/test_sigkill_loop.py tests/faults/test_asynchronous_kills.py

images: setup ## builds the images with buildah and debootstrap, as root, and runs coordinator, device and server in them: five minutes
	MOONFED_IMAGES=1 $(BIN)/python -m pytest tests/deploy/test_images.py

lower-bounds: setup ## runs tutorials with the lowest versions that pyproject.toml allows: five minutes
	MOONFED_LOWER_BOUNDS=1 $(BIN)/python -m pytest tests/deploy/test_lower_bounds.py

old-torch: setup ## trains every method in older releases of torch, in build/old-torch, 6 GB each, and lists their operators: over half an hour
	MOONFED_OLD_TORCH=1 $(BIN)/python -m pytest tests/deploy/test_old_torch.py
	$(BIN)/python -m tools.older_operators build/old-torch/*

python314: setup ## runs a coordinator, and devices that train graphs, on Debian's Python 3.14, as root, in build/python314, 6 GB: ten minutes
	MOONFED_PYTHON314=1 $(BIN)/python -m pytest tests/deploy/test_python314.py

search: setup ## runs 2,000 random sequences of events against a coordinator, new ones each time: about 20 minutes
	MOONFED_LIVES=2000 $(BIN)/python -m pytest tests/faults/test_state_machine.py

fuzz: setup ## feeds every decoder 100,000 inputs, guided by coverage, and loads 200,000 mutants of plans: about half an hour; INPUTS= for more, DECODERS= for some
	$(BIN)/python -m tests.fuzzing --inputs $(or $(INPUTS),100000) $(DECODERS)
	$(BIN)/python -m tests.fuzzing.plan_mutants --mutants $(or $(INPUTS),200000)

audit: setup ## checks the pinned versions against advisories; exit code 10 if no advisory database is reachable
	$(BIN)/python -m tools.audit

requirements: setup ## regenerates requirements/*.txt, with the sha256 of every file, from pyproject.toml and constraints.txt
	$(BIN)/python -m tools.lock_requirements

release: setup ## builds the release in dist/, RELEASE_KEY= signs it, and tries it in an empty environment for each extra: half an hour
	$(BIN)/python -m tools.build_release
	$(BIN)/python -m tools.try_release

results: setup ## draws and tabulates the runs in docs/results
	$(BIN)/python -m tools.draw_results

screenshots: setup ## photographs the console's pages for docs/pictures, with chromium: a minute
	$(BIN)/python -m tools.draw_console

lint: setup ## runs ruff, mypy and import-linter, all of them even if one fails: a minute
	@failed=0; for tool in "ruff check ." "ruff format --check ." "mypy" "lint-imports --no-cache"; do \
		echo "$(BIN)/$$tool" && $(BIN)/$$tool || failed=1; \
	done; exit $$failed

bench: setup
	$(BIN)/python -m benchmarks

proto: setup ## regenerates the stubs next to the .proto files, and the synchronous client
	$(BIN)/python tools/generate_stubs.py
	$(BIN)/python -m tools.generate_client

docs: setup ## builds the site in build/site, with both builders, and checks every link: half a minute
	$(BIN)/python -m tools.docs_site

reference: setup ## regenerates the pages of commands and settings in docs/reference
	$(BIN)/python -m tools.reference

layers: setup ## tries every layer of torch.nn in a bundle, for docs/layers.md: minutes; CLASSIFIERS= for torchvision's of these names, or all
	$(BIN)/python -m tools.layers $(CLASSIFIERS)

operators: setup ## regenerates the list of operators that moonfed's own plans use
	$(BIN)/python -m tools.generate_operators
