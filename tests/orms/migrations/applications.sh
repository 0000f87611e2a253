# both.sh runs these functions in the folder of the application, with the server in PGHOST and
# so on. NAME_migrate runs the migrations, as the tool's own command does. `NAME_fill SIDE` adds
# rows by the models. NAME_check looks at what the tool says of the keys.

sql_migrate() { "$bindir/psql" -Xq -v ON_ERROR_STOP=1 -f schema.sql; }
sql_fill() { "$bindir/psql" -Xq -v ON_ERROR_STOP=1 -v side="$1" -f fill.sql; }
sql_check() { :; }

django_migrate() { "$python" manage.py migrate; }
django_fill() { "$python" manage.py fill "$1"; }
django_check() { "$python" manage.py makemigrations --check --dry-run; }

alembic_migrate() { "$python" -m alembic upgrade head; }
alembic_fill() { "$python" fill.py "$1"; }
alembic_check() { "$python" -m alembic check && "$python" -m alembic -x compare_server_default check; }

rails_migrate() { ruby migrate.rb; }
rails_fill() { ruby fill.rb "$1"; }
rails_check() { ruby check.rb; }

typeorm_migrate() { "$tools/typeorm" migration:run -d data-source.mjs; }
typeorm_fill() { node fill.mjs "$1"; }
typeorm_check() { "$tools/typeorm" migration:generate -d data-source.mjs --check --dryrun migrations/Next; }

knex_migrate() { "$tools/knex" migrate:latest --esm; }
knex_fill() { node fill.mjs "$1"; }
knex_check() { "$tools/knex" migrate:status --esm; }

prisma_migrate() { "$tools/prisma" migrate deploy; }
prisma_fill() { node fill.mjs "$1"; }
prisma_check() { "$tools/prisma" migrate status; }
