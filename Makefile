# Every target sets up what it needs on a fresh machine and is quick the second time.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
COMPILED := build/compiled
FOR ?= 60
EVENTS ?= 20000000
SEED ?= 1000
STEPS ?= 10000000
HOURS ?= 24
MUTANTS ?= 200
# pytest -n: one worker a core, and two more for all tests, half of whose time is waiting.
WORKERS ?= $(shell nproc)
WAITING_WORKERS ?= $(shell echo $$(($(WORKERS) + 2)))

.PHONY: help demo test quick unit built-for-tests lint format docs bench verify verify-shares verify-slices verify-core verify-grants verify-gpu-time verify-old-clients verify-lies verify-processes verify-restarts verify-exits verify-day verify-liars verify-readme verify-kubernetes verify-pods verify-plugin verify-hami mutants prometheus kubernetes-tools kubectl chart compiler simgpu interposer libraries test-programs compiled release-libs release-simgpu image-root wheels aarch64 clean

# $(call install,PACKAGES,TO DO WHAT): as root on Debian and Ubuntu, after saying so. Others are told what is missing.
install = { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "nvshare: installing $(1) with apt-get, $(2)" >&2 && apt-get update -qq && apt-get install -qqy --no-install-recommends $(1) >/dev/null; } || { echo "nvshare: something is missing $(2); on Debian and Ubuntu: apt-get install $(1)" >&2; exit 2; }

help: ## this list
	@awk -F':.*## ' '/^[a-z][a-z-]*:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

