# tests/orms/migrations: unchanged migrations on two servers, PG 18, or 16 or later; ORMS
# Each folder in tests/orms/migrations is a small application, with migrations as its tool makes or wants
# them, and not a line that is there for this extension.
# Only younger versions than 15 tell rows that a server has got from rows that it has made.
PG=${given:-18}
[ "$PG" -ge 16 ] || die "PG is $PG, but subscriptions with origin = none need 16 or later"
prepare
install_all
. "$top/tests/orms/languages.sh"
side=0
for name in north south; do
    side=$((side + 1))
    start_for_clients "$scratch/$name" $side 'wal_level = logical' 'max_worker_processes = 40' \
        'max_logical_replication_workers = 20' 'max_replication_slots = 20' 'max_wal_senders = 20'
    export "${name^^}=$PGPORT"
done

# ready_for APPLICATION: whether what it needs is here. Copies it to where it finds its packages.
ready_for() {
    local folder=$scratch/orms
    case $1 in
    django | alembic | peewee | tortoise) have_python "$1" || return; python=$folder/venv/bin/python folder=$scratch/orms ;;
    typeorm | knex | drizzle | sequelize | dbmate) have_node "$1" || return ;;
    prisma) have_node "$1" prisma || return ;;
    rails | sequel) have_ruby "$1" || return ;;
    laravel) have_php "$1" || return ;;
    hibernate) have_java "$1" && jars=$driver && have_hibernate || return ;;
    sea_orm) have_rust "$1" || return ;;
    esac
    export python java sea_orm tools=$folder/node_modules/.bin applications=$folder/migrations
    rm -rf "$applications"
    cp -R "$top/tests/orms/migrations" "$applications"
    case $1 in
    hibernate) java=$jars:$applications/hibernate && javac -cp "$java" "$applications/hibernate/Library.java" ;;
    sea_orm) sea_orm=$folder/target/debug/sea_orm && rust sea_orm build ;;
    typeorm) (. "$applications/applications.sh" && compile_typescript "$applications/typeorm") ;;
    prisma) (cd "$applications/prisma" && DATABASE_URL=postgresql:// "$tools/prisma" generate > "$logs/prisma.log" 2>&1) ;;
    esac
    # What does not build fails when it runs.
    return 0
}

language=migrations
export top bindir logs=$scratch/orms/logs PYTHONDONTWRITEBYTECODE=1 PRISMA_HIDE_UPDATE_MESSAGE=1 CHECKPOINT_DISABLE=1
mkdir -p "$logs"
for application in sql django alembic peewee tortoise rails sequel typeorm knex drizzle sequelize dbmate prisma laravel hibernate sea_orm; do
    if ! wanted "$application" || ! ready_for "$application"; then continue; fi
    for mode in on off; do
        passes "$application, new_keys $mode" "$logs/$application.$mode" bash "$applications/both.sh" "$application" $mode
    done
done
end_of_clients
