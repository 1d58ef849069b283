# The commands of the README. `make help` lists them.

BUILD  ?= build
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local
# $(call configure,DIR): ninja where there is one; a folder keeps the generator it began with.
configure = cmake -S . -B $(1) $$([ -e $(1)/CMakeCache.txt ] || ! command -v ninja >/dev/null || echo -G Ninja) \
            -DCMAKE_INSTALL_PREFIX=$(PREFIX) -DRAFFLE_TESTS=OFF
# Which GPUs to build for: as said, or all that raffle knows, whatever an earlier call said.
archs = $(if $(RAFFLE_CUDA_ARCHS),'-DRAFFLE_CUDA_ARCHS=$(RAFFLE_CUDA_ARCHS)',-URAFFLE_CUDA_ARCHS)

.DEFAULT_GOAL := build
.PHONY: build demo test test-long bench install python cuda test-cuda sanitize-cuda bench-cuda bench-python fuzz clean help

build: ## the library and the command line, for the CPU (into build/)
	@cmake/ensure.sh build
	@$(call configure,$(BUILD)) -DRAFFLE_CUDA=OFF
	@cmake --build $(BUILD) --parallel $(JOBS) --target product

demo: build ## draw tokens from real logits and compare with the exact probabilities
	@cli/demo.sh $(BUILD)/cli/raffle

test: ## everything that must hold (ends with "N passed, N failed")
	@cmake/ensure.sh test
	@tests/run.py --jobs $(JOBS)

test-long: ## the same with longer soaks and fuzzing
	@cmake/ensure.sh test
	@tests/run.py --jobs $(JOBS) --long

bench: build ## each route against a plain maximum over the row (a table, and build/bench.csv)
	@$(BUILD)/cli/raffle bench --csv $(BUILD)/bench.csv
	@echo "The same as CSV: $(BUILD)/bench.csv"

install: build ## headers, libraries, pkg-config and CMake package, command line [PREFIX= DESTDIR=]
	@DESTDIR=$(DESTDIR) cmake --install $(BUILD) --prefix $(PREFIX)

python: ## the Python package, into build-python/python; with CUDA where there is nvcc (needs no pip) [RAFFLE_CUDA=OFF RAFFLE_CUDA_ARCHS=]
	@cmake/ensure.sh python
	@$(call configure,build-python) -DRAFFLE_PYTHON=ON -DRAFFLE_CLI=OFF -DRAFFLE_CUDA=$(or $(RAFFLE_CUDA),AUTO) $(archs)
	@cmake --build build-python --parallel $(JOBS) --target python_package
	@PYTHONPATH=build-python/python python3 -c 'import raffle; print("raffle", raffle.__version__, "in build-python/python; GPU:", raffle.cuda_available()[1] or "yes")'

cuda: ## the library with the CUDA backend (into build-cuda/) [RAFFLE_CUDA_ARCHS=]
	@cmake/ensure.sh build
	@$(call configure,build-cuda) -DRAFFLE_CUDA=ON $(archs)
	@cmake --build build-cuda --parallel $(JOBS) --target product

test-cuda: ## the tests that need a GPU
	@tests/run.py --jobs $(JOBS) --only cuda

sanitize-cuda: ## the tests that need a GPU, made smaller, under compute-sanitizer's four tools
	@tests/run.py --jobs $(JOBS) --only sanitize-cuda

bench-cuda: ## the GPU against its memory floor
	@tests/run.py --jobs $(JOBS) --only bench-cuda

bench-python: ## what calls from Python cost, and raffle beside torch; for this machine's GPU, if there is one (no pip, no network)
	@cmake/ensure.sh python
	@tests/run.py --jobs $(JOBS) --only bench-python

fuzz: ## libFuzzer on sampling, requests, verification and the .npy reader, 10 minutes each [FUZZ_SECONDS=]
	@cmake/ensure.sh test
	@tests/run.py --jobs $(JOBS) --only fuzz --fuzz-seconds $(or $(FUZZ_SECONDS),600)

clean:
	rm -rf build build-*

help:
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/make \1|\2/p' Makefile | while IFS='|' read -r a b; do printf '%-18s %s\n' "$$a" "$$b"; done
