# tests/orms/tools.sh pgpool|pglogical|slony|bucardo: what docs/orms.md says of these tools. Run by tests/run orms,
# with servers at PGPORT and SOUTH, and Pgpool-II before both at POOL.
. "$(dirname "$0")/checks.sh"
fail() { printf '%s\n' "$1"; tail -n 20 "$SOUTH_LOG"; exit 1; }
sql() { "$bindir/psql" -XqAt -v ON_ERROR_STOP=1 -p "$1" -c "$2"; }
both() { sql "$PGPORT" "$1"; sql "$SOUTH" "$1"; }
holds() { [ "$(sql "$1" "SELECT $2")" = t ]; }
# add PORT TITLE: adds a book.
add() { sql "$1" "INSERT INTO books (title) VALUES ('$2')"; }

PGDATABASE=postgres sql "$SOUTH" "CREATE DATABASE $PGDATABASE"
sql "$SOUTH" 'CREATE EXTENSION snowflake_id'
both 'CREATE TABLE books (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), title text); CREATE TABLE counted (id serial PRIMARY KEY)'
north="host=127.0.0.1 port=$PGPORT user=$PGUSER dbname=$PGDATABASE" south="host=127.0.0.1 port=$SOUTH user=$PGUSER dbname=$PGDATABASE"
workers="SELECT string_agg(DISTINCT (snowflake_decode(id)).worker_id::text, ' ') FROM books"

# A statement that is sent to both servers gets another ID on each, unless it has one.
pgpool() {
    add "$POOL" one
    same 'worker IDs of the row, on each server' "$(both "$workers")" $'7\n8'
    sql "$POOL" 'TRUNCATE books'
    id=$(sql "$POOL" 'SELECT snowflake_nextval_batch(1)')
    sql "$POOL" "INSERT INTO books VALUES ($id, 'two')"
    same 'the row of an ID that was taken first' "$(both 'SELECT id FROM books')" "$id"$'\n'"$id"
}

# The mark of a generator is written over at a server that has not used it since its start.
pglogical() {
    # The last minor versions allow output plugins by name.
    if [ "$(sql "$PGPORT" "SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries'")" = 1 ]; then
        sql "$PGPORT" "ALTER SYSTEM SET output_plugin_libraries = 'pglogical_output'"
        sql "$PGPORT" 'SELECT pg_reload_conf()' > /dev/null
    fi
    sql "$PGPORT" "CREATE EXTENSION pglogical; SELECT pglogical.create_node('north', '$north')" > /dev/null
    sql "$SOUTH" "CREATE EXTENSION pglogical; SELECT pglogical.create_node('south', '$south')" > /dev/null
    sql "$PGPORT" "SELECT pglogical.replication_set_add_all_tables('default', '{public}'), pglogical.replication_set_add_all_sequences('default', '{public}')" > /dev/null
    set="SELECT string_agg(set_seqoid::text, ' ' ORDER BY set_seqoid::text) FROM pglogical.replication_set_seq"
    same 'sequences that the set takes' "$(sql "$PGPORT" "$set")" 'counted_id_seq snowflake_default'
    add "$PGPORT" north
    sql "$SOUTH" "SELECT pglogical.create_subscription('s', '$north')" > /dev/null
    until_true 'the row is copied' holds "$SOUTH" "(SELECT count(*) = 1 FROM books) AND status = 'replicating' FROM pglogical.show_subscription_status()"
    sql "$PGPORT" "SELECT pglogical.synchronize_sequence('snowflake_default')" > /dev/null
    until_true 'the mark is written over' holds "$SOUTH" '(SELECT log_cnt FROM snowflake_default) = 0'
    add "$SOUTH" south
    same 'what the first ID after a start skips' "$(grep -o 'snowflake_default skips 10... ms, since this server did not write its mark' "$SOUTH_LOG" | cut -d ' ' -f 2,4-)" \
        'skips ms, since this server did not write its mark'
    same 'worker IDs of all rows' "$(sql "$SOUTH" "$workers")" '7 8'
    sql "$PGPORT" "SELECT pglogical.replication_set_remove_sequence('default', generator) FROM snowflake_generators" > /dev/null
    same 'sequences without generators' "$(sql "$PGPORT" "$set")" 'counted_id_seq'
    sql "$SOUTH" "SELECT pglogical.drop_subscription('s')" > /dev/null
}

# What status says of the generator, once it has issued more IDs.
warned="snowflake_nextval() > 0 AND EXISTS (SELECT FROM snowflake_status() WHERE item = 'generator public.snowflake_default'
    AND detail ~ '^Somebody sets or restarts its sequence, last .* ago. The generator wrote its mark back, and IDs are unique.$')"
set_by_tool='(SELECT log_cnt = 0 FROM snowflake_default)'
put_back='SELECT mark_put_back_at FROM snowflake_generators'

