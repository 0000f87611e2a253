# tests/orms/tools.sh pgpool|pglogical: what docs/orms.md says of these tools. Run by tests/run orms,
# with servers at PGPORT and SOUTH, and Pgpool-II before both at POOL.
set -euo pipefail
sql() { "$bindir/psql" -XqAt -v ON_ERROR_STOP=1 -p "$1" -c "$2"; }

# same WHAT GOT EXPECTED
same() {
    printf '  %s: %s\n' "$1" "$2"
    [ "$2" = "$3" ] || exit 1
}

# until_true WHAT PORT CONDITION
until_true() {
    for _ in $(seq 300); do
        if [ "$(sql "$2" "SELECT $3")" = t ]; then return; fi
        sleep 0.1
    done
    echo "not within 30 s: $1"
    tail -n 20 "$SOUTH_LOG"
    exit 1
}

PGDATABASE=postgres sql "$SOUTH" "CREATE DATABASE $PGDATABASE"
sql "$SOUTH" 'CREATE EXTENSION snowflake_id'
for port in "$PGPORT" "$SOUTH"; do
    sql "$port" 'CREATE TABLE books (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), title text); CREATE TABLE counted (id serial PRIMARY KEY)'
done
workers="SELECT string_agg(DISTINCT (snowflake_decode(id)).worker_id::text, ' ') FROM books"

# A statement that is sent to both servers gets another ID on each, unless it has one.
pgpool() {
    sql "$POOL" "INSERT INTO books (title) VALUES ('one')"
    same 'worker IDs of the row, on each server' "$(sql "$PGPORT" "$workers") and $(sql "$SOUTH" "$workers")" '7 and 8'
    sql "$POOL" 'TRUNCATE books'
    id=$(sql "$POOL" 'SELECT snowflake_nextval_batch(1)')
    sql "$POOL" "INSERT INTO books VALUES ($id, 'two')"
    same 'the row of an ID that was taken first' "$(sql "$PGPORT" 'SELECT id FROM books') and $(sql "$SOUTH" 'SELECT id FROM books')" "$id and $id"
}

# The mark of a generator is written over at a server that has not used it since its start.
pglogical() {
    # The last minor versions allow output plugins by name.
    if [ "$(sql "$PGPORT" "SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries'")" = 1 ]; then
        sql "$PGPORT" "ALTER SYSTEM SET output_plugin_libraries = 'pglogical_output'"
        sql "$PGPORT" 'SELECT pg_reload_conf()' > /dev/null
    fi
    for port in "$PGPORT" "$SOUTH"; do
        sql "$port" "CREATE EXTENSION pglogical; SELECT pglogical.create_node('n$port', 'host=127.0.0.1 port=$port user=$PGUSER dbname=$PGDATABASE')" > /dev/null
    done
    sql "$PGPORT" "SELECT pglogical.replication_set_add_all_tables('default', '{public}'), pglogical.replication_set_add_all_sequences('default', '{public}')" > /dev/null
    set="SELECT string_agg(set_seqoid::text, ' ' ORDER BY set_seqoid::text) FROM pglogical.replication_set_seq"
    same 'sequences that the set takes' "$(sql "$PGPORT" "$set")" 'counted_id_seq snowflake_default'
    sql "$PGPORT" "INSERT INTO books (title) VALUES ('north')"
    sql "$SOUTH" "SELECT pglogical.create_subscription('s', 'host=127.0.0.1 port=$PGPORT user=$PGUSER dbname=$PGDATABASE')" > /dev/null
    until_true 'the row is copied' "$SOUTH" "(SELECT count(*) = 1 FROM books) AND status = 'replicating' FROM pglogical.show_subscription_status()"
    sql "$PGPORT" "SELECT pglogical.synchronize_sequence('snowflake_default')" > /dev/null
    until_true 'the mark is written over' "$SOUTH" '(SELECT log_cnt FROM snowflake_default) = 0'
    sql "$SOUTH" "INSERT INTO books (title) VALUES ('south')"
    same 'what the first ID after a start skips' "$(grep -o 'snowflake_default skips 10... ms, since this server did not write its mark' "$SOUTH_LOG" | cut -d ' ' -f 2,4-)" \
        'skips ms, since this server did not write its mark'
    same 'worker IDs of all rows' "$(sql "$SOUTH" "$workers")" '7 8'
    sql "$PGPORT" "SELECT pglogical.replication_set_remove_sequence('default', generator) FROM snowflake_generators" > /dev/null
    same 'sequences without generators' "$(sql "$PGPORT" "$set")" 'counted_id_seq'
    sql "$SOUTH" "SELECT pglogical.drop_subscription('s')" > /dev/null
}

"$1"
