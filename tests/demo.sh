#!/usr/bin/env bash
# Starts three shards on this machine, and a standby of the third. The first shard has the
# registry from which all of them lease their worker IDs. Each has two tables; one of the
# tables has a generator of its own. pgbench inserts on all shards at once. Meanwhile, the
# clock of the second shard is set back, and the third shard is lost and its standby is
# promoted. Then queries look at all rows together, those of the lost server included, and
# a page shows what was measured.
#
# Takes about half a minute after the build. Nothing changes outside a temporary folder, but
# the page: PAGE=FILE, by default demo.html in the build folder. KEEP=1 leaves the servers
# running.

. "$(dirname "$0")/lib.sh"
assertions= PG=$given
trap cleanup EXIT

seconds=9
clients=4
by=2
page=$(realpath -m "${PAGE:-$CARGO_TARGET_DIR/demo.html}")
declare -A port=([shard1]=54322 [shard2]=54323 [shard3]=54324 [standby3]=54325)

step() { printf '\nstep %s of 6: %s\n' "$1" "$2"; }
sql() { "$bindir/psql" -X -q -v ON_ERROR_STOP=1 -p "${port[$1]}" "${@:2}"; }
value() { sql "$1" -At -F ' ' -c "$2"; }
control() { as_run_user "$bindir/pg_ctl" -D "$scratch/$1" -l "$scratch/$1.log" -w "${@:2}" >/dev/null; }
# The time, in seconds.
now() { date +%s.%6N; }
# Waits until so many seconds of the load have passed.
wait_for() { perl -MTime::HiRes=time,sleep -e 'my $left = $ARGV[0] + $ARGV[1] - time; sleep $left if $left > 0' "$begin" "$1"; }
# Notes a fact for the page: its name, and its value.
fact() { printf '%s\t%s\n' "$1" "$2" >> "$scratch/facts"; }

# load SHARD PORTS: inserts until the load is over. As an application does, it connects
# again when it has lost its server, to the one on these ports that takes writes. pgbench
# logs when each transaction ended. Rows have the number of the run and the client, so that
# they can be found in that log.
load() {
    local run=$(($1 * 1000)) left
    while left=$(perl -MTime::HiRes=time -e 'printf "%.0f", $ARGV[0] + $ARGV[1] - time' "$begin" "$seconds") && [ "$left" -ge 1 ]; do
        run=$((run + 1))
        if "$bindir/pgbench" -n -c "$clients" -j 1 -T "$left" -D run=$run -D n=0 -f insert.sql -l --log-prefix="log/$run" \
            "host=$scratch,$scratch port=$2 target_session_attrs=read-write" > "log/$run.out" 2>&1; then
            return
        fi
        sleep 0.05
    done
}

step 1 "looking for PostgreSQL and what a build needs"
need_packages perl:perl
printf 'PostgreSQL %s at %s\n' "$pg" "$("$pg_config" --bindir)"

step 2 "building the extension, about 2 minutes the first time"
build

step 3 "starting 3 shards and a standby from a private copy of PostgreSQL, some seconds"
make_scratch
copy_installation "$scratch/pg"
install_into "$pkglibdir" "$sharedir"
cd "$scratch"
mkdir log
export PGHOST=$scratch PGUSER=$run_user PGDATABASE=postgres
cc -shared -fPIC -O2 -Wall -o clock.so "$top/tests/t/lib/clock.c" -ldl
perl -e 'print pack "q", 0' | as_run_user tee clock >/dev/null
for shard in shard1 shard2 shard3; do
    # The wall clock of the second shard is one that the demo can set.
    preload=
    if [ $shard = shard2 ]; then preload=$scratch/clock.so; fi
    # A generator looks at the clock when half of its reserve is used up: here every half
    # second, and by default every 5 seconds, which a short demo would not show.
    LD_PRELOAD=$preload TORTURE_CLOCK=$scratch/clock new_server "$scratch/$shard" \
        "snowflake_id.registry = 'host=$scratch port=${port[shard1]} dbname=postgres user=$run_user'" \
        "snowflake_id.reserve_ahead = '1 s'" "port = ${port[$shard]}" "unix_socket_directories = '$scratch'" \
        "listen_addresses = ''" "timezone = 'UTC'"
    sql "$shard" -c 'CREATE EXTENSION snowflake_id'
    # The first IDs of a pool are of times that are max_ahead after its making.
    [ $shard != shard1 ] || sql shard1 -c "SELECT snowflake_create_pool(max_ahead => '1 s')" >/dev/null
    for _ in $(seq 300); do
        worker=$(value "$shard" 'SELECT worker_id FROM snowflake_worker')
        [ -z "$worker" ] || break
        sleep 0.1
    done
    [ -n "$worker" ] || die "$shard has no worker ID: $(value "$shard" 'SELECT last_error FROM snowflake_worker')"
    workers+=("$worker")
    fact "${shard}_worker" "$worker"
    sql "$shard" -f "$top/tests/demo/tables.sql"
done
as_run_user "$bindir/pg_basebackup" -p "${port[shard3]}" -D "$scratch/standby3" -R -c fast --no-sync
started+=("$scratch/standby3")
control standby3 -o "-p ${port[standby3]}" start
echo "each with a table orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval())"
echo "and, in Discord's layout, messages (id ... DEFAULT snowflake_nextval('message_ids'))"
echo "and a worker ID that it leases from a pool on shard 1: ${workers[*]}"
echo "The standby leases its own when it is promoted."

step 4 "pgbench: $clients clients on each shard insert for $seconds seconds, all at once"
printf '%s\n' '\set n :n + 1' "INSERT INTO orders (item) VALUES ('order :n of client :client_id in run :run');" \
    "INSERT INTO messages (text) VALUES ('message :n of client :client_id in run :run');" > insert.sql