# The tool has copied the first row to the other server, and set the generator of that.
given_north() {
    until_true 'the row is copied, and the mark written over' holds "$SOUTH" "(SELECT count(*) = 1 FROM books) AND $set_by_tool"
    same 'worker ID of the next ID' "$(sql "$SOUTH" 'SELECT (snowflake_decode(snowflake_nextval())).worker_id')" 8
    same 'whether it is 10 s ahead' "$(sql "$SOUTH" "SELECT ahead_by > '9 s' FROM snowflake_generators")" t
    add "$PGPORT" north
}

# same_rows COUNT: on both servers, and their keys have both worker IDs.
same_rows() {
    for port in "$PGPORT" "$SOUTH"; do until_true "$1 rows" holds "$port" "count(*) = $1 FROM books"; done
    same 'worker IDs of all rows' "$(sql "$SOUTH" "$workers")" '7 8'
    [ "$(sql "$PGPORT" 'SELECT * FROM books ORDER BY id')" = "$(sql "$SOUTH" 'SELECT * FROM books ORDER BY id')" ] || fail 'the rows differ'
}

# A set has one origin, to which the other servers' tables are closed.
slony() {
    run_slonik() { slonik <<< "cluster name = shop; node 1 admin conninfo = '$north'; node 2 admin conninfo = '$south'; $1"; }
    trap 'kill $(jobs -p)' EXIT
    run_slonik "init cluster (id = 1, comment = 'north');
        create set (id = 1, origin = 1);
        set add table (set id = 1, origin = 1, id = 1, fully qualified name = 'public.books');
        set add sequence (set id = 1, origin = 1, id = 2, fully qualified name = 'public.snowflake_default');
        store node (id = 2, comment = 'south', event node = 1);
        store path (server = 1, client = 2, conninfo = '$north');
        store path (server = 2, client = 1, conninfo = '$south');"
    slon -s 100 shop "$north" > "$scratch/slon.north" 2>&1 &
    slon -s 100 shop "$south" > "$scratch/slon.south" 2>&1 &
    add "$PGPORT" north
    run_slonik 'subscribe set (id = 1, provider = 1, receiver = 2, forward = yes);'
    given_north
    until_true 'the mark is written over again' holds "$SOUTH" "(SELECT count(*) = 2 FROM books) AND $set_by_tool"
    until_true 'status says so' holds "$SOUTH" "$warned"
    run_slonik 'set drop sequence (origin = 1, id = 2); lock set (id = 1, origin = 1); move set (id = 1, old origin = 1, new origin = 2);'
    until_true 'the set is moved' holds "$SOUTH" '(SELECT set_origin = 2 FROM _shop.sl_set)'
    left_out=$(sql "$SOUTH" "$put_back")
    add "$SOUTH" south
    same_rows 3
    add "$SOUTH" south
    same_rows 4
    same 'when the mark was last put back' "$(sql "$SOUTH" "$put_back")" "$left_out"
}

# It sets the sequence to the highest value of all servers, on each.
bucardo() {
    folder=$scratch/bucardo
    mkdir "$folder"
    export HOME=$folder PGBINDIR=$bindir
    run_bucardo() { command bucardo --no-bucardorc --dbhost=127.0.0.1 --dbport="$PGPORT" --piddir="$folder" --logdest="$folder" "$@"; }
    run_bucardo install --batch --dbuser="$PGUSER" --dbname=postgres
    sql "$SOUTH" 'CREATE ROLE bucardo SUPERUSER LOGIN'
    run_bucardo set reason_file="$folder/reason" warning_file="$folder/warning" log_conflict_file="$folder/conflict"
    run_bucardo add db north dbhost=127.0.0.1 dbport="$PGPORT" dbname="$PGDATABASE" dbuser=bucardo
    run_bucardo add db south dbhost=127.0.0.1 dbport="$SOUTH" dbname="$PGDATABASE" dbuser=bucardo
    run_bucardo add table public.books db=north relgroup=shop
    run_bucardo add all sequences db=north relgroup=shop
    run_bucardo add sync shop relgroup=shop dbs=north:source,south:source
    trap 'run_bucardo stop' EXIT
    run_bucardo start
    add "$PGPORT" north
    given_north
    # The other server's IDs are ahead since its start.
    until_true 'status of the first server says that it is set' holds "$PGPORT" "$warned"
    run_bucardo stop
    for _ in $(seq 200); do [ -e "$folder/bucardo.mcp.pid" ] || break; sleep 0.1; done
    run_bucardo remove sequence public.snowflake_default
    run_bucardo start
    for port in "$PGPORT" "$SOUTH"; do add "$port" 'one more'; done
    same_rows 4
    left_out=$(both "$put_back")
    for port in "$PGPORT" "$SOUTH"; do add "$port" 'one more'; done
    same_rows 6
    same 'when the marks were last put back' "$(both "$put_back")" "$left_out"
}

"$1"
