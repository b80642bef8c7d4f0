# The only verbs: demo test test-pmem bench bench-mpi bench-active evaluate crash power corrupt fuzz
# install lint fmt clean help.
# Each sets up what it needs.
# Needed beforehand: make, a C compiler, cargo and Python >= 3.11 (choose it with PYTHON=...).

PYTHON ?= python3
BIN := .venv/bin
RUST := Cargo.toml engine/Cargo.toml python/Cargo.toml \
	$(shell find engine/src python/src -name '*.rs')
FUZZ := query_parser records rows segments pages
FUZZ_SECONDS ?= 60
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
# LMDB's C waits for its locks by our function (engine/src/catalog/lmdb/wait.rs). The compiler's
# flags that a user sets, CFLAGS, are kept beside these.
# Once, though tests run make under make: with other flags all would be built anew.
ifeq (,$(findstring engram_mutex_lock,$(HOST_CFLAGS)))
export HOST_CFLAGS += -Dpthread_mutex_lock=engram_mutex_lock
export TARGET_CFLAGS += -Dpthread_mutex_lock=engram_mutex_lock
endif

# $(call step,what it does,command): say it, do it, say how long it took.
step = @printf '==> %s\n' "$(1)"; start=$$(date +%s); { $(2); } && \
	printf '    done in %s s\n' $$(( $$(date +%s) - start ))

.PHONY: help demo test test-pmem bench bench-mpi bench-active evaluate crash power corrupt fuzz \
	install lint fmt clean

help: ## What can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

demo: $(BIN)/.built ## The main job: three processes, one pool, one SIGKILL (a minute)
	$(call step,Running the main job; results in demo-out/,$(BIN)/python -m engram.demo --out demo-out)

test: $(BIN)/.built $(BIN)/.native ## All tests: the engine's, then the package's (a few minutes)
	$(call step,Testing the engine,cargo test --quiet \
		-p engram-engine -p engram-crash -p engram-capi --features engram-engine/faults)
	$(call step,Testing the package,$(BIN)/python -m pytest -q tests)

bench: $(BIN)/.built $(BIN)/.peers ## Engram beside its peers (under 15 minutes; ARGS=--quick: 2)
	$(call step,Measuring; results in bench/results/,$(BIN)/python -m bench $(ARGS))

bench-mpi: $(BIN)/.built $(BIN)/.peers-mpi ## The same in MPI codes, beside theirs (20 minutes; 2)
	$(call step,Measuring; results in bench/results/,$(BIN)/python -m bench.mpi $(ARGS))

ACTIVE := bench/results/active.json docs/evaluation-active.md docs/images/evaluation-active.png
bench-active: $(BIN)/.built $(BIN)/.peers-active ## Active objects beside Redis and dataClay (10; 1)
	$(call step,Measuring; results in bench/results/,$(BIN)/python -m bench.active $(ARGS))
	@case "$(ARGS)" in "") $(BIN)/python -m bench.active.pages $(ACTIVE);; esac

PARTS := queries million policies index-bytes index-time search-space end-to-end
evaluate: $(BIN)/.built $(BIN)/.peers ## Finding objects, as the papers measure it (5 minutes)
	$(call step,Measuring; results in bench/results/,$(BIN)/python -m bench \
		$(PARTS:%=--only %) --out bench/results/evaluation.json $(ARGS))
	$(call step,Drawing into docs/images/,$(BIN)/python -m bench.evaluation.plots \
		bench/results/evaluation.json docs/images)

SEEDS ?= 4
power: ## Power that fails at every point, system calls that fail at each (minutes; SEEDS=4)
	$(call step,Failing the power,ENGRAM_POWER_SEEDS=$(SEEDS) cargo test --quiet -p engram-engine \
		--features faults --test power)
	$(call step,Failing every system call,ENGRAM_FAILPOINTS=all cargo test --quiet \
		-p engram-engine --features faults --test failpoints)

test-pmem: $(BIN)/.built ## Tests on persistent memory, in a virtual machine, and power cuts
	$(call step,Testing on persistent memory; consoles in target/pmem/,\
		$(BIN)/python tests/pmem/run.py $(ARGS))

KILLS ?= 2000
crash: $(BIN)/.built ## Kill -9 anywhere, then look (5-10 minutes; KILLS=2000 SEED=...)
	$(call step,Killing writers and readers,cargo run --quiet --profile test \
		-p engram-crash -- $(KILLS))
	$(call step,Killing who moves and publishes,ENGRAM_CRASH_ROUNDS=4 cargo test --quiet \
		-p engram-engine --features faults --test transfer_kill)
	$(call step,Killing imports,ENGRAM_CRASH_ROUNDS=60 $(BIN)/python -m pytest -q -s \
		tests/test_crash_import.py)

CORRUPTIONS ?= 2000
corrupt: ## Damage at random places of a pool, found and salvaged (minutes; CORRUPTIONS=, SEED=)
	$(call step,Damaging a pool $(CORRUPTIONS) times,CORRUPTIONS=$(CORRUPTIONS) cargo test --quiet \
		-p engram-engine --features faults --test corrupt -- --nocapture whatever)

fuzz: ## Nonsense to what reads queries and media (FUZZ_SECONDS=60 for each; nightly Rust)
	@if cargo +nightly --version >/dev/null 2>&1 || \
		rustup toolchain install nightly --profile minimal >/dev/null 2>&1; \
	then $(MAKE) --silent $(FUZZ:%=.fuzz-%); \
	else echo "==> Fuzzing is skipped: it needs nightly Rust, which rustup cannot install here"; fi

