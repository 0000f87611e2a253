# both.sh APPLICATION on|off: runs the migrations of an application on two servers, as they are,
# with or without snowflake_id.new_keys; adds rows to both servers by the application; and lets
# logical replication merge them in both directions. With the setting, both servers have all
# rows of both afterwards. Without it, each key of one server is a key of the other one too, and
# nothing is merged. tests/run sets the variables that are used here.
. "$top/tests/orms/checks.sh"
application=$1 mode=$2
export PGDATABASE=${application}_$mode
cd "$applications/$application"
. "$applications/applications.sh"

declare -A port=([north]=$NORTH [south]=$SOUTH) other=([north]=south [south]=north)
# at SIDE COMMAND [ARGUMENTS]: runs a command with the server of this side.
at() { PGPORT=${port[$1]} DATABASE_URL=postgresql://$PGUSER@$PGHOST:${port[$1]}/$PGDATABASE "${@:2}"; }
sql() { at "$1" "$bindir/psql" -XqAt -v ON_ERROR_STOP=1 "${@:2}"; }
ask() { sql "$1" -c "$2"; }

# The application's tables, without those in which its tool remembers what it has done.
tables="SELECT oid, format('%I', relname) AS name FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname !~ '^(auth_|django_|knex_|_prisma|alembic|schema_|ar_|migrations|tortoise_|seaql_)'"
# Those of them that have a bigint alone as their key, and its default.
keyed="SELECT name, coalesce(pg_get_expr(adbin, adrelid), 'identity') AS made_by FROM ($tables) AS tables
    JOIN pg_index ON indrelid = oid AND indisprimary AND indnkeyatts = 1
    JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0] AND attname = 'id' AND atttypid = 'bigint'::regtype
    LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum"
keys() { ask "$1" "$keyed ORDER BY name"; }
other_keys() { keys "$1" | grep -cv '|snowflake_nextval()$' || true; }
# Each key of a side.
values() { sql "$1" <<< "SELECT format('SELECT %L, id FROM %s', name, name) FROM ($keyed) AS keyed \\gexec"; }
# How many rows each table of a side has, and their contents.
rows() {
    sql "$1" <<< "SELECT format('SELECT %L, count(*), md5(string_agg(t::text, %L ORDER BY t::text)) FROM %s AS t', name, ',', name)
        FROM ($tables) AS tables ORDER BY name \\gexec"
}
count() { rows "$1" | awk -F '|' '{ sum += $2 } END { print sum }'; }

caught_up() { [ "$(ask "$1" "SELECT confirmed_flush_lsn >= '$2' FROM pg_replication_slots WHERE slot_name = '${PGDATABASE}_to_${other[$1]}'")" = t ]; }
errors() { ask "$1" "SELECT sum(value::bigint) FROM pg_stat_subscription_stats AS s, jsonb_each_text(to_jsonb(s)) WHERE subname = '${PGDATABASE}_to_$1' AND key ~ '^(apply_error|sync_error|confl)'"; }
failed() { [ "$(errors "$1")" -gt 0 ]; }

for side in north south; do
    PGDATABASE=postgres ask "$side" "CREATE DATABASE ${application}_$mode"
    ask "$side" 'CREATE EXTENSION snowflake_id'
    ask "$side" "ALTER DATABASE $PGDATABASE SET snowflake_id.new_keys = $mode"
    at "$side" "${application}_migrate"
done
expected=$(keys north | wc -l)
[ "$expected" -ge 3 ] || fail 'there are fewer than three keys'
if [ "$mode" = on ]; then expected=0; fi
same 'keys with another default than snowflake_nextval()' "$(other_keys north)" "$expected"
same 'tables of the other side' "$(keys south)" "$(keys north)"

# Each side remembers from here on what it has to send, and sends it later.
for side in north south; do ask "$side" 'CREATE PUBLICATION everything FOR ALL TABLES'; done
for side in north south; do
    ask "$side" "CREATE SUBSCRIPTION ${PGDATABASE}_to_$side CONNECTION 'host=$PGHOST port=${port[${other[$side]}]} user=$PGUSER dbname=$PGDATABASE'
        PUBLICATION everything WITH (origin = none, copy_data = false, enabled = false)"
done
for side in north south; do at "$side" "${application}_fill" "$side"; done
north_rows=$(count north)
same 'rows of each side' "$(count south)" "$north_rows"
[ "$north_rows" -ge 1000 ] || fail 'that is too few'
for side in north south; do values "$side" | sort > "$logs/$PGDATABASE.$side"; done
all=$(wc -l < "$logs/$PGDATABASE.north")
common=$(comm -12 "$logs/$PGDATABASE".{north,south} | wc -l)
echo "  keys of each side: $all"
[ "$all" -ge 600 ] || fail 'that is too few'

for side in north south; do ask "$side" "ALTER SUBSCRIPTION ${PGDATABASE}_to_$side ENABLE"; done
if [ "$mode" = on ]; then
    same 'keys that both sides have' "$common" 0
    for side in north south; do until_true "$side is merged" caught_up "$side" "$(ask "$side" 'SELECT pg_current_wal_lsn()')"; done
    same 'rows of both sides' "$(count north)" $((2 * north_rows))
    [ "$(rows north)" = "$(rows south)" ] || fail 'the sides have different rows'
    for side in north south; do same "conflicts and errors of $side" "$(errors "$side")" 0; done
else
    same 'keys that both sides have' "$common" "$all"
    for side in north south; do until_true "$side has a conflict" failed "$side"; done
    same 'rows of a side, after the attempt' "$(count north)" "$north_rows"
fi
for side in north south; do ask "$side" "DROP SUBSCRIPTION ${PGDATABASE}_to_$side"; done
ask north 'DROP PUBLICATION everything'
# A check may change the application, so it gets a copy.
if [ "$mode" = on ]; then
    cp -R . "$applications/checked"
    cd "$applications/checked"
    if declare -F "${application}_back" > /dev/null; then
        at north "${application}_back"
        at north "${application}_migrate"
        all_keys_have_ids
    fi
    if declare -F "${application}_check" > /dev/null; then at north "${application}_check"; fi
fi
