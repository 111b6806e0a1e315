# Two commands for a new machine: `make build`, `make test`. Neither needs a GPU or a CUDA toolkit.
# On a machine whose driver is for CUDA 12: make CUDA=12 build

comma  := ,
CUDA   ?= 13
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Without a C++ compiler of the system's, the CPU executor takes the one in this wheel.
CPU    := $(if $(shell command -v g++ || command -v clang++ || command -v c++),,$(comma)cpu)
READY  := $(VENV)/.ready-cuda$(CUDA)

.PHONY: build test lint test-gpu fuzz sanitize wheel bench bandwidth clean

build: $(READY)
	$(BIN)/kgen build
	$(BIN)/kgen demo

test: $(READY) lint
	$(BIN)/python -m pytest -n auto --dist worksteal --doctest-modules kgen tests
	$(BIN)/kgen build --check

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# These run in whatever Python already has CuPy (set PYTHON), on the GPU that it sees.
test-gpu:
	$(PYTHON) -m pytest -m gpu tests

# Random calls of all operators, torch tensors on the GPU, compared with float64; JOBS processes at once.
SECONDS ?= 60
SEED    ?= $(shell date +%s)
JOBS    ?= 4
fuzz:
	$(PYTHON) -m tests.random_calls --seconds $(SECONDS) --seed $(SEED) --jobs $(JOBS)

SANITIZER ?= compute-sanitizer
sanitize:
	for tool in memcheck initcheck synccheck; do \
	  $(SANITIZER) --tool $$tool --kernel-name kns=kgen --error-exitcode 1 $(PYTHON) -m tests.gpu.sanitize || exit 1; \
	done
	$(SANITIZER) --tool racecheck --kernel-name kns=kgen --error-exitcode 1 \
	  $(PYTHON) -m tests.gpu.sanitize --every-thread-arrives

# A wheel that brings kernels compiled, the default ones and those of a model's usual calls, so that no first call of
# these waits for the compiler. Takes some minutes.
ARCHS ?= sm_80 sm_86 sm_89 sm_90a sm_100a sm_120a
wheel: $(READY)
	rm -rf build kgen/cubins
	for arch in $(ARCHS); do \
	  names=$$($(BIN)/python -m kgen.usual $$arch) && \
	  $(BIN)/kgen build $$names --arch $$arch --shelf kgen/cubins --out build/generated > /dev/null || exit 1; \
	done
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist . ; \
	  made=$$?; rm -rf build kgen/cubins; exit $$made

bench:
	$(PYTHON) -m kgen bench causal_dot_product

bandwidth:
	$(PYTHON) -m kgen bandwidth --jobs $(JOBS)

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV) || { echo "python3 needs its venv module: apt install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cuda$(CUDA),inspect,dev$(CPU)]'
	touch $@

clean:
	rm -rf $(VENV) build dist kgen/cubins *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