begin=$(now)
fact begin "$begin"
load 1 "${port[shard1]}" &
load 2 "${port[shard2]}" &
load 3 "${port[shard3]},${port[standby3]}" &

wait_for 1.5
# In place: the server has the file mapped.
fact clock_at "$(perl -MTime::HiRes=time -e 'open my $file, "+<", "clock" or die $!;
    syswrite $file, pack("q", -$ARGV[0] * 1e9); printf "%.6f", time' "$by")"
fact clock_by "$by"
echo "The clock of shard 2 is set back by $by seconds."
wait_for 3.5
fact lost_at "$(now)"
control shard3 -m immediate stop
fact stopped_at "$(now)"
control standby3 promote
fact promoted_at "$(now)"
echo "Shard 3 is lost: its server is stopped as by a crash. Its standby is promoted."
wait
for out in log/{1,2}001.out; do grep -q "^tps" "$out" || { cat "$out" >&2; exit 1; }; done
fact end "$(now)"
grep -h '^tps' log/*.out

step 5 "all rows of all shards, seen from shard 1 through postgres_fdw"
# The lost server is looked at too: it has rows that its standby has not received.
control shard3 -o '-c default_transaction_read_only=on' start
sql shard1 -c 'CREATE EXTENSION postgres_fdw'
for server in "${!port[@]}"; do
    sql shard1 -c "CREATE SCHEMA $server; CREATE SERVER $server FOREIGN DATA WRAPPER postgres_fdw
            OPTIONS (host '$scratch', port '${port[$server]}', dbname 'postgres', fetch_size '10000');
        CREATE USER MAPPING FOR CURRENT_USER SERVER $server OPTIONS (user '$run_user', password_required 'false');
        IMPORT FOREIGN SCHEMA public LIMIT TO (orders, messages) FROM SERVER $server INTO $server"
done
# A row of the lost server that its standby has received is the same row, and counts once.
for table in order message; do
    sql shard1 -c "CREATE TABLE every_$table AS SELECT 'shard1' AS server, * FROM shard1.${table}s
        UNION ALL SELECT 'shard2', * FROM shard2.${table}s UNION ALL SELECT 'standby3', * FROM standby3.${table}s
        UNION ALL SELECT 'shard3', * FROM shard3.${table}s AS lost
            WHERE NOT EXISTS (SELECT FROM standby3.${table}s AS received WHERE received = lost)"
done
sql shard1 -f "$top/tests/demo/rows.sql"
printf -- '-- What the second shard says about its clock:\n'
sql shard2 -c "SELECT generator, issued, clock_rollbacks, largest_rollback, refusals FROM pg_stat_snowflake
    WHERE generator = 'snowflake_default'::regclass"

printf -- '-- And what matters on the server that has taken over, for who has to act:\n'
sql standby3 -c 'SELECT * FROM snowflake_status()'

step 6 "a page of what was measured"
# The times are seconds of the load.
sql shard1 -c "COPY (SELECT server, id, (snowflake_decode(id)).worker_id,
        extract(epoch FROM snowflake_timestamp(id)) - $begin, extract(epoch FROM made) - $begin, item
    FROM every_order ORDER BY id) TO STDOUT" > orders
fact orders "$(value shard1 'SELECT count(*) FROM every_order')"
fact messages "$(value shard1 'SELECT count(*) FROM every_message')"
duplicates=$(value shard1 'SELECT count(*) - count(DISTINCT id) + (SELECT count(*) - count(DISTINCT id) FROM every_message) FROM every_order')
fact duplicates "$duplicates"
fact lost_rows "$(value shard1 "SELECT count(*) + (SELECT count(*) FROM every_message WHERE server = 'shard3')
    FROM every_order WHERE server = 'shard3'")"
fact standby_worker "$(value standby3 'SELECT worker_id FROM snowflake_worker')"
fact rollbacks "$(value shard2 "SELECT clock_rollbacks, extract(epoch FROM largest_rollback)
    FROM pg_stat_snowflake WHERE generator = 'snowflake_default'::regclass")"
fact example "$(value shard1 "SELECT id, created_at, worker_id, sequence, id::bit(64)
    FROM (SELECT max(id) AS id FROM every_order WHERE server = 'standby3') AS s, snowflake_decode(id)")"
fact version "$(value shard1 "SELECT current_setting('server_version') || '	' || extversion FROM pg_extension WHERE extname = 'snowflake_id'")"
fact machine "$(uname -sm), $(nproc) processors"
fact clients "$clients"
control shard3 -m fast stop
mkdir -p "$(dirname "$page")"
perl "$top/tests/demo/page.pl" "$scratch" > page.html
# As the caller, who may not be the owner of the temporary folder.
cat page.html > "$page"
printf 'The IDs over time, the rollback, the failover: open this page in a browser.\n\n    file://%s\n\n' "$page"
[ "$duplicates" = 0 ] || die "$duplicates duplicates"

if [ -n "${KEEP:-}" ]; then
    trap - EXIT
    printf 'The servers go on running. Connect to the first with\n\n    %s -h %s -p %s -U %s postgres\n\n' \
        "$bindir/psql" "$scratch" "${port[shard1]}" "$run_user"
    as=
    if is_root; then as="runuser -u $run_user -- "; fi
    # The others return their worker IDs to the first shard.
    printf 'and stop them and clean up with\n\n    '
    printf "$as$bindir/pg_ctl -D $scratch/%s -m fast stop; " standby3 shard2 shard1
    printf 'rm -rf %s\n' "$scratch"
else
    echo "Stopped and cleaned up. KEEP=1 make demo leaves the servers running."
fi
