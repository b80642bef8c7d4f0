# The only verbs: demo test test-engine test-package upstream-suites posix-suites slurm test-pmem
# bench bench-mpi bench-active bench-doors bench-posix bench-web bench-stage bench-cluster
# bench-start evaluate evaluate-databases evaluate-papers hot versus crash power stage-crash
# corrupt cluster cluster-faults simulate model miri fuzz install docs docs-serve docs-links
# lint layers supply msrv aarch64 fmt web web-lint web-test wheels clean help. Each sets up what
# it needs.
# Needed beforehand: make, a C compiler, cargo and Python >= 3.11 (choose it with PYTHON=...).

PYTHON ?= python3
BIN := .venv/bin
RUST := Cargo.toml .cargo/config.toml python/Cargo.toml \
	$(wildcard engine/Cargo.toml engine/*/Cargo.toml engine/*/build.rs posix/*/Cargo.toml \
		cluster/*/Cargo.toml) \
	$(shell find engine/src engine/*/src posix/*/src cluster/*/src python/src \
		-name '*.rs' -o -name '*.c')
MSRV := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
MIRI := nightly-2026-05-20
FUZZ := query_parser records rows segments pages trace_lines
FUZZ_SECONDS ?= 60
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python

# A comma within what `call` is given would end it.
COMMA := ,
# $(call step,what it does,command): say it, do it, say how long it took.
step = @printf '==> %s\n' "$(1)"; start=$$(date +%s); { $(2); } && \
	printf '    done in %s s\n' $$(( $$(date +%s) - start ))

.PHONY: help demo test test-engine test-package upstream-suites posix-suites slurm test-pmem \
	bench bench-mpi bench-active bench-doors bench-posix bench-web bench-stage bench-cluster \
	bench-start evaluate evaluate-databases evaluate-papers hot versus crash power stage-crash \
	corrupt cluster cluster-faults simulate model miri fuzz install docs docs-serve docs-links \
	lint layers supply msrv aarch64 fmt web web-lint web-test wheels clean

help: ## What can be made
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

demo: $(BIN)/.built ## The main job: three processes, one pool, one SIGKILL (a minute)
	$(call step,Running the main job; results in demo-out/,$(BIN)/python -m engram.demo --out demo-out)

TESTED := $(BIN)/.built $(BIN)/.cluster $(BIN)/.library $(BIN)/.native $(BIN)/.page
test: $(TESTED) ## All tests: the engine's, then the package's (40 minutes)
	@$(MAKE) --silent test-engine
	@$(MAKE) --silent test-package

test-engine: $(BIN)/.installed ## Those of the Rust crates (ARGS="transfer_kill leases::": which)
	$(call step,Testing the engine,$(BIN)/python tests/programs.py $(ARGS))

test-package: $(TESTED) ## Those of the package (ARGS=tests/test_lock.py: which)
	$(call step,Testing the package,env -u PYTHONDONTWRITEBYTECODE \
		PYTHONPYCACHEPREFIX=$(CURDIR)/$(BIN)/pycache $(BIN)/python -m pytest -q \
		-n $$(( $$(nproc) + 1 )) --dist worksteal $(or $(ARGS),tests))

upstream-suites: $(BIN)/.built ## Other projects' own tests of such as this, alone (a minute)
	$(call step,Running suites of other projects,$(BIN)/python -m pytest -q -n auto tests/upstream)

POSIX_SUITES := target/tools/bin/pjdfstest target/tools/bin/fsx
posix-suites: $(BIN)/.built $(BIN)/.native $(POSIX_SUITES) ## pjdfstest, fsx, names (half an hour)
	$(call step,Running suites of file systems on mounts,$(BIN)/python tests/posix/suites.py $(ARGS))

slurm: $(BIN)/.built ## Jobs of a real Slurm (15 minutes; ARGS="--bench FILE": how late one starts)
	$(call step,Running jobs of a Slurm of its own,$(BIN)/python tests/slurm/whole.py $(ARGS))

bench: $(BIN)/.built $(BIN)/.peers ## Engram beside its peers (under 15 minutes; ARGS=--quick: 2)
	$(call step,Measuring; results in bench/results/,$(BIN)/python -m bench $(ARGS))

bench-mpi: $(BIN)/.built $(BIN)/.peers-mpi ## The same in MPI codes, beside theirs (20 minutes; 2)
	$(call step,Measuring; results in bench/results/,$(BIN)/python -m bench.mpi $(ARGS))

ACTIVE := bench/results/active.json docs/evaluation-active.md docs/images/evaluation-active.png
bench-active: $(BIN)/.built $(BIN)/.peers-active ## Active objects beside Redis and dataClay (10; 1)
	$(call step,Measuring; results in bench/results/,$(BIN)/python -m bench.active $(ARGS))
	@case "$(ARGS)" in "") $(BIN)/python -m bench.active.pages $(ACTIVE);; esac

bench-doors: $(BIN)/.built $(BIN)/.peers ## Doors, beside what others use (5; 1)
	$(call step,Measuring; results in bench/results/,$(BIN)/python -W ignore::UserWarning \
		-m bench.doors $(ARGS))

POSIX := bench/results/posix.json docs/images/files-ecdf.png
bench-posix: $(BIN)/.built ## Files by Fs and a mount, beside tmpfs and a null FUSE (15 minutes; 2)
	$(call step,Measuring; results in bench/results/,$(BIN)/python -m bench.files $(ARGS))
	@case "$(ARGS)" in "") $(BIN)/python -m bench.files.ecdf $(POSIX);; esac

bench-web: $(BIN)/.built ## The web page: large groups, images, updates, writers (3; 1)
	$(call step,Measuring; results in bench/results/,$(BIN)/python -m bench.web $(ARGS))

bench-stage: $(BIN)/.built ## Stages beside cp, rsync and the paper's Table 3 (15 minutes; 2)
	$(call step,Measuring; results in bench/results/,$(BIN)/python -m bench.stage $(ARGS))

bench-cluster: $(BIN)/.cluster $(BIN)/.peers-active ## A cluster beside what it stands on (15; 2)
	$(call step,Measuring; results in bench/results/,$(BIN)/python -m bench.cluster $(ARGS))

bench-start: $(BIN)/.built ## Imports and verbs beside numpy (5; ARGS="--wheel FILE": pip)
	$(call step,Measuring; results in bench/results/,$(BIN)/python -m bench.start $(ARGS))

PARTS := queries million policies index-bytes index-time search-space load-factor end-to-end
evaluate: $(BIN)/.built $(BIN)/.peers ## Finding objects, as the papers measure it (5 minutes)
	$(call step,Measuring; results in bench/results/,$(BIN)/python -m bench \
		$(PARTS:%=--only %) $(if $(ARGS),,--out bench/results/evaluation.json) $(ARGS))
	@case "$(ARGS)" in "") $(BIN)/python -m bench.evaluation.plots \
		bench/results/evaluation.json docs/images;; esac

evaluate-papers: $(BIN)/.built $(BIN)/.peers ## At the papers' size: 9 million objects (60; 5)
	$(call step,Measuring; results in bench/results/,$(BIN)/python -m bench --only papers-size \
		$(if $(ARGS),,--out bench/results/papers.json) $(ARGS))

DATABASES := bench/results/databases.json docs/evaluation-databases.md \
	docs/images/evaluation-databases.png
evaluate-databases: $(BIN)/.built $(BIN)/.peers ## The same beside DuckDB and SQLite (30 minutes; 2)
	$(call step,Measuring; results in bench/results/,$(BIN)/python -m bench.databases $(ARGS))
	@case "$(ARGS)" in "") $(BIN)/python -m bench.databases.pages $(DATABASES);; esac

hot: $(BIN)/.built $(BIN)/.peers ## A dozen ratios beside those that landed last (a minute)
	$(call step,Measuring what is felt first,$(BIN)/python -W ignore::UserWarning -m bench.hot $(ARGS))

versus: $(BIN)/.built $(BIN)/.peers ## This tree beside another (OLD=folder, built; ARGS=...)
	$(call step,Measuring this tree and $(OLD) by turns,$(BIN)/python -m bench.versus $(OLD) $(ARGS))

SEEDS ?= 4
power: ## Power that fails at every point, system calls that fail at each (minutes; SEEDS=4)
	$(call step,Failing the power,ENGRAM_POWER_SEEDS=$(SEEDS) cargo test --quiet -p engram-store \
		--features faults --test power)
	$(call step,Failing every system call,ENGRAM_FAILPOINTS=all cargo test --quiet \
		-p engram-store --features faults --test failpoints)

test-pmem: $(BIN)/.built ## Tests on persistent memory, in a virtual machine, and power cuts
	$(call step,Testing on persistent memory; consoles in target/pmem/,\
		$(BIN)/python tests/pmem/run.py $(ARGS))

KILLS ?= 4000
crash: $(BIN)/.built ## Kill -9 anywhere, then look (10-20 minutes; KILLS=4000 SEED= STEP=)
	$(call step,Building the library that programs preload,cargo build --quiet --profile test \
		-p engram-preload --features faults)
	$(call step,Killing writers$(COMMA) readers and preloaded programs,cargo run --quiet \
		--profile test -p engram-crash -- $(KILLS))
	$(call step,Killing who moves and publishes,ENGRAM_CRASH_ROUNDS=4 cargo test --quiet \
		-p engram-store --features faults --test moves transfer_kill::)
	$(call step,Killing imports,ENGRAM_CRASH_ROUNDS=60 $(BIN)/python -m pytest -q -s \
		tests/test_crash_import.py)

STAGE_KILLS ?= 500
stage-crash: ## Kill -9 stages in and out, again and again (minutes; STAGE_KILLS=, SEED=)
	$(call step,Killing stages,ENGRAM_STAGE_KILLS=$(STAGE_KILLS) cargo test --quiet \
		-p engram-stage --features faults --test kills -- --nocapture)

CORRUPTIONS ?= 2000
corrupt: ## Damage at random places of a pool, found and salvaged (minutes; CORRUPTIONS=, SEED=)
	$(call step,Damaging a pool $(CORRUPTIONS) times,CORRUPTIONS=$(CORRUPTIONS) cargo test --quiet \
		-p engram-store --features faults --test damage -- --nocapture whatever)

HISTORIES ?= 100000
SIMULATE := cargo run --quiet --release -p engram-simulate --
cluster: $(BIN)/.cluster ## The module with which nodes are one store, engram://NAME (minutes)

ROUNDS ?= 5
cluster-faults: $(BIN)/.cluster $(BIN)/.native ## Hosts that fail (15 minutes; ROUNDS=5 SEED=)
	$(call step,Failing hosts of a cluster at work,PYTHONPATH=tests $(BIN)/python -m cluster.faults \
		--rounds $(ROUNDS) $(SEED:%=--seed %) $(ARGS))

simulate: ## Histories of a cluster that only a seed decides (half an hour; HISTORIES=100000 SEED=)
	$(call step,Running histories of 5 nodes,$(SIMULATE) 5 $(HISTORIES) --seed $(or $(SEED),0))
	$(call step,Running histories of 64 nodes,\
		$(SIMULATE) 64 $$(( $(HISTORIES) / 40 )) --seed $(or $(SEED),0))
	$(call step,Running histories of 1024 nodes,\
		$(SIMULATE) 1024 $$(( $(HISTORIES) / 400 )) --seed $(or $(SEED),0))

model: ## Leases and reuse in every order of their steps, and with defects built in (2 minutes)
	$(call step,Running the model of leases as it is and with defects,$(PYTHON) scripts/model.py)

miri: ## Columns and records where undefined behaviour shows (4 minutes; nightly Rust)
	@if cargo +$(MIRI) miri --version >/dev/null 2>&1 || rustup toolchain install $(MIRI) \
		--profile minimal --component miri --component rust-src >/dev/null 2>&1; \
	then $(MAKE) --silent .miri; \
	else echo "==> Skipped: it needs miri of $(MIRI), which rustup cannot install here"; fi

fuzz: ## Nonsense to what reads queries, media, traces (FUZZ_SECONDS=60 for each; nightly Rust)
	@if cargo +nightly --version >/dev/null 2>&1 || \
		rustup toolchain install nightly --profile minimal >/dev/null 2>&1; \
	then $(MAKE) --silent $(FUZZ:%=.fuzz-%); \
	else echo "==> Fuzzing is skipped: it needs nightly Rust, which rustup cannot install here"; fi

PREFIX ?= /usr/local
install: ## The C library, its headers, pkg-config and CMake files, into PREFIX (DESTDIR=...)
	$(call step,Building the libraries,cargo build --quiet --release -p engram-capi \
		-p engram-cluster-c)
	$(call step,Installing into $(DESTDIR)$(PREFIX),\
		capi/install.sh $(or $(CARGO_TARGET_DIR),target)/release $(DESTDIR)$(PREFIX))

DOCSITE := env PYTHONPATH=scripts $(BIN)/python -m docsite
docs: $(BIN)/.built $(BIN)/.cluster $(BIN)/.docs ## The documentation as a site, in target/docs/html
	$(call step,Building the documentation (minutes),$(DOCSITE) build $(ARGS))

docs-serve: $(BIN)/.installed ## Show the site that `make docs` has built to a browser (PORT=8000)
	@test -d target/docs/html || { echo "there is no site yet: run make docs"; exit 1; }
	$(call step,Serving http://127.0.0.1:$(or $(PORT),8000)/ until Ctrl-C,$(BIN)/python \
		-m http.server --bind 127.0.0.1 --directory target/docs/html $(or $(PORT),8000))

docs-links: $(BIN)/.built $(BIN)/.cluster $(BIN)/.docs ## Links of the documentation to other sites
	$(call step,Following links to other sites,$(DOCSITE) links $(ARGS))

HEADERS := engram.h engram_cluster.h engram/base.hpp engram.hpp engram/sharing.hpp \
	$(addprefix pmemcpy/,types.hpp serializers.hpp cluster.hpp pmemcpy.hpp pmemcpy.h memcpy.h)
STRICT := -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x
HEADER := cargo run --quiet -p engram-header --

lint: $(BIN)/.checkers ## Formatting, lints, types, licences and house rules; no build
	$(call step,Checking the format,cargo fmt --all --check && $(BIN)/ruff format --check .)
	$(call step,Checking the spelling,$(BIN)/typos)
	$(call step,Checking Rust and dependencies that nothing uses,$(BIN)/python scripts/clippy.py)
	$(call step,Checking licences and layers,$(BIN)/python scripts/licences.py && \
		$(BIN)/python scripts/layers.py --check)
	$(call step,Checking what is said of libc's symbols,$(BIN)/python scripts/symbols.py)
	$(call step,Checking the C header,$(HEADER) --verify && \
		cc -std=c11 $(STRICT) c capi/include/engram.h && for header in $(HEADERS); do \
		c++ -std=c++20 $(STRICT) c++ -include capi/include/$$header /dev/null || exit 1; done)
	$(call step,Checking Python,$(BIN)/ruff check . && $(BIN)/mypy && \
		PYTHONPATH=python $(BIN)/lint-imports --no-logo --no-cache)
	$(call step,Checking the figures in the prose of README and docs,$(BIN)/python -m bench.sentences)
	$(call step,Checking the tables of the evaluation's pages,$(BIN)/python -m bench.tables)
	$(call step,Checking the house rules,sh -n tests/pmem/init.sh && \
		$(BIN)/python -m pytest -q --noconftest tests/test_tidy.py)

layers: ## Draw the crates and their arrows into ARCHITECTURE.md
	$(call step,Drawing the crates,$(PYTHON) scripts/layers.py)

DENY := target/tools/bin/cargo-deny --workspace --locked
supply: target/tools/bin/cargo-deny ## Dependencies (cargo-deny), and the public API's snapshot
	$(call step,Checking what is depended upon,$(DENY) check bans licenses sources)
	@if $(DENY) fetch db >/dev/null 2>&1; then $(DENY) check advisories; \
	else echo "==> Advisories are left out: their database cannot be had here"; fi
	@if cargo +nightly --version >/dev/null 2>&1 || \
		rustup toolchain install nightly --profile minimal >/dev/null 2>&1; \
	then $(MAKE) --silent .public-api; \
	else echo "==> The public API is left out: nightly Rust cannot be installed here"; fi

msrv: $(BIN)/.installed ## The workspace, with the oldest Rust that Cargo.toml names
	@if cargo +$(MSRV) --version >/dev/null 2>&1 || \
		rustup toolchain install $(MSRV) --profile minimal >/dev/null 2>&1; \
	then $(MAKE) --silent .msrv; \
	else echo "==> Skipped: it needs Rust $(MSRV), which rustup cannot install here"; fi

aarch64: ## Unit tests on 64-bit ARM, by qemu-user
	$(call step,Testing for aarch64,$(PYTHON) scripts/aarch64.py)

fmt: $(BIN)/.installed ## Format everything, and write the C header anew
	$(call step,Writing the C header,$(HEADER))
	$(call step,Formatting,cargo fmt --all && $(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .)

web: web/node_modules/.package-lock.json ## The page of engram serve, by Node 20 or newer (a minute)
	@$(MAKE) --silent web-lint
	$(call step,Building the page,cd web && npm run --silent build)

web-lint: web/node_modules/.package-lock.json ## Format, lints and types of the page
	$(call step,Checking the page,cd web && npm run --silent lint)

web-test: $(BIN)/.built $(BIN)/.native web ## All tests of the page, in a browser (minutes)
	$(call step,Testing the page,$(BIN)/python -m pytest -q $(or $(ARGS),tests/web/test_page.py \
		tests/web/whole.py))

PLATFORMS ?= x86_64 aarch64 x86_64-musl aarch64-musl source
wheels: $(BIN)/.wheels $(BIN)/.page ## Wheels and sources, each tried (an hour; PLATFORMS=x86_64)
	$(call step,Building wheels into target/wheels/,env PYTHONPATH=scripts $(BIN)/python -m wheels \
		$(PLATFORMS) $(ARGS))

clean: ## Remove what the other verbs made, the demo's pool too
	-@test ! -x $(BIN)/python || $(BIN)/python -m engram.demo --remove --out demo-out
	rm -rf fuzz/target fuzz/tools fuzz/corpus fuzz/artifacts
	rm -rf python/engram/_native python/engram/web/page web/node_modules
	rm -rf .venv target demo-out .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/.installed:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is $$($(PYTHON) -V 2>&1); 3.11 or newer is needed: make PYTHON=..."; exit 1; }
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust $(MSRV) or newer"; exit 1; }
	$(call step,Making .venv (half a minute),\
		$(PYTHON) -m venv .venv && $(BIN)/pip install -q maturin ruff)
	@touch $@

$(BIN)/.checkers: $(BIN)/.installed pyproject.toml scripts/requirements.py
	$(call step,Installing what checks and what has types (a minute),\
		$(BIN)/pip install -q $$($(BIN)/python scripts/requirements.py))
	@touch $@

$(BIN)/.built: $(BIN)/.installed pyproject.toml $(RUST)
	$(call step,Building engine and package (a few minutes the first time),\
		$(BIN)/maturin develop --release --extras all$(COMMA)dev >.venv/build.log 2>&1 || \
		{ cat .venv/build.log; exit 1; })
	$(PRELOAD)
	@touch $@

# What `engram run` preloads lies in the package. A program that runs keeps the file that it maps.
PRELOAD = $(call step,Building the library to preload,cargo build --quiet --release \
	-p engram-preload && install -D -m 755 \
	$(or $(CARGO_TARGET_DIR),target)/release/libengram_preload.so \
	python/engram/_native/libengram_preload.so)

web/node_modules/.package-lock.json: web/package.json web/package-lock.json web/.npmrc
	@command -v npm >/dev/null || { echo "npm is missing: install Node 20 or newer"; exit 1; }
	$(call step,Installing what the page is made of,cd web && npm ci --ignore-scripts --silent)
	@touch $@

# Tests of the page are skipped without it.
$(BIN)/.page: $(BIN)/.installed $(wildcard web/*.json web/*.mjs web/src/*)
	@if command -v npm >/dev/null; then $(MAKE) --silent web; \
	else echo "==> The page is left out: npm is missing, which comes with Node 20 or newer"; fi
	@touch $@

.public-api:
	$(call step,Comparing the public API,$(PYTHON) scripts/public_api.py)

.msrv:
	$(call step,Checking with Rust $(MSRV),cargo +$(MSRV) check --quiet --locked --workspace \
		--all-targets)

# Chunks are filled by three threads. Tests leak rows, to have them live long. A property is tried
# twice: miri takes a thousand times as long.
MIRI_FLAGS := -Zmiri-disable-isolation -Zmiri-num-cpus=3 -Zmiri-ignore-leaks
.miri:
	$(call step,Testing columns and records under miri,MIRIFLAGS="$(MIRI_FLAGS)" PROPTEST_CASES=2 \
		cargo +$(MIRI) miri test --quiet --target-dir target/miri -p engram-columns \
		-p engram-records --lib)

# A module of its own: what one node needs is built without it.
CLUSTER := python/engram/cluster/_cluster.so
$(BIN)/.cluster: $(BIN)/.built $(wildcard cluster/*/Cargo.toml) $(shell find cluster -name '*.rs')
	$(call step,Building the module of clusters (a minute or two),cargo build --quiet --release \
		-p engram-cluster-python && install -m 755 \
		$(or $(CARGO_TARGET_DIR),target)/release/lib_cluster.so $(CLUSTER))
	@touch $@

