# tests/run sources this file for its command migrations, after languages.sh. Each folder in
# tests/orms/migrations is a small application, with migrations as its tool makes or wants them,
# and not a line that is there for this extension.

# ready_for APPLICATION: whether what it needs is here. Copies it to where it finds its packages.
ready_for() {
    local folder=$scratch/orms
    case $1 in
    django | alembic | peewee | tortoise) have_python "$1" || return; python=$folder/venv/bin/python folder=$scratch/orms ;;
    typeorm | knex | drizzle | sequelize | dbmate) have_node "$1" node || return ;;
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

run_migrations() {
    local application mode language=migrations
    local python java sea_orm driver jars
    export bindir logs=$scratch/orms/logs PYTHONDONTWRITEBYTECODE=1 PRISMA_HIDE_UPDATE_MESSAGE=1 CHECKPOINT_DISABLE=1
    mkdir -p "$logs"
    for application in sql django alembic peewee tortoise rails sequel typeorm knex drizzle sequelize dbmate prisma laravel hibernate sea_orm; do
        if ! wanted "$application" || ! ready_for "$application"; then continue; fi
        for mode in on off; do
            if bash "$applications/both.sh" "$application" $mode > "$logs/$application.$mode" 2>&1; then
                printf 'ok %s, new_keys %s: %s\n' "$application" $mode "$(sed -n 's/^  keys of each side: //p' "$logs/$application.$mode") keys on each side"
                passed=$((passed + 1))
            else
                printf 'not ok %s, new_keys %s\n' "$application" $mode
                tail -n 40 "$logs/$application.$mode" | cut -c 1-400 | sed 's/^/# /'
                failed=$((failed + 1))
            fi
        done
    done
}
