# `make demo` and `make test` do all the set-up they need; a second call is quick.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup demo unit test helm test-deploy test-terraform test-image test-cdc test-store fuzz soak lint docs \
	postgres bench lock image clean

setup: $(VENV)/.ready $(VENV)/.archive

$(VENV)/.java: scripts/java.sh
	@sh scripts/java.sh
	@mkdir -p $(VENV)
	@touch $@

# The Python packages: all that lint and tests/unit need.
$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "zync needs Python 3.11 or newer, and $(PYTHON) is older: name another, as in make PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing what zync needs into $(VENV) (a few minutes the first time)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --editable .
	@touch $@

# Java is looked for first: to install the packages takes minutes.
$(VENV)/.ready: $(VENV)/.java $(VENV)/.installed $(wildcard zync/*.java)
	@$(BIN)/python -m zync.java
	@touch $@

$(VENV)/.archive: $(VENV)/.ready
	@$(BIN)/python -m zync.demo.class_archive || echo "no class archive could be made: all works, Spark only starts slower"
	@touch $@

# DEMO=postgres: on a real PostgreSQL and Debezium; DEMO=orders: two transactions, step by step.
DEMO ?= bank
demo: setup
	@if [ "$(DEMO)" = postgres ]; then sh scripts/postgres.sh; fi
	@$(BIN)/zync demo --what $(DEMO)

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/words.py --check

# The site, in site/. A page that is written from the code and does not say what it says now fails here.
docs: $(VENV)/.ready
	$(BIN)/python scripts/docs.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

postgres: $(VENV)/.ready
	@sh scripts/postgres.sh

# A few seconds, without a JVM or a broker: to be run at each save.
unit: $(VENV)/.installed
	$(BIN)/pytest -n 2 --dist load tests/unit

test:
	@$(MAKE) --no-print-directory unit
	@$(MAKE) --no-print-directory --jobs 3 lint postgres helm setup
	$(BIN)/pytest --deselect tests/unit

# Helm, for the tests of the chart: Go builds it once, into the cache folder, where it is not on the path.
helm: $(VENV)/.installed
	@$(BIN)/python -m tests.deploy.helm

# The chart and the alerts alone.
test-deploy: helm
	$(BIN)/pytest -n 0 tests/deploy

# The modules of deploy/terraform, by OpenTofu: Go builds it once, in seven minutes of a core, into the cache folder.
test-terraform: helm
	@$(BIN)/python -m tests.deploy.tofu
	$(BIN)/pytest -n 0 tests/deploy/test_terraform.py tests/deploy/test_terraform_files.py

# The bank and any changes on a real PostgreSQL and a real Debezium, at length; `make test` has short forms of them.
test-cdc: setup
	@sh scripts/postgres.sh
	ZYNC_TEST_CDC_TRANSACTIONS=1000 $(BIN)/pytest -n 0 tests/cdc/test_bank.py
	ZYNC_TEST_CDC_TRANSACTIONS=200 $(BIN)/pytest -n 0 tests/cdc/test_workload.py

# Bytes and histories that nobody thought of, from another beginning each time; `make test` has a short form of it.
fuzz: setup
	ZYNC_TEST_FUZZ_TIMES=5000 ZYNC_TEST_HISTORIES=100 $(BIN)/pytest -n 0 --timeout 3600 \
		tests/spark/test_fuzz.py tests/spark/test_protobuf.py tests/deliver/test_any_history.py \
		tests/property/test_any_cut.py

# Ten minutes of harm at random, from another beginning each time (ZYNC_TEST_SOAK_SEED: from one that it printed), and
# syncs and deliveries killed again and again; `make test` has short forms of them. The disk's harm needs root, who may
# mount one. ZYNC_TEST_SOAK_STORE=s3: the lake is in an object store, which is away now and then.
soak: setup
	ZYNC_TEST_SOAK_SECONDS=600 $(BIN)/pytest -n 0 --timeout 1200 -s tests/kafka/test_soak.py
	ZYNC_TEST_KILLS=30 $(BIN)/pytest -n 0 tests/crash/test_kill_sync.py tests/deliver/tables/test_kills.py

# The harm at length, on each server; `make test` has a short form of it.
test-store: setup
	ZYNC_TEST_STORE_SECONDS=600 ZYNC_TEST_STORE_KILLS=20 $(BIN)/pytest -n 0 --timeout 3600 -s tests/store
	ZYNC_TEST_STORE_SERVER=versitygw ZYNC_TEST_STORE_SECONDS=300 ZYNC_TEST_STORE_KILLS=5 $(BIN)/pytest -n 0 \
		--timeout 3600 -s tests/store/test_harm.py tests/store/test_kills.py tests/store/test_outage.py
	ZYNC_TEST_STORE_SERVER=gs ZYNC_TEST_STORE_SECONDS=300 ZYNC_TEST_STORE_KILLS=5 $(BIN)/pytest -n 0 \
		--timeout 3600 -s tests/store/test_harm.py tests/store/test_kills.py
	ZYNC_TEST_STORE_SERVER=azure ZYNC_TEST_STORE_KILLS=5 $(BIN)/pytest -n 0 --timeout 3600 -s tests/store/test_kills.py

# Builds the image and runs it: needs Debian, root and ten minutes.
test-image: setup
	@sh scripts/image.sh
	@sh scripts/postgres.sh
	ZYNC_TEST_IMAGE=1 $(BIN)/pytest -n 0 --timeout 3600 -s tests/deploy/test_image.py

bench: setup
	@sh scripts/postgres.sh
	$(BIN)/python -m bench

# Pins with hashes, and without the hosts they came from: of a checkout, of the image, and of what builds the image.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-annotate --no-header
lock: setup
	$(BIN)/python -m pip install --quiet uv
	$(COMPILE) --extra dev --extra docs pyproject.toml -o requirements.lock
	$(COMPILE) --extra glue --extra iceberg --extra lineage --extra protobuf --extra traces \
		--constraints requirements.lock pyproject.toml -o deploy/image/requirements.lock
	$(COMPILE) --constraints requirements.lock deploy/image/tools.in -o deploy/image/tools.lock

# The image, by whatever builds one here: `make image ENGINE="podman"`.
ENGINE ?= docker
image:
	$(ENGINE) build -f deploy/image/Containerfile -t zync \
		--build-arg VERSION=$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml) \
		--build-arg REVISION=$$(git rev-parse HEAD) .

clean:
	rm -rf $(VENV) .zync site .mypy_cache .ruff_cache .pytest_cache