PROTOS := $(wildcard src/nvshare/pods/kubelet/*.proto)

# Installing makes the messages of the kubelet's interfaces from the .proto files: see setup.py.
$(READY): pyproject.toml constraints.txt setup.py $(PROTOS)
	@command -v $(PYTHON) >/dev/null || { echo "nvshare needs Python 3.11 or newer as '$(PYTHON)'; or: make PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "nvshare needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.11" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { $(call install,python3-venv,to make $(VENV)); $(PYTHON) -m venv $(VENV); }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt setuptools grpcio-tools
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev,k8s]'
	@touch $@

# Compiled if that is there and fresh (`make compiled`): nobody waits two minutes for a demo.
demo: $(READY) libraries ## six tenants share GPUs, simulated ones if need be, for FOR=60 seconds
	@if [ -e $(COMPILED)/.ready ] && $(MAKE) --no-print-directory -q $(COMPILED)/.ready; then \
	  cp -rp src/nvshare/. $(COMPILED)/nvshare/ && export PYTHONPATH=$(CURDIR)/$(COMPILED); fi; \
	$(BIN)/nvshare demo --for $(FOR)

compiler:
	@command -v cc >/dev/null || $(call install,gcc libc6-dev,to build libnvshare.so and the simulated driver)

simgpu: compiler ## the simulated driver, into build/simgpu
	@$(MAKE) --no-print-directory -s -C native/simgpu

interposer: compiler ## the library that is preloaded into CUDA programs, into build/interposer
	@$(MAKE) --no-print-directory -s -C native/interposer

libraries: simgpu interposer

# Lint needs one processor, and so does building what the tests need.
test: $(READY) ## everything that must pass before a change lands
	@$(MAKE) --no-print-directory -j2 lint built-for-tests
	@$(MAKE) --no-print-directory unit

# One after the other: apt-get takes no two calls at once.
built-for-tests: $(READY)
	@$(MAKE) --no-print-directory test-programs
	@$(MAKE) --no-print-directory aarch64
	@$(MAKE) --no-print-directory prometheus
	@$(MAKE) --no-print-directory kubernetes-tools
	@$(MAKE) --no-print-directory kubectl

# What needs no processes, sockets or native libraries: most of what a change breaks, in two minutes.
quick: lint ## lint, and the tests without processes
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -q -m "not verify and not slow" tests/core tests/wire tests/sim tests/runtime tests/metrics tests/pods

unit: built-for-tests
	$(BIN)/python -m pytest -n $(WAITING_WORKERS) --dist worksteal -q -m "not verify"

# Debian's, for the tests: they scrape, judge rules and take alerts.
prometheus:
	@command -v promtool >/dev/null && command -v prometheus >/dev/null && command -v prometheus-alertmanager >/dev/null && command -v curl >/dev/null && command -v openssl >/dev/null || $(call install,prometheus prometheus-alertmanager curl openssl,to test metrics and alerts)

# For the tests of pods: what asks an API server, and what starts containers. Any kubectl will do.
kubernetes-tools:
	@command -v kubectl >/dev/null || $(call install,kubernetes-client,to test the simulated API server)
	@command -v runc >/dev/null && command -v openssl >/dev/null || $(call install,runc openssl,to test pods in containers)

# kubectl 1.27 or later, for overlays and server-side apply: the machine's own, else that of the Debian release after 12,
# beside the machine's packages.
KUBECTL := build/tools/kubectl
NEXT_DEBIAN := trixie
kubectl: $(KUBECTL) ## kubectl >= 1.27, for the manifests and the chart, in build/tools
$(KUBECTL): tools/install_kubectl.sh
	@mkdir -p $(@D)
	@tools/install_kubectl.sh $@ $(NEXT_DEBIAN) || { echo "nvshare: kubectl 1.27 or later is missing; put one into PATH" >&2; exit 2; }

chart: $(READY) $(KUBECTL) ## the Helm chart, made from the manifests of deploy/kustomize, in build/helm
	$(BIN)/python -m tools.build_chart --kubectl $(KUBECTL)

# Both libraries with their test programs, plain and under two sanitizers.
test-programs: compiler
	@command -v valgrind >/dev/null || $(call install,valgrind,to test the libraries for leaks)
	@$(MAKE) --no-print-directory -s -C native/simgpu tests
	@$(MAKE) --no-print-directory -s -C native/simgpu tests SANITIZE=address,undefined OUT=../../build/simgpu-address
	@$(MAKE) --no-print-directory -s -C native/simgpu tests SANITIZE=thread OUT=../../build/simgpu-thread
	@$(MAKE) --no-print-directory -s -C native/interposer tests
	@$(MAKE) --no-print-directory -s -C native/interposer tests SANITIZE=address,undefined OUT=../../build/interposer-address SIMGPU=../../build/simgpu-address
	@$(MAKE) --no-print-directory -s -C native/interposer tests SANITIZE=thread OUT=../../build/interposer-thread SIMGPU=../../build/simgpu-thread
	@$(MAKE) --no-print-directory -s -C native/interposer CFLAGS="-O0 -g" OUT=../../build/interposer-O0

# For every glibc since 2.17: zig has their symbol tables, which no installed compiler has.
ZIG := $(VENV)/.zig
RELEASE := ../../build/release
# Another interpreter that has ziglang, as when the image is built.
ZIG_PYTHON ?=
RELEASE_CC = "$(or $(ZIG_PYTHON),$(CURDIR)/$(BIN)/python) -m ziglang cc -target $(1)"
export ZIG_GLOBAL_CACHE_DIR ?= $(CURDIR)/build/zig

$(ZIG): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt ziglang
	@touch $@

release-libs: $(if $(ZIG_PYTHON),,$(ZIG)) ## libnvshare.so for glibc 2.17 and later, x86-64 and aarch64, in build/release
	@for machine in x86_64 aarch64; do \
	  $(MAKE) --no-print-directory -s -C native/interposer TARGET=$$machine OUT=$(RELEASE)/$$machine CC=$(call RELEASE_CC,$$machine-linux-gnu.2.17) || exit 1; \
	done

# For the image: what containers without GPUs get has to run in all of them too.
MACHINE = $(shell uname -m)
release-simgpu: $(if $(ZIG_PYTHON),,$(ZIG)) ## the simulated driver for glibc 2.17 and later, in build/release
	@$(MAKE) --no-print-directory -s -C native/simgpu OUT=$(RELEASE)/simgpu-$(MACHINE) CC=$(call RELEASE_CC,$(MACHINE)-linux-gnu.2.17)

wheels: $(ZIG) compiler ## wheels with a compiled core for Python 3.11 to 3.13, x86-64 and aarch64, in dist
	$(BIN)/python tools/build_wheels.py

# The simulated driver for aarch64, and a processor to run it on: for the test of that library.
aarch64: release-libs
	@command -v qemu-aarch64 >/dev/null && [ -e /usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1 ] || $(call install,qemu-user libc6-arm64-cross,to test the library for aarch64)
	@$(MAKE) --no-print-directory -s -C native/simgpu tests OUT=$(RELEASE)/simgpu-aarch64 CC=$(call RELEASE_CC,aarch64-linux-gnu.2.36)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tools.generate_docs --check

docs: $(READY) ## write the pages that are made from tables
	$(BIN)/python -m tools.generate_docs

format: $(READY) ## put the code in the house's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

LOCK_CYCLES := build/benchmarks/load build/benchmarks/lock_server

build/benchmarks/%: benchmarks/lock_cycles/%.c benchmarks/lock_cycles/frame.h
	@mkdir -p $(@D)
	$(CC) -O2 -std=c11 -Wall -Wextra -Werror -o $@ $<

bench: $(READY) $(LOCK_CYCLES) test-programs compiled ## the figures that are ratios and rates, beside their contenders
	$(BIN)/python -m benchmarks.wire
	@echo "the core in plain Python:" && $(BIN)/python -m benchmarks.core_events && $(BIN)/python -m benchmarks.simulator
	@echo "the core compiled:" && PYTHONPATH=$(COMPILED) $(BIN)/python -m benchmarks.core_events && PYTHONPATH=$(COMPILED) $(BIN)/python -m benchmarks.simulator
	$(BIN)/python -m benchmarks.simgpu_cost
	$(BIN)/python -m benchmarks.lock_cycles
	$(BIN)/python -m benchmarks.launch_overhead
	PYTHONPATH=$(COMPILED) $(BIN)/python -m benchmarks.scrape
	$(BIN)/python -m benchmarks.simulated_api
	$(BIN)/python -m benchmarks.floods && PYTHONPATH=$(COMPILED) $(BIN)/python -m benchmarks.floods
	PYTHONPATH=$(COMPILED) $(BIN)/python -m benchmarks.annotations
	PYTHONPATH=$(COMPILED) $(BIN)/python -m benchmarks.pod_events
	$(BIN)/python -m benchmarks.monitor
	$(BIN)/python -m benchmarks.cluster
	$(BIN)/python -m benchmarks.plugin

verify: $(READY) test-programs prometheus kubernetes-tools kubectl compiled image-root ## the whole of what `make test` only samples
	$(BIN)/python -m pytest -n $(WORKERS) -q -m verify tests/sim
	@echo "the rest one at a time: they measure" && $(BIN)/python -m pytest -q -m verify --ignore=tests/sim
	@$(MAKE) --no-print-directory verify-core
	@$(MAKE) --no-print-directory verify-grants
	@$(MAKE) --no-print-directory verify-slices
	@$(MAKE) --no-print-directory verify-kubernetes
	@$(MAKE) --no-print-directory verify-plugin
	@$(MAKE) --no-print-directory verify-processes
	PYTHONPATH=$(COMPILED) NVSHARE_SIM_LIB=$(CURDIR)/build/simgpu $(BIN)/python -m pytest -n $(WORKERS) -q -m "not verify" tests/core tests/wire tests/node tests/client

# The package as installations have it, its hot parts compiled by mypyc: see setup.py.
compiled: $(COMPILED)/.ready
	@cp -rp src/nvshare/. $(COMPILED)/nvshare/
$(COMPILED)/.ready: $(READY) setup.py $(wildcard src/nvshare/core/*.py src/nvshare/core/*/*.py src/nvshare/wire/*.py src/nvshare/node/*.py src/nvshare/runtime/*.py)
	@rm -rf $(COMPILED)
	NVSHARE_COMPILE=1 $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --target $(COMPILED) .
	@touch $@

verify-shares: $(READY) ## quotas in virtual time, every mix, kernel length and seed, as a table
	$(BIN)/python -m tests.sim.shares
	$(BIN)/python -m tests.sim.old_shares

verify-slices: $(READY) ## quotas of tenants whose memory does not fit together, every mix, as a table
	$(BIN)/python -m tests.core.slices

verify-core: $(READY) compiled ## the core under 20,000,000 random events, every rule checked; EVENTS=, SEED=
	PYTHONPATH=$(COMPILED) $(BIN)/python -m tests.core.driver --events $(EVENTS) --seed $(SEED) --seeds 8

verify-grants: $(READY) compiled ## clients of every dialect, their messages delayed at will: no hold is lost; STEPS=, SEED=
	PYTHONPATH=$(COMPILED) $(BIN)/python -m tests.core.crossings --steps $(STEPS) --seed $(SEED)

verify-gpu-time: $(READY) test-programs ## GPU time as shown beside the card's own count, every workload and mix, as a table
	$(BIN)/python -m tests.interposer.gpu_time

verify-old-clients: $(READY) test-programs ## shares of processes that speak protocol 2, on a simulated GPU
	$(BIN)/python -m tests.interposer.old_shares

verify-lies: $(READY) test-programs ## what lies about GPU time, holds and memory gain, as a table
	$(BIN)/python -m tests.hostile.lies

verify-processes: $(READY) libraries ## the same by real processes on a simulated GPU; takes an hour and a half
	$(BIN)/python -m tests.local.shares

verify-restarts: $(READY) test-programs ## 200 kill -9 and 50 clean restarts of the daemon: no pod has a byte more than its limit
	$(BIN)/python -m tests.interposer.restarts
	$(BIN)/python -m tests.interposer.restart_shares

verify-exits: $(READY) test-programs ## 20,000 short programs exit while their threads stand at a simulated card: none hangs
	$(BIN)/python -m tests.simgpu.short_programs

verify-kubernetes: $(READY) ## every fault of the API server at every point of list and watch: limits stay, and are right again in 5 s
	$(BIN)/python -m tests.node.kubernetes_faults

verify-pods: $(READY) test-programs kubernetes-tools ## pods as real containers on a simulated GPU: every form of cgroup, lies, shared and changed quotas
	$(BIN)/python -m pytest -q tests/pods/test_containers.py

verify-hami: $(READY) ## 200,000 mutated regions in memory and 2,000 as files, and 10,000 readings while processes write
	$(BIN)/python -m tests.hami.mutations --count 200000 --files 2000
	$(BIN)/python -m tests.hami.writers --readings 10000

verify-plugin: $(READY) libraries ## 200 kills of the device plugin at random moments, among other faults: no device is lost, no pod touched
	$(BIN)/python -m tests.plugin.random_kills --kills 200

# The stages of the Dockerfile, run without a container engine over this machine's root: needs root.
IMAGE_ROOT := build/image
image-root: $(IMAGE_ROOT)/.ready ## what the Dockerfile makes, in build/image
$(IMAGE_ROOT)/.ready: Dockerfile tools/build_image_root.py $(READY) $(shell find src native 2>/dev/null -name '*.py' -o -name '*.[ch]' -o -name '*.def' -o -name '*.proto' -o -name '*.toml')
	$(BIN)/python -m tools.build_image_root $(IMAGE_ROOT)
	@touch $@

verify-readme: $(READY) compiler ## every command of the READMEs and pages, pasted in order into a fresh clone
	$(BIN)/python -m pytest -q -m verify tests/docs

verify-day: $(READY) compiled ## a simulated day of 32 tenants on 8 GPUs: speed, and memory that stays flat
	PYTHONPATH=$(COMPILED) $(BIN)/python -m benchmarks.simulator --hours 24

verify-liars: $(READY) compiled ## a simulated day in which one client in ten lies: shares and waits of the others, as a table
	PYTHONPATH=$(COMPILED) $(BIN)/python -m tests.sim.liars --hours $(HOURS)

mutants: $(READY) test-programs prometheus ## small changes to the code, one at a time: do the nearest tests notice? MUTANTS=, SEED=
	$(BIN)/python -m tools.mutants --jobs $(WORKERS) --count $(MUTANTS) --seed $(SEED)

clean: ## remove what the other targets made
	rm -rf $(VENV) build dist .artifacts .mypy_cache .ruff_cache .pytest_cache .hypothesis demo.svg
	rm -f src/nvshare/pods/kubelet/*_pb2.py*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
