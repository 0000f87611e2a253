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

# Nobody waits for the compiler to optimize what runs for half a minute.
profile=servers
. "$(dirname "$0")/../tools/env.sh"

seconds=${SECONDS_OF_LOAD:-9}
clock_set_back_at=1.5
by=2
lost_at=3.5
clients=4
base_port=${PORT:-54321}
page=${PAGE:-$CARGO_TARGET_DIR/demo.html}
if [ "${page#/}" = "$page" ]; then page=$PWD/$page; fi

# The servers, in the order in which they are stopped: to the first shard, the others
# return their worker IDs. Their ports follow base_port.
servers=(standby3 shard3 shard2 shard1)
port_of() {
    case $1 in
    standby3) echo $((base_port + 4)) ;;
    *) echo $((base_port + ${1#shard})) ;;
    esac
}

step() { printf '\nstep %s of 6: %s\n' "$1" "$2"; }

finish() {
    local status=$? server
    if [ -n "${scratch:-}" ] && { [ $status != 0 ] || [ -z "${KEEP:-}" ]; }; then
        for server in "${servers[@]}"; do control "$server" -m immediate stop >/dev/null 2>&1 || true; done
        rm -rf "$scratch"
    fi
    [ $status = 0 ] || printf 'the demo failed\n' >&2
}
trap finish EXIT

sql() { "$bindir/psql" -X -q -v ON_ERROR_STOP=1 -h "$scratch" -p "$(port_of "$1")" -U demo postgres "${@:2}"; }
control() { as_run_user "$bindir/pg_ctl" -D "$scratch/$1" "${@:2}"; }

# start SERVER [OPTIONS]: the wall clock of the second shard is one that the demo can set.
start() {
    local with=()
    if [ -n "$settable_clock" ] && [ "$1" = shard2 ]; then
        with=(env LD_PRELOAD="$scratch/clock.so" TORTURE_CLOCK="$scratch/clock")
    fi
    as_run_user "${with[@]}" "$bindir/pg_ctl" -D "$scratch/$1" -l "$scratch/$1.log" -w "${@:2}" start >/dev/null ||
        { tail "$scratch/$1.log" >&2; exit 1; }
}

# The time, in seconds.
now() { perl -MTime::HiRes=time -e 'printf "%.6f\n", time'; }
# Waits until so many seconds of the load have passed.
wait_for() { perl -MTime::HiRes=time,sleep -e 'my $left = $ARGV[0] + $ARGV[1] - time; sleep $left if $left > 0' "$begin" "$1"; }
# Notes a fact for the page: its name, and its value.
fact() { printf '%s\t%s\n' "$1" "$2" >> "$scratch/facts"; }

# Waits until a server has a worker ID, and sets it as worker.
lease_of() {
    local attempt
    for attempt in $(seq 300); do
        worker=$(sql "$1" -At -c 'SELECT worker_id FROM snowflake_worker')
        [ -z "$worker" ] || return 0
        sleep 0.1
    done
    die "$1 has no worker ID: $(sql "$1" -At -c 'SELECT last_error FROM snowflake_worker')"
}

# load SHARD PORTS: inserts until the load is over. As an application does, it connects
# again when it has lost its server, to the one on these ports that takes writes. pgbench
# logs when each transaction ended. Rows have the number of the run and the client, so that
# they can be found in that log.
load() {
    local attempt=0 left hosts=$scratch
    [ "${2%,*}" = "$2" ] || hosts=$scratch,$scratch
    while left=$(perl -MTime::HiRes=time -e 'printf "%.0f", $ARGV[0] - time' "$(perl -e 'print $ARGV[0] + $ARGV[1]' "$begin" "$seconds")") && [ "$left" -ge 1 ]; do
        attempt=$((attempt + 1))
        local run=$(($1 * 1000 + attempt))
        if "$bindir/pgbench" -n -c "$clients" -j 1 -T "$left" -D run=$run -D n=0 -f "$scratch/insert.sql" \
            -l --log-prefix="$scratch/log/$run" "host=$hosts port=$2 user=demo dbname=postgres target_session_attrs=read-write" \
            > "$scratch/log/$run.out" 2>&1; then
            return 0
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
# Only Linux puts a library under the clock in this way.
settable_clock=
if [ "$(uname)" = Linux ]; then
    settable_clock=1
    cc -shared -fPIC -O2 -Wall -o clock.so "$top/tests/t/lib/clock.c" -ldl
    perl -e 'print pack "q", 0' > clock
    chmod 644 clock
fi
workers=()
for shard in shard1 shard2 shard3; do
    as_run_user "$bindir/initdb" -D "$scratch/$shard" -U demo -A trust -E UTF8 --locale=C --no-sync >/dev/null
    # A generator looks at the clock when half of its reserve is used up: here every half
    # second, and by default every 5 seconds, which a short demo would not show.
    as_run_user tee -a "$scratch/$shard/postgresql.conf" >/dev/null <<END
shared_preload_libraries = 'snowflake_id'
snowflake_id.registry = 'host=$scratch port=$(port_of shard1) dbname=postgres user=demo'
snowflake_id.reserve_ahead = '1 s'
port = $(port_of "$shard")
unix_socket_directories = '$scratch'
listen_addresses = ''
timezone = 'UTC'
END
    start "$shard"
    sql "$shard" -c 'CREATE EXTENSION snowflake_id'
    # The first IDs of a pool are of times that are max_ahead after its making.
    [ "$shard" != shard1 ] || sql shard1 <<'END'
SELECT snowflake_create_pool(max_ahead => '1 s') \g /dev/null
END
    lease_of "$shard"
    workers+=("$worker")
    fact "${shard}_worker" "$worker"
    sql "$shard" -f "$top/tests/demo/tables.sql"
done
as_run_user "$bindir/pg_basebackup" -h "$scratch" -p "$(port_of shard3)" -U demo -D "$scratch/standby3" -R -c fast --no-sync
printf 'port = %s\n' "$(port_of standby3)" | as_run_user tee -a "$scratch/standby3/postgresql.conf" >/dev/null
start standby3
echo "each with a table orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval())"
echo "and, in Discord's layout, messages (id ... DEFAULT snowflake_nextval('message_ids'))"
echo "and a worker ID that it leases from a pool on shard 1: ${workers[*]}"
echo "The standby leases its own when it is promoted."

step 4 "pgbench: $clients clients on each shard insert for $seconds seconds, all at once"
cat > "$scratch/insert.sql" <<'END'
\set n :n + 1
INSERT INTO orders (item) VALUES ('order :n of client :client_id in run :run');
INSERT INTO messages (text) VALUES ('message :n of client :client_id in run :run');
END
chmod 644 "$scratch/insert.sql"
begin=$(now)
fact begin "$begin"
running=()
load 1 "$(port_of shard1)" & running+=($!)
load 2 "$(port_of shard2)" & running+=($!)
load 3 "$(port_of shard3),$(port_of standby3)" & running+=($!)

wait_for "$clock_set_back_at"
if [ -n "$settable_clock" ]; then
    # In place: the server has the file mapped.
    fact clock_at "$(perl -MTime::HiRes=time -e 'open my $file, "+<", $ARGV[0] or die $!;
        syswrite $file, pack("q", -$ARGV[1] * 1e9); printf "%.6f", time' "$scratch/clock" "$by")"
    fact clock_by "$by"
    echo "The clock of shard 2 is set back by $by seconds."
else
    echo "The clock of shard 2 is left alone: a program's clock can be set on Linux only."
fi
wait_for "$lost_at"
fact lost_at "$(now)"
control shard3 -m immediate stop >/dev/null
fact stopped_at "$(now)"
control standby3 -w promote >/dev/null
fact promoted_at "$(now)"
echo "Shard 3 is lost: its server is stopped as by a crash. Its standby is promoted."
for one in "${running[@]}"; do wait "$one"; done
for shard in 1 2; do
    grep -q '^tps' "$scratch/log/${shard}001.out" || { cat "$scratch/log/${shard}001.out" >&2; exit 1; }
done
fact end "$(now)"
grep -h '^tps' "$scratch"/log/*.out

step 5 "all rows of all shards, seen from shard 1 through postgres_fdw"
# The lost server is looked at too: it has rows that its standby has not received.
start shard3 -o '-c default_transaction_read_only=on'
# foreign SERVER: its tables, in a schema of that name.
foreign() {
    cat <<END
CREATE SCHEMA $1;
CREATE SERVER $1 FOREIGN DATA WRAPPER postgres_fdw
    OPTIONS (host '$scratch', port '$(port_of "$1")', dbname 'postgres', fetch_size '10000');
CREATE USER MAPPING FOR demo SERVER $1 OPTIONS (user 'demo', password_required 'false');
IMPORT FOREIGN SCHEMA public LIMIT TO (orders, messages) FROM SERVER $1 INTO $1;
END
}
# every TABLE COLUMNS: all rows of all shards. A row of the lost server that its standby
# has received is the same row, and counts once.
every() {
    cat <<END
SELECT 'shard1' AS server, * FROM shard1.$1
UNION ALL SELECT 'shard2', * FROM shard2.$1
UNION ALL SELECT 'standby3', * FROM standby3.$1
UNION ALL SELECT 'shard3', * FROM shard3.$1 AS lost
    WHERE NOT EXISTS (SELECT FROM standby3.$1 AS received WHERE received = lost)
END
}
sql shard1 <<END
CREATE EXTENSION postgres_fdw;
$(for server in "${servers[@]}"; do foreign "$server"; done)
CREATE TABLE every_order AS
$(every orders);
CREATE TABLE every_message AS
$(every messages);
\i '$top/tests/demo/rows.sql'
END
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
fact orders "$(sql shard1 -At -c 'SELECT count(*) FROM every_order')"
fact messages "$(sql shard1 -At -c 'SELECT count(*) FROM every_message')"
duplicates=$(sql shard1 -At -c 'SELECT count(*) - count(DISTINCT id) + (SELECT count(*) - count(DISTINCT id) FROM every_message) FROM every_order')
fact duplicates "$duplicates"
fact lost_rows "$(sql shard1 -At -c "SELECT count(*) + (SELECT count(*) FROM every_message WHERE server = 'shard3')
    FROM every_order WHERE server = 'shard3'")"
fact standby_worker "$(sql standby3 -At -c 'SELECT worker_id FROM snowflake_worker')"
fact rollbacks "$(sql shard2 -At -c "SELECT clock_rollbacks || ' ' || extract(epoch FROM largest_rollback)
    FROM pg_stat_snowflake WHERE generator = 'snowflake_default'::regclass")"
fact example "$(sql shard1 -At -F ' ' -c "SELECT id, created_at, worker_id, sequence, id::bit(64)
    FROM (SELECT max(id) AS id FROM every_order WHERE server = 'standby3') AS s, snowflake_decode(id)")"
fact version "$(sql shard1 -At -c "SELECT current_setting('server_version') || '	' || extversion FROM pg_extension WHERE extname = 'snowflake_id'")"
fact machine "$(uname -sm), $(getconf _NPROCESSORS_ONLN) processors"
fact clients "$clients"
control shard3 -m fast stop >/dev/null
mkdir -p "$(dirname "$page")"
perl "$top/tests/demo/page.pl" "$scratch" > page.html
# As the caller, who may not be the owner of the temporary folder.
cat page.html > "$page"
printf 'The IDs over time, the rollback, the failover: open this page in a browser.\n\n    file://%s\n\n' "$page"
[ "$duplicates" = 0 ] || die "$duplicates duplicates"

if [ -n "${KEEP:-}" ]; then
    printf 'The servers go on running. Connect to the first with\n\n    %s -h %s -p %s -U demo postgres\n\n' \
        "$bindir/psql" "$scratch" "$(port_of shard1)"
    printf 'and stop them and clean up with\n\n    '
    for server in standby3 shard2 shard1; do
        if is_root; then printf 'runuser -u %s -- ' "$run_user"; fi
        printf '%s -D %s -m fast stop; ' "$bindir/pg_ctl" "$scratch/$server"
    done
    printf 'rm -rf %s\n' "$scratch"
else
    echo "Stopped and cleaned up. KEEP=1 make demo leaves the servers running."
fi
