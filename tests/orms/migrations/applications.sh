# both.sh runs these functions in the folder of the application, with the server in PGHOST and
# so on. NAME_migrate runs the migrations, as the tool's own command does. `NAME_fill SIDE` adds
# rows by the models. NAME_back undoes the migrations, where the tool can: run again, they make keys with IDs.
# NAME_check looks at what the tool says of the keys.

sql_migrate() { "$bindir/psql" -Xq -v ON_ERROR_STOP=1 -f schema.sql; }
sql_fill() { "$bindir/psql" -Xq -v ON_ERROR_STOP=1 -v side="$1" -f fill.sql; }

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
alembic_back() { "$python" -m alembic downgrade base; }
alembic_check() {
    "$python" -m alembic check
    "$python" -m alembic -x compare_server_default check
}

peewee_migrate() { "$python" app.py create; }
peewee_fill() { "$python" app.py "$1"; }
peewee_back() { :; }

tortoise() { "$python" -m tortoise -c settings.TORTOISE_ORM "$@"; }
tortoise_migrate() {
    [ -d migrations ] || tortoise init
    tortoise makemigrations
    tortoise migrate
}
tortoise_fill() { "$python" fill.py "$1"; }
tortoise_back() { tortoise downgrade library; }
tortoise_check() {
    printf '\n\nclass Small(Model):\n    id = fields.IntField(primary_key=True)\n' >> models.py
    tortoise_migrate
    is_left small
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

sequel_migrate() { sequel -m migrations "$DATABASE_URL"; }
sequel_fill() { ruby fill.rb "$1"; }
sequel_back() { sequel -m migrations -M 0 "$DATABASE_URL"; }
sequel_check() {
    ruby -r sequel -e 'Sequel.connect(ENV["DATABASE_URL"]).create_table(:small) { primary_key :id }'
    is_left small
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
knex_back() { "$tools/knex" migrate:rollback --esm; }

drizzle_migrate() { "$tools/drizzle-kit" generate && "$tools/drizzle-kit" migrate; }
drizzle_fill() { node fill.mjs "$1"; }
drizzle_push() { "$tools/drizzle-kit" push --force 2>&1; }
drizzle_check() {
    local PGDATABASE=$PGDATABASE.pushed
    PGDATABASE=postgres ask north "CREATE DATABASE \"$PGDATABASE\""
    ask north "CREATE SCHEMA snowflake; CREATE EXTENSION snowflake_id SCHEMA snowflake;
        ALTER DATABASE \"$PGDATABASE\" SET snowflake_id.new_keys = on; ALTER DATABASE \"$PGDATABASE\" SET search_path = public, snowflake"
    at north drizzle_push
    all_keys_have_ids
    same 'a second push refuses bigserial' "$(at north drizzle_push | grep -c 'type "bigserial" does not exist')" 1
    sed -i 's/bigserial({ mode: "bigint" }).primaryKey()/bigint({ mode: "bigint" }).primaryKey().generatedByDefaultAsIdentity()/' schema.mjs
    at north drizzle_push
    all_keys_have_ids
    at north node fill.mjs pushed
    at north drizzle_push
    same 'keys whose sequences push has made again' "$(other_keys north)" 3
}

sequelize_migrate() { node app.mjs sync; }
sequelize_fill() { node app.mjs "$1"; }
sequelize_check() {
    same 'what it shows of a key that is left' "$(node app.mjs alter 2>&1)" ''
    all_keys_have_ids
    is_left Smalls
}

dbmate() { PATH=$bindir:$PATH PGSSLMODE=disable "$tools/dbmate" "$@"; }
dbmate_migrate() { dbmate migrate; }
dbmate_fill() { "$bindir/psql" -Xq -v ON_ERROR_STOP=1 -v side="$1" -f ../sql/fill.sql; }
dbmate_back() { dbmate rollback; }
dbmate_check() {
    local PGDATABASE=$PGDATABASE.plain
    # The schema.sql of a database that has never had the extension, in one that has it and the setting.
    at north dbmate up
    same 'keys that schema.sql adds' "$(grep -c 'ADD CONSTRAINT .* PRIMARY KEY (id);' db/schema.sql)" 3
    PGDATABASE=${PGDATABASE%plain}loaded
    at north dbmate create
    ask north "CREATE EXTENSION snowflake_id; ALTER DATABASE \"$PGDATABASE\" SET snowflake_id.new_keys = on"
    # This version's own load refuses the \restrict that pg_dump writes.
    at north "$bindir/psql" -Xq -v ON_ERROR_STOP=1 -f db/schema.sql
    same 'keys without IDs, loaded' "$(other_keys north)" 3
    printf -- "-- migrate:up\nSELECT * FROM snowflake_set_defaults('public');\n-- migrate:down\n" > db/migrations/20260102000000_keys.sql
    at north dbmate migrate
    all_keys_have_ids
    at north dbmate_fill loaded
    same 'rows, loaded' "$(count north)" "$north_rows"
}

prisma_migrate() { "$tools/prisma" migrate deploy; }
prisma_fill() { node fill.mjs "$1"; }
prisma_check() { "$tools/prisma" migrate status; }

laravel_migrate() { php app.php migrate; }
laravel_fill() { php app.php "$1"; }
laravel_back() { php app.php rollback; }

hibernate_migrate() { java --add-opens java.base/java.lang=ALL-UNNAMED -cp "$java" Library; }
hibernate_fill() { java --add-opens java.base/java.lang=ALL-UNNAMED -cp "$java" Library "$1"; }
hibernate_back() { :; }

sea_orm_migrate() { "$sea_orm" up; }
sea_orm_fill() { "$sea_orm" "$1"; }
sea_orm_back() { "$sea_orm" refresh; }

# What a tool makes again, it makes with IDs.
all_keys_have_ids() { same 'keys without IDs, made again' "$(other_keys north) of $(keys north | wc -l)" '0 of 3'; }

# is_left TABLE: its key is an integer, and status names it.
is_left() {
    same "the key of $1" "$(ask north "SELECT atttypid::regtype || ', named: ' || (detail ~ 'public[.]\"?$1\"?[.]id') FROM snowflake_status(), pg_attribute
        WHERE item = 'keys' AND attrelid = '\"$1\"'::regclass AND attname = 'id'")" 'integer, named: true'
}

# compile_typescript FOLDER
compile_typescript() {
    "$tools/esbuild" "$1"/*.ts --outdir="$1" --out-extension:.js=.mjs --log-level=warning \
        --tsconfig-raw='{"compilerOptions": {"experimentalDecorators": true}}'
}
