#!/usr/bin/env bash
# Starts three shards on this machine, with two tables on each; one of the tables has a
# generator of its own. The first shard has the registry from which all three lease their
# worker IDs. pgbench inserts on all three at once, and then one query looks at all rows
# together.
# Nothing outside a temporary folder changes. KEEP=1 leaves the servers running.
. "$(dirname "$0")/env.sh"

seconds=${SECONDS_OF_LOAD:-5}
shards=3
base_port=${PORT:-54321}

step() { printf '\nstep %s of 5: %s\n' "$1" "$2"; }

finish() {
    local status=$? shard
    if [ -n "${scratch:-}" ] && { [ $status != 0 ] || [ -z "${KEEP:-}" ]; }; then
        for shard in $(seq "$shards"); do
            as_run_user "$bindir/pg_ctl" -D "$scratch/shard$shard" -m immediate stop \
                >/dev/null 2>&1 || true
        done
        rm -rf "$scratch"
    fi
    [ $status = 0 ] || printf 'the demo failed\n' >&2
}
trap finish EXIT

sql() { "$bindir/psql" -X -q -v ON_ERROR_STOP=1 -h "$scratch" -p $((base_port + $1)) -U demo postgres "${@:2}"; }

# Waits until a shard has a worker ID, and sets it as worker.
lease_of() {
    local attempt
    for attempt in $(seq 300); do
        worker=$(sql "$1" -At -c 'SELECT worker_id FROM snowflake_worker')
        [ -z "$worker" ] || return 0
        sleep 0.1
    done
    die "shard $1 has no worker ID: $(sql "$1" -At -c 'SELECT last_error FROM snowflake_worker')"
}

step 1 "looking for PostgreSQL and what a build needs"
need_packages
printf 'PostgreSQL %s at %s\n' "$pg" "$("$pg_config" --bindir)"

step 2 "building the extension, about 2 minutes the first time"
build

step 3 "starting $shards shards from a private copy of PostgreSQL, a few seconds"
make_scratch
copy_installation "$scratch/pg"
install_into "$pkglibdir" "$sharedir"
cd "$scratch"
workers=()
for shard in $(seq "$shards"); do
    as_run_user "$bindir/initdb" -D "$scratch/shard$shard" -U demo -A trust -E UTF8 --locale=C >/dev/null
    as_run_user tee -a "$scratch/shard$shard/postgresql.conf" >/dev/null <<END
shared_preload_libraries = 'snowflake_id'
snowflake_id.registry = 'host=$scratch port=$((base_port + 1)) dbname=postgres user=demo'
snowflake_id.pool = 'shards'
port = $((base_port + shard))
unix_socket_directories = '$scratch'
listen_addresses = ''
timezone = 'UTC'
END
    as_run_user "$bindir/pg_ctl" -D "$scratch/shard$shard" -l "$scratch/shard$shard.log" -w start >/dev/null ||
        { tail "$scratch/shard$shard.log" >&2; exit 1; }
    sql "$shard" -c 'CREATE EXTENSION snowflake_id'
    # The first IDs of a pool are of times that are max_ahead after its making.
    [ "$shard" != 1 ] || sql 1 <<'END'
SELECT snowflake_create_pool('shards', int8range(1, 1024), max_ahead => '1 s') \g /dev/null
END
    lease_of "$shard"
    workers+=("$worker")
    sql "$shard" <<'END'
CREATE TABLE orders (
    id   bigint PRIMARY KEY DEFAULT snowflake_nextval(),
    item text NOT NULL,
    made timestamptz NOT NULL DEFAULT clock_timestamp()
);
SET client_min_messages = warning;
SELECT snowflake_create_generator('message_ids', 'preset=discord') \g /dev/null
CREATE TABLE messages (
    id   bigint PRIMARY KEY DEFAULT snowflake_nextval('message_ids'),
    text text NOT NULL
);
END
done
echo "each with a table orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval())"
echo "and, in Discord's layout, messages (id ... DEFAULT snowflake_nextval('message_ids'))"
echo "and a worker ID that it leases from a pool on shard 1: ${workers[*]}"

step 4 "pgbench: 4 clients on each shard insert for $seconds seconds, all at once"
printf '%s\n' "INSERT INTO orders (item) VALUES ('item ' || random());" \
    "INSERT INTO messages (text) VALUES ('hello');" > "$scratch/insert.sql"
chmod 644 "$scratch/insert.sql"
running=()
for shard in $(seq "$shards"); do
    "$bindir/pgbench" -n -c 4 -j 1 -T "$seconds" -f "$scratch/insert.sql" \
        -h "$scratch" -p $((base_port + shard)) -U demo postgres > "$scratch/pgbench$shard" 2>&1 &
    running+=($!)
