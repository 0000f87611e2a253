# make          prints this list
# make demo     inserts into three shards on this machine at once
# make test     all tests, on PostgreSQL 15 or PG=18
# make test-upgrade   pg_upgrade from PostgreSQL 15 to 18; FROM=16 PG=17
# make test-citus     clusters of Citus; CITUS=folder into which it was installed
# make test-patroni   a cluster of Patroni, with leases and with fixed worker IDs; 15 minutes
# make torture  random faults, every ID checked; SEED=.. MINUTES=.. EPISODE=.. MOOD=leases
# make test-core  PostgreSQL's own regression and isolation tests, with the library preloaded
# make fuzz     random texts as labels; MINUTES=..
# make fuzz-sql random queries on a server with assertions; SEED=.., QUERIES=..
# make walks    every policy, through longer series of events; DEEPER=..
# make miri     the core's tests on Miri; needs a nightly compiler
# make build, make install   for the server of PG_CONFIG (default: pg_config)
# make image    the files of an image for CloudNativePG's extension volumes, PostgreSQL 18
# make docs     draws docs/rollback.svg from what a server issues
# make bench    what an ID costs, beside its neighbours; PG=18, PLOT=file.svg, QUICK=1, SECTIONS=..
# make bench-contention     many cores on one word of memory, measured here and modelled
# make bench-instructions   instructions per ID, under valgrind

SHELL := /bin/bash
PG_CONFIG ?= pg_config

.PHONY: help demo test test-server test-upgrade test-core test-citus test-patroni torture fuzz fuzz-sql walks miri check-core lint build install image docs bench bench-contention bench-instructions clean

help:
	@sed -n '/^#/!q;s/^# //p' Makefile

demo:
	@tests/demo.sh

test: check-core test-server

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

torture:
	@tests/run torture

# The core's tests need no PostgreSQL.
check-core:
	@tests/run core

test-core:
	@tests/run suites

fuzz:
	@tests/run fuzz

fuzz-sql:
	@tests/run fuzz_sql

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

bench-instructions:
	@tests/bench/instructions

lint:
	@tests/run lint

build:
	@tests/run build_for "$(PG_CONFIG)"

install:
	@tests/run install_for "$(PG_CONFIG)"

image:
	@tests/run image

clean:
	cargo clean
