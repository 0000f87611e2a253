# both.sh runs these functions in the folder of the application, with the server in PGHOST and
# so on. NAME_migrate runs the migrations, as the tool's own command does. `NAME_fill SIDE` adds
# rows by the models. NAME_check looks at what the tool says of the keys.

sql_migrate() { "$bindir/psql" -Xq -v ON_ERROR_STOP=1 -f schema.sql; }
sql_fill() { "$bindir/psql" -Xq -v ON_ERROR_STOP=1 -v side="$1" -f fill.sql; }
sql_check() { :; }

django_migrate() { "$python" manage.py migrate; }
django_fill() { "$python" manage.py fill "$1"; }
django_check() {
    local before
    "$python" manage.py makemigrations --check --dry-run
    # Fixtures hold the keys of objects. No sequence has to be set after them.
    before=$(rows north | grep -E '^library_(author|tag|book)[|]')
    "$python" manage.py dumpdata library > "$logs/django.json"
    "$python" manage.py flush --no-input
    same 'rows after flush' "$(count north)" 0
    "$python" manage.py loaddata "$logs/django.json"
    same 'rows after loaddata' "$(rows north | grep -E '^library_(author|tag|book)[|]')" "$before"
    same 'sequences that sqlsequencereset sets' "$("$python" manage.py sqlsequencereset library | sql north | grep -c .)" 0
    "$python" manage.py fill another
    same 'rows after more of them' "$(count north)" $((3 * north_rows))
    # The keys of Django's own applications are integers, and stay what they are.
    same 'key of auth_group' "$(ask north "SELECT atttypid::regtype, attidentity FROM pg_attribute WHERE attrelid = 'auth_group'::regclass AND attname = 'id'")" 'integer|d'
}

alembic_migrate() { "$python" -m alembic upgrade head; }
alembic_fill() { "$python" fill.py "$1"; }
alembic_check() {
    "$python" -m alembic check
    "$python" -m alembic -x compare_server_default check
    # What a revision makes again, it makes with IDs.
    "$python" -m alembic downgrade base
    "$python" -m alembic upgrade head
    same 'keys without IDs after a downgrade' "$(other_keys north) of $(keys north | wc -l)" '0 of 3'
}

rails_migrate() { ruby migrate.rb; }
rails_fill() { ruby fill.rb "$1"; }
rails_check() {
    ruby dump.rb > "$logs/schema.rb"
    same 'keys in schema.rb' "$(grep -c 'id: :bigint, default: -> { "snowflake_nextval()" }' "$logs/schema.rb")" 3
    at north "$bindir/createdb" "$PGDATABASE.loaded"
    PGDATABASE=$PGDATABASE.loaded ruby load.rb "$logs/schema.rb"
    same 'keys of a database that is made by schema.rb' "$(PGDATABASE=$PGDATABASE.loaded keys north)" "$(keys north)"
    PGDATABASE=$PGDATABASE.loaded ruby fill.rb another
}

typeorm_migrate() { "$tools/typeorm" migration:run -d data-source.mjs; }
typeorm_fill() { node fill.mjs "$1"; }
typeorm_generate() { "$tools/typeorm" migration:generate -d data-source.mjs --check --dryrun migrations/Next; }
typeorm_check() {
    # TypeORM would make sequences for its generated columns again. A column with the default has none.
    local wanted
    wanted=$(typeorm_generate) && fail 'migration:generate finds nothing to do'
    same 'sequences that migration:generate would make' "$(grep -c 'CREATE SEQUENCE IF NOT EXISTS' <<< "$wanted")" 2
    sed -i 's/PrimaryGeneratedColumn(.*)$/PrimaryColumn("bigint", { default: () => "snowflake_nextval()" })/; 1s/PrimaryGeneratedColumn/PrimaryColumn/' entities.ts
    same 'keys of the models that have the default' "$(grep -c '@PrimaryColumn' entities.ts)" 3
    compile_typescript .
    typeorm_generate
}

knex_migrate() { "$tools/knex" migrate:latest --esm; }
knex_fill() { node fill.mjs "$1"; }
knex_check() {
    "$tools/knex" migrate:rollback --esm
    "$tools/knex" migrate:latest --esm
    same 'keys without IDs after a rollback' "$(other_keys north) of $(keys north | wc -l)" '0 of 3'
}

prisma_migrate() { "$tools/prisma" migrate deploy; }
prisma_fill() { node fill.mjs "$1"; }
prisma_check() { "$tools/prisma" migrate status; }

# compile_typescript FOLDER
compile_typescript() {
    "$tools/esbuild" "$1"/*.ts --outdir="$1" --out-extension:.js=.mjs --log-level=warning \
        --tsconfig-raw='{"compilerOptions": {"experimentalDecorators": true}}'
}