done
for one in "${running[@]}"; do wait "$one" || { cat "$scratch"/pgbench* >&2; exit 1; }; done
grep -h '^tps' "$scratch"/pgbench*

step 5 "all rows of all shards, seen from shard 1 through postgres_fdw"
sql 1 <<END
CREATE EXTENSION postgres_fdw;
$(for shard in $(seq "$shards"); do cat <<SHARD
CREATE SERVER shard$shard FOREIGN DATA WRAPPER postgres_fdw
    OPTIONS (host '$scratch', port '$((base_port + shard))', dbname 'postgres', fetch_size '10000');
CREATE USER MAPPING FOR demo SERVER shard$shard OPTIONS (user 'demo', password_required 'false');
CREATE FOREIGN TABLE shard${shard}_orders (id bigint, item text, made timestamptz) SERVER shard$shard
    OPTIONS (table_name 'orders');
CREATE FOREIGN TABLE shard${shard}_messages (id bigint, text text) SERVER shard$shard
    OPTIONS (table_name 'messages');
SHARD
done)
CREATE VIEW every_order AS
$(for shard in $(seq "$shards"); do
    [ "$shard" = 1 ] || printf ' UNION ALL '
    printf 'SELECT %s AS shard, id, item, made FROM shard%s_orders' "$shard" "$shard"
done);
CREATE VIEW every_message AS
$(for shard in $(seq "$shards"); do
    [ "$shard" = 1 ] || printf ' UNION ALL '
    printf 'SELECT %s AS shard, id FROM shard%s_messages' "$shard" "$shard"
done);
\echo
\echo -- How many rows, and is any ID there twice?
SELECT count(*) AS rows, count(*) - count(DISTINCT id) AS duplicates FROM every_order;
\echo -- Does the order of IDs follow the time of the rows, over all shards? How far
\echo -- back, at most, a row was made than one that sorts before it:
SELECT max(latest - made) AS at_most
FROM (SELECT made, max(made) OVER (ORDER BY id) AS latest FROM every_order) AS s;
\echo -- What is in an ID? The last one of each shard:
SELECT shard, id, created_at, worker_id, sequence
FROM (SELECT shard, max(id) AS id FROM every_order GROUP BY shard) AS s, snowflake_decode(id)
ORDER BY shard;
\echo -- A range of time is a range of the key. The last second on this shard:
SELECT max(id) AS last FROM orders \gset
ANALYZE orders;
EXPLAIN (COSTS OFF)
SELECT count(*) FROM orders
WHERE id >= snowflake_min_id(snowflake_timestamp(:last) - interval '1 second');
SELECT count(*) AS rows_of_the_last_second FROM orders
WHERE id >= snowflake_min_id(snowflake_timestamp(:last) - interval '1 second');
\echo -- The messages, whose generator writes IDs as Discord does:
SELECT count(*) AS rows, count(*) - count(DISTINCT id) AS duplicates FROM every_message;
SELECT shard, id, created_at, worker_id, fields
FROM (SELECT shard, max(id) AS id FROM every_message GROUP BY shard) AS s,
    snowflake_decode(id, 'message_ids')
ORDER BY shard;
\echo -- An ID from elsewhere, a tweet of 2022, explained:
\pset tuples_only
\pset format unaligned
SELECT snowflake_explain_as(1541815603606036480, 'preset=twitter');
END
duplicates=$(sql 1 -At -c 'SELECT count(*) - count(DISTINCT id) FROM every_order')
[ "$duplicates" = 0 ] || die "$duplicates duplicates"
duplicates=$(sql 1 -At -c 'SELECT count(*) - count(DISTINCT id) FROM every_message')
[ "$duplicates" = 0 ] || die "$duplicates duplicates"

if [ -n "${KEEP:-}" ]; then
    printf 'The shards go on running. Connect to the first with\n\n    %s -h %s -p %s -U demo postgres\n\n' \
        "$bindir/psql" "$scratch" $((base_port + 1))
    printf 'and stop them and clean up with\n\n    '
    # The first one is last: to it, the others return their worker IDs.
    for shard in $(seq "$shards" -1 1); do
        if is_root; then printf 'runuser -u %s -- ' "$run_user"; fi
        printf '%s -D %s -m fast stop; ' "$bindir/pg_ctl" "$scratch/shard$shard"
    done
    printf 'rm -rf %s\n' "$scratch"
else
    echo "Stopped and cleaned up. KEEP=1 make demo leaves the shards running."
fi
