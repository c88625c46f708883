# The commands of this repository. `make run` runs the control plane, `make test` is everything that CI runs.

TOOLS := target/tools
CARGO_DENY := $(TOOLS)/bin/cargo-deny
CARGO_DENY_VERSION := 0.20.2

PREFIX ?= /usr/local
DIST := target/dist
BUILT = $(or $(CARGO_TARGET_DIR),target)/packaged/setpoint
ARGS ?=

.PHONY: run demo cluster test exhaust clusters tools bench fmt clean lint deny audit dist pack install put

run: ## build, then run the whole control plane on this machine
	cargo run --release -p setpoint --features profiles -- up $(ARGS)

demo: ## the story of a fleet in a minute: a bad firmware caught and taken back, its fix rolled out, while parts are killed
	cargo build --release -p setpoint
	xtask/demo/fleet.sh

cluster: ## three members of etcd, two servers, two managers of controllers and two schedulers on this machine, until Ctrl-C
	xtask/tools/etcd.sh
	cargo build --release -p setpoint
	xtask/cluster/local.sh

test: lint deny tools ## everything that CI runs
	cargo test --workspace

tools: ## the real clients that tests use, by package name
	xtask/tools/kubectl.sh
	xtask/tools/go_clients.sh
	xtask/tools/etcd.sh
	xtask/tools/python.sh
	xtask/tools/node.sh

exhaust: ## every fault of every scenario of the controllers; takes long
	SETPOINT_ALL_FAULTS=1 cargo test --release -p setpoint-controllers --test scenarios
	SETPOINT_ALL_FAULTS=1 cargo test --release -p setpoint-scheduler --test faults
	SETPOINT_ALL_FAULTS=1 cargo test --release -p setpoint-fleet --test scenarios

clusters: ## ten thousand random clusters, on which the scheduler has to agree with a slow and obvious one
	SETPOINT_CLUSTERS=10000 cargo test --release -p setpoint-scheduler --lib model

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

deny: $(CARGO_DENY) ## licences, sources and duplicate versions of what we depend on
	$(CARGO_DENY) check bans licenses sources

audit: $(CARGO_DENY) ## known advisories; fetches the advisory database
	$(CARGO_DENY) check advisories

bench: ## all benchmarks, one line of figures each
	xtask/tools/etcd.sh
	cargo bench -p setpoint-store --bench store
	cargo bench -p setpoint-schema --bench cel
	cargo bench -p setpoint-apiserver --bench calls
	cargo bench -p setpoint-runtime --bench runtime
	cargo bench -p setpoint-controllers --bench collector
	cargo bench -p setpoint-scheduler --bench scheduler
	cargo bench -p setpoint-controllers --bench workloads
	cargo bench -p setpoint-fleet --bench decisions
	cargo bench -p setpoint-testkit --bench kit
	cargo bench -p setpoint --bench api
	cargo bench -p setpoint --bench etcd
	cargo bench -p setpoint --bench access
	cargo bench -p setpoint --bench cluster
	cargo bench -p setpoint --bench fleet

dist: ## stripped binaries, that of vehicles static, with checksums, systemd unit, completions and manual pages, in target/dist
	cargo build --profile packaged -p setpoint
	$(MAKE) pack AGENT="$$(xtask/dist/agent.sh)"

pack: ## the same from binaries that are there: BUILT, and AGENT if it is wanted
	rm -rf $(DIST) && mkdir -p $(DIST)/bin $(DIST)/completions $(DIST)/man $(DIST)/systemd
	cp "$(BUILT)" $(DIST)/bin/setpoint
	sed 's#@PREFIX@#$(PREFIX)#' xtask/dist/setpoint.service.in > $(DIST)/systemd/setpoint.service
	$(if $(AGENT),cp "$(AGENT)" $(DIST)/bin/setpoint-edge-agent)
	$(DIST)/bin/setpoint completion bash > $(DIST)/completions/setpoint.bash
	$(DIST)/bin/setpoint completion zsh > $(DIST)/completions/_setpoint
	$(DIST)/bin/setpoint completion fish > $(DIST)/completions/setpoint.fish
	$(DIST)/bin/setpoint manual $(DIST)/man
	cd $(DIST) && find . -type f ! -name SHA256SUMS | sort | xargs sha256sum > SHA256SUMS
	@ls -l $(DIST)/bin

install: dist ## puts it under PREFIX (/usr/local unless said otherwise)
	$(MAKE) put

put: ## the same with what `make pack` has made
	install -D -m 755 $(DIST)/bin/setpoint $(DESTDIR)$(PREFIX)/bin/setpoint
	$(if $(wildcard $(DIST)/bin/setpoint-edge-agent),install -D -m 755 $(DIST)/bin/setpoint-edge-agent $(DESTDIR)$(PREFIX)/bin/setpoint-edge-agent)
	install -D -m 644 $(DIST)/completions/setpoint.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/setpoint
	install -D -m 644 $(DIST)/completions/_setpoint $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_setpoint
	install -D -m 644 $(DIST)/completions/setpoint.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/setpoint.fish
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 && install -m 644 $(DIST)/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	install -D -m 644 $(DIST)/systemd/setpoint.service $(DESTDIR)$(PREFIX)/lib/systemd/system/setpoint.service

fmt:
	cargo fmt --all

clean:
	cargo clean

$(CARGO_DENY):
	cargo install --debug --locked --root $(TOOLS) --version $(CARGO_DENY_VERSION) cargo-deny