PREFIX ?= /usr/local
install: ## The C library, its headers, pkg-config and CMake files, into PREFIX (DESTDIR=...)
	$(call step,Building the library,cargo build --quiet --release -p engram-capi)
	$(call step,Installing into $(DESTDIR)$(PREFIX),\
		capi/install.sh $(or $(CARGO_TARGET_DIR),target)/release $(DESTDIR)$(PREFIX))

HEADERS := engram.h engram/base.hpp engram.hpp pmemcpy/types.hpp \
	$(addprefix pmemcpy/,pmemcpy.hpp pmemcpy.h memcpy.h)
STRICT := -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x
CBINDGEN := capi/tools/bin/cbindgen --quiet --config capi/cbindgen.toml --crate engram-capi

lint: $(BIN)/.built capi/tools/bin/cbindgen ## Formatting, lints, types and house rules
	$(call step,Checking the format,cargo fmt --all --check && $(BIN)/ruff format --check .)
	$(call step,Checking Rust,cargo clippy --quiet --workspace --all-targets -- -D warnings)
	$(call step,Checking the C header,$(CBINDGEN) --verify --output capi/include/engram.h capi && \
		cc -std=c11 $(STRICT) c capi/include/engram.h && for header in $(HEADERS); do \
		c++ -std=c++20 $(STRICT) c++ -include capi/include/$$header /dev/null || exit 1; done)
	$(call step,Checking Python,$(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/stubtest engram._engram)
	$(call step,Checking the house rules,sh -n tests/pmem/init.sh && \
		$(BIN)/python -m pytest -q tests/test_tidy.py)

fmt: $(BIN)/.installed capi/tools/bin/cbindgen ## Format everything, and write the C header anew
	$(call step,Writing the C header,$(CBINDGEN) --output capi/include/engram.h capi)
	$(call step,Formatting,cargo fmt --all && $(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .)

clean: ## Remove what the other verbs made, the demo's pool too
	-@test ! -x $(BIN)/python || $(BIN)/python -m engram.demo --remove --out demo-out
	rm -rf fuzz/target fuzz/tools fuzz/corpus fuzz/artifacts capi/tools
	rm -rf .venv target demo-out .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/.installed:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is $$($(PYTHON) -V 2>&1); 3.11 or newer is needed: make PYTHON=..."; exit 1; }
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust 1.85 or newer"; exit 1; }
	$(call step,Making .venv (half a minute),\
		$(PYTHON) -m venv .venv && $(BIN)/pip install -q maturin ruff)
	@touch $@

$(BIN)/.built: $(BIN)/.installed pyproject.toml $(RUST)
	$(call step,Building engine and package (a few minutes the first time),\
		$(BIN)/maturin develop --release --extras dev >.venv/build.log 2>&1 || \
		{ cat .venv/build.log; exit 1; })
	@touch $@

.fuzz-%: fuzz/tools/bin/cargo-fuzz
	$(call step,Fuzzing $* for $(FUZZ_SECONDS) s,PATH="$(CURDIR)/fuzz/tools/bin:$$PATH" \
		cargo +nightly fuzz run $* -- -max_total_time=$(FUZZ_SECONDS) -max_len=4096 \
		$(patsubst %,-dict=%,$(wildcard fuzz/$*.dict)) -verbosity=0 -print_funcs=0 -print_final_stats=1)

fuzz/tools/bin/cargo-fuzz:
	$(call step,Installing cargo-fuzz (a minute),\
		cargo install --quiet --locked --root fuzz/tools cargo-fuzz 2>/dev/null)

capi/tools/bin/cbindgen:
	$(call step,Installing cbindgen (a minute),\
		cargo install --quiet --locked --root capi/tools --version 0.29.4 cbindgen 2>/dev/null)

$(BIN)/.native: $(BIN)/.installed tests/native.py
	$(call step,Looking for MPI and Fortran and what else tests of the C library use,\
		$(BIN)/python tests/native.py)
	@touch $@

$(BIN)/.peers: $(BIN)/.installed bench/requirements.txt bench/requirements-vineyard.txt
	$(call step,Installing the peers,$(BIN)/pip install -q -r bench/requirements.txt)
	@$(BIN)/pip install -q -r bench/requirements-vineyard.txt >$(BIN)/.vineyard.log 2>&1 || \
		echo "    vineyard cannot be installed here (.venv/bin/.vineyard.log); going on without"
	@touch $@

# Debian's parallel libraries; ADIOS2 is a wheel.
MPI_PEERS := libhdf5-openmpi-dev libnetcdf-mpi-dev libpnetcdf-dev
$(BIN)/.peers-mpi: $(BIN)/.native bench/requirements-mpi.txt
	$(call step,Installing the peers of MPI codes,$(BIN)/pip install -q -r bench/requirements-mpi.txt)
	@dpkg -s $(MPI_PEERS) >/dev/null 2>&1 || \
		apt-get install -q -y --no-install-recommends $(MPI_PEERS) >$(BIN)/.peers-mpi.log 2>&1 || \
		echo "    some peers cannot be installed here ($(BIN)/.peers-mpi.log); going on without"
	@touch $@

$(BIN)/.peers-active: $(BIN)/.installed bench/requirements-active.txt
	$(call step,Installing the peers of active objects,\
		$(BIN)/pip install -q -r bench/requirements-active.txt)
	@command -v redis-server >/dev/null || \
		apt-get install -q -y --no-install-recommends redis-server >$(BIN)/.peers-active.log 2>&1 || \
		echo "    Redis cannot be installed here ($(BIN)/.peers-active.log); going on without"
	@touch $@
