# make          prints this list; in an unpacked archive, it builds
# make demo     inserts into three shards at once, moves a clock, loses a server, draws a page of it
# make test     all tests, on PostgreSQL 15 or PG=18
# make test-all   all tests on 15, most on 16, 17 and 18, and pg_upgrade between them
# make test-upgrade   pg_upgrade from PostgreSQL 15 to 18; FROM=16 PG=17
# make test-citus     clusters of Citus; CITUS=folder into which it was installed
# make test-patroni   a cluster of Patroni, with leases and with fixed worker IDs; 15 minutes
# make test-demo      the demo, and its page in a browser (Chromium)
# make test-monitoring   the queries, alerts and dashboard of docs/monitoring, by Prometheus and its exporter
# make torture  random faults, every ID checked; SEED=.. MINUTES=.. EPISODE=.. MOOD=leases
# make test-core  PostgreSQL's own regression and isolation tests, with the library preloaded
# make test-orms  the recipes of docs/orms.md, with packages of PyPI, npm, crates.io, Debian; ORMS=..
# make fuzz     random texts as labels; MINUTES=..
# make fuzz-sql random queries on a server with assertions; SEED=.., QUERIES=..
# make soak     torture for 15 minutes, then fuzz-args soak for 5; before a release
# make fuzz-args   all functions with odd arguments, as several roles; SEED=.. MINUTES=.. (5)
# make walks    every policy, through longer series of events; DEEPER=..
# make miri     the core's tests on Miri; needs a nightly compiler
# make build, make install   for the server of PG_CONFIG (default: pg_config)
# make installcheck          the regression tests, on that server, while it runs
# make vendor   brings the crates to vendor/, for builds without a network
# make packages (or make deb)  Debian packages for PostgreSQL 15 to 18; VERSIONS="15 17"
# make dist     the archive for PGXN, of the last commit
# make sbom     the crates that are in the library, in CycloneDX's format
# make test-packages  installs, upgrades and removes the packages; builds from the archive
# make image    the files of an image for CloudNativePG's extension volumes, PostgreSQL 18
# make docs     draws docs/rollback.svg from what a server issues
# make bench    what an ID costs, beside its neighbours; PG=18, PLOT=file.svg, QUICK=1, SECTIONS=..
# make bench-contention     many cores on one word of memory, measured here and modelled
# make bench-compare  what keys cost and when they repeat, beside other extensions; PEERS=folders, QUICK=1
# make bench-instructions   instructions per ID, under valgrind
# make bench-horizon        what snowflake_horizon() takes, with SESSIONS=500 idle ones
# make bench-citus          what the functions and keys cost on Citus; CITUS=folder, QUICK=1
# make bench-convert        how long tables are locked while they are converted in use

SHELL := /bin/bash
PG_CONFIG ?= pg_config
export DESTDIR PKGLIBDIR SHAREDIR

# Who unpacked an archive wants to build; who cloned the repository asks first.
.DEFAULT_GOAL := $(if $(wildcard .git),help,all)

.PHONY: all needs installcheck vendor packages deb dist sbom test-packages test-debs test-dist test-sbom test-all help demo test test-server test-upgrade test-core test-citus test-patroni test-orms test-demo test-monitoring torture fuzz fuzz-sql fuzz-args soak walks miri check-core lint build install image docs bench bench-contention bench-instructions bench-convert bench-compare bench-horizon bench-citus clean

help:
	@sed -n '/^#/!q;s/^# //p' Makefile

demo:
	@tests/demo.sh

test: needs check-core test-server

# The core's tests take minutes: what the others lack is said before.
needs:
	@tests/run needs

test-all:
	@tests/all

# These are all tests but the core's, on PostgreSQL PG.
test-server:
	@tests/run server
	@tests/run pg
	@tests/run schema
	@tests/run regress
	@tests/run tap

# Upgrades from FROM to PG, both with the extension.
test-upgrade:
	@tests/run upgrade

# Clusters of Citus, which is installed, or in the folder CITUS.
test-citus:
	@tests/run citus

# Clusters of Patroni, with etcd.
test-patroni:
	@tests/run patroni

test-demo:
	@tests/run demo

test-monitoring:
	@tests/run monitoring

torture:
	@tests/run torture

# The core's tests need no PostgreSQL.
check-core:
	@tests/run core

test-core:
	@tests/run suites

# Not part of `test`: it needs the packages that it tests.
test-orms:
	@tests/run orms

fuzz:
	@tests/run fuzz

fuzz-sql:
	@tests/run fuzz_sql

fuzz-args:
	@tests/run fuzz_args

soak:
	@$(MAKE) torture MINUTES=15
	@$(MAKE) fuzz-args MINUTES=5

# These walks are longer than check-core's.
walks:
	@tests/run walks

miri:
	@tests/run miri

docs:
	@tests/docs/rollback

bench:
	@tests/bench/run

bench-contention:
	@tests/bench/contention

bench-compare:
	@tests/run compare

bench-instructions:
	@tests/bench/instructions

bench-horizon:
	@tests/bench/horizon

bench-citus:
	@tests/run bench_citus

bench-convert:
	@tests/bench/convert

lint:
	@tests/run lint

all: build

build:
	@tests/run build_for "$(PG_CONFIG)"

install:
	@tests/run install_for "$(PG_CONFIG)"

installcheck:
	@tests/packages/installcheck "$(PG_CONFIG)"

# cargo itself reads .cargo/config.toml.
vendor:
	mkdir -p .cargo
	cargo vendor --locked > .cargo/config.toml

packages deb:
	@tests/packages/debs

dist:
	@tests/packages/dist

sbom:
	@tests/packages/sbom

test-packages: test-debs test-dist test-sbom

test-debs:
	@tests/packages/test_debs

test-dist:
	@tests/packages/test_dist

test-sbom:
	@tests/packages/test_sbom

image:
	@tests/run image

clean:
	cargo clean
