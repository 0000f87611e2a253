# make          prints this list; in an unpacked archive, it builds
# make quick    the core's tests but loom's, and formatting; no PostgreSQL needed
# make test     all tests, on PostgreSQL 15 or PG=18
# make test-all   all tests on 15, those of servers on 16 to 19, and pg_upgrade between them
# make test-NAME  arm64, citus, demo, managed, migrations, monitoring, orms, packages, patroni, suites or upgrade: see CONTRIBUTING.md
# make lint     formatting, clippy, and what only some files may do
# make soak     random faults for 15 minutes, then odd arguments for 5; before a release
# make torture  random faults, every ID checked; SEED=.. MINUTES=.. EPISODE=.. MOOD=leases
# make fuzz     random texts as labels; fuzz-args and fuzz-sql: odd arguments, random queries; MINUTES=.. SEED=..
# make bench    what an ID costs, beside its alternatives; bench-NAME: see CONTRIBUTING.md
# make demo     inserts into three shards at once, moves a clock, loses a server, draws a page of it
# make docs     draws docs/rollback.svg from what a server issues
# make build, make install   for the server of PG_CONFIG (default: pg_config)
# make installcheck          the regression tests, on that server, while it runs
# make vendor   brings the crates to vendor/, for builds without a network
# make packages   Debian packages for PostgreSQL 15 to 18; VERSIONS="15 17", or 19
# make source   the source package of Debian, of the last commit, with all crates
# make rpm      the RPM package for PostgreSQL 15 or PG=18, and its source package
# make dist     the archive for PGXN, of the last commit
# make release  all of these that a release has, with checksums; tools/version first
# make sbom     the crates that are in the library, in CycloneDX's format
# make image    the files of an image for CloudNativePG's extension volumes, PostgreSQL 18 or PG=19

SHELL := /bin/bash
PG_CONFIG ?= pg_config
export DESTDIR PKGLIBDIR SHAREDIR

# Who unpacked an archive wants to build; who cloned the repository asks first.
.DEFAULT_GOAL := $(if $(wildcard .git),help,all)

# Each of them is a file in tests/commands.
test_names := citus demo managed migrations monitoring orms patroni suites upgrade
# Each of them is a script in tests/bench.
bench_names := contention convert horizon instructions
package_names := debs source rpm dist sbom version
# test-packages leaves this out: it emulates a server of arm64.
alone_names := arm64

.PHONY: all help quick test test-server test-all test-packages lint check-core walks miri \
    torture soak fuzz fuzz-args fuzz-sql bench bench-citus bench-compare demo docs \
    build install installcheck vendor packages source rpm dist sbom release image clean \
    $(test_names:%=test-%) $(bench_names:%=bench-%) $(package_names:%=test-%) $(alone_names:%=test-%)

help:
	@sed -n '/^#/!q;s/^# //p' Makefile

# Tests

# The walks are longer than check-core's.
quick lint walks miri torture fuzz:
	@tests/run $@

test:
	@tests/run everything

# The core's tests need no PostgreSQL.
check-core:
	@tests/run core

# These are all tests but the core's, on PostgreSQL PG.
test-server:
	@tests/run server
	@tests/run schema
	@tests/run regress
	@tests/run tap
	@tests/run pg

test-all:
	@tests/all

$(test_names:%=test-%): test-%:
	@tests/run $*

test-packages: $(package_names:%=test-%)

$(package_names:%=test-%) $(alone_names:%=test-%): test-%:
	@tests/packages/test_$*

soak:
	@$(MAKE) torture MINUTES=15
	@$(MAKE) fuzz-args MINUTES=5

fuzz-args fuzz-sql: fuzz-%:
	@tests/run fuzz_$*

# Figures and pictures

bench:
	@tests/bench/run

$(bench_names:%=bench-%): bench-%:
	@tests/bench/$*

bench-compare:
	@tests/run compare

bench-citus:
	@tests/run bench_citus

demo:
	@tests/demo.sh

docs:
	@tests/docs/rollback

# Building

all: build

build:
	@tools/build "$(PG_CONFIG)"

install:
	@tools/install "$(PG_CONFIG)"

installcheck:
	@tests/packages/installcheck "$(PG_CONFIG)"

vendor packages source rpm dist sbom release image:
	@tools/$@

clean:
	cargo clean
