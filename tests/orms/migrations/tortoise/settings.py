import os

TORTOISE_ORM = {
    "connections": {"default": "asyncpg://{PGUSER}@{PGHOST}:{PGPORT}/{PGDATABASE}".format(**os.environ)},
    "apps": {"library": {"models": ["models"], "migrations": "migrations"}},
}