# What tests install (`prefix` in tests/conftest.py).
$(BIN)/.library: $(BIN)/.installed $(RUST) $(wildcard capi/Cargo.toml capi/*/Cargo.toml) \
		$(wildcard capi/src/*.rs capi/*/src/*.rs)
	$(call step,Building the C libraries (a minute or two),cargo build --quiet --release \
		-p engram-capi -p engram-cluster-c)
	@touch $@

.fuzz-%: fuzz/tools/bin/cargo-fuzz
	$(call step,Fuzzing $* for $(FUZZ_SECONDS) s,PATH="$(CURDIR)/fuzz/tools/bin:$$PATH" \
		cargo +nightly fuzz run $* -- -max_total_time=$(FUZZ_SECONDS) -max_len=4096 \
		$(patsubst %,-dict=%,$(wildcard fuzz/$*.dict)) -verbosity=0 -print_funcs=0 -print_final_stats=1)

fuzz/tools/bin/cargo-fuzz:
	$(call step,Installing cargo-fuzz (a minute),\
		cargo install --quiet --locked --root fuzz/tools cargo-fuzz 2>/dev/null)

target/tools/bin/cargo-deny:
	$(call step,Installing cargo-deny (minutes),\
		cargo install --quiet --locked --root target/tools cargo-deny 2>/dev/null)

# Suites of file systems: programs that are run, and linked with nothing.
target/tools/bin/pjdfstest: VERSION := 0.2.2
target/tools/bin/fsx: VERSION := 0.3.2
$(POSIX_SUITES):
	$(call step,Installing $(@F) $(VERSION) (a minute),cargo install --quiet --locked \
		--root target/tools $(@F) --version $(VERSION) 2>/dev/null)

$(BIN)/.wheels: $(BIN)/.installed scripts/wheels/requirements.txt
	$(call step,Installing zig and what looks through wheels (a minute),\
		$(BIN)/pip install -q -r scripts/wheels/requirements.txt)
	@touch $@

$(BIN)/.docs: $(BIN)/.installed scripts/docsite/requirements.txt
	$(call step,Installing Sphinx and Doxygen,\
		$(BIN)/pip install -q -r scripts/docsite/requirements.txt)
	@command -v doxygen >/dev/null || \
		apt-get install -q -y --no-install-recommends doxygen >$(BIN)/.docs.log 2>&1 || \
		{ echo "doxygen is missing, and apt cannot install it here ($(BIN)/.docs.log)"; exit 1; }
	@touch $@

$(BIN)/.native: $(BIN)/.installed tests/native.py
	$(call step,Looking for MPI$(COMMA) Fortran$(COMMA) FUSE$(COMMA) etcd and more for some tests,\
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
