# tests/run sources this file for its command migrations, after languages.sh. Each folder in
# tests/orms/migrations is a small application, with migrations as its tool makes or wants them,
# and not a line that is there for this extension.

# ready_for APPLICATION: whether what it needs is here. Copies it to where it finds its packages.
ready_for() {
    local folder=$scratch/orms
    case $1 in
    django | alembic) have_python "$1" || return; python=$folder/venv/bin/python folder=$scratch/orms ;;
    typeorm | knex) have_node "$1" node || return ;;
    prisma) have_node "$1" prisma || return ;;
    rails) have_ruby "$1" || return ;;
    esac
    export python tools=$folder/node_modules/.bin applications=$folder/migrations
    rm -rf "$applications"
    cp -R "$top/tests/orms/migrations" "$applications"
    case $1 in
    typeorm) (. "$applications/applications.sh" && compile_typescript "$applications/typeorm") ;;
    prisma) (cd "$applications/prisma" && DATABASE_URL=postgresql:// "$tools/prisma" generate > "$logs/prisma.log" 2>&1) ;;
    esac
}

run_migrations() {
    local application mode language=migrations
    export bindir logs=$scratch/orms/logs PYTHONDONTWRITEBYTECODE=1 PRISMA_HIDE_UPDATE_MESSAGE=1 CHECKPOINT_DISABLE=1
    mkdir -p "$logs"
    for application in sql django alembic rails typeorm knex prisma; do
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
