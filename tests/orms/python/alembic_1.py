"""Alembic: the migration of the page, and what autogenerate finds."""

from alembic.autogenerate import produce_migrations, render_python_code
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import MetaData, Table, create_engine, event

import alembic_recipe as recipe
import sqlalchemy_recipe as models
from server import DATABASE, HOST, PORT, USER, same, sql

engine = create_engine(f"postgresql+psycopg://{USER}@{HOST}:{PORT}/{DATABASE}")


def migration(compare_server_default, metadata=models.Base.metadata):
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_server_default": compare_server_default})
        operations = produce_migrations(context, metadata)
        return render_python_code(operations.upgrade_ops), render_python_code(operations.downgrade_ops)


same("server_default=sa.text('snowflake_nextval()')" in migration(False)[0], True, "a new table has the default")
same("drop_table" in migration(False)[0], False, "autogenerate drops no table of the extension")

sql("CREATE TABLE books (id bigserial PRIMARY KEY, title varchar NOT NULL)")
sql("INSERT INTO books (title) VALUES ('before')")
same("alter_column" in migration(False)[0], False, "autogenerate sees no other default")
same("alter_column" in migration(True)[0], True, "with compare_server_default it does")
with engine.begin() as connection, Operations.context(MigrationContext.configure(connection)):
    recipe.upgrade()
same(sql("SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'books'::regclass"),
     [("snowflake_nextval()",)], "the default after the migration")
same("alter_column" in migration(True)[0], False, "nothing is left to migrate")

sql("DROP TABLE books")
sql("SELECT snowflake_create_generator('message_ids', 'preset=default')")
sql("CREATE TABLE messages (id bigint PRIMARY KEY DEFAULT snowflake_nextval('message_ids'))")
same("autoincrement=True" in migration(True, MetaData())[1], False, "a downgrade keeps the generator")
event.remove(Table, "column_reflect", models.keep_generator)
same("autoincrement=True" in migration(True, MetaData())[1], True, "without the listener, it makes a serial")
