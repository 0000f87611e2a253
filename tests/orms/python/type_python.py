"""Keys of type snowflake in Python: psycopg, psycopg2, asyncpg, SQLAlchemy, Alembic, Django, Peewee, Tortoise ORM."""

import asyncio
import warnings

import asyncpg
import peewee
import psycopg
import psycopg2
from alembic.autogenerate import produce_migrations, render_python_code
from alembic.migration import MigrationContext
from psycopg2.extensions import INTEGER, new_type, register_type
from sqlalchemy import BigInteger, Column, MetaData, Table, Text, create_engine, func, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from tortoise import Tortoise, fields
from tortoise.models import Model

import the_type_snowflake_recipe as recipe
from server import DATABASE, HOST, PORT, USER, same, sql

ID = 249722523258744845
PLACE = dict(host=HOST, port=PORT, user=USER, dbname=DATABASE)
sql("CREATE TABLE books (id snowflake PRIMARY KEY DEFAULT snowflake_nextval(), title text)")
sql("INSERT INTO books VALUES (%s, 'one')", ID)


# psycopg 3
connection = psycopg.connect(**PLACE, autocommit=True)
rows = lambda query, *values, **options: connection.execute(query, values or None, **options).fetchall()
BOTH = "SELECT id, ARRAY[id] FROM books WHERE id = %s"
for value in (ID, str(ID)):
    same(rows(BOTH, value), [(str(ID), f"{{{ID}}}")], f"psycopg, {type(value).__name__}: texts")
    same(rows("SELECT title FROM books WHERE id = ANY(%s)", [value]), [("one",)], "psycopg, an array")
same(rows(BOTH, ID, binary=True)[0][0], ID.to_bytes(8), "psycopg, binary: bytes")
recipe.read_as_int(connection)
for binary in (False, True):
    same(rows(BOTH, ID, binary=binary), [(ID, [ID])], f"psycopg with the recipe, binary={binary}")
same(rows("INSERT INTO books VALUES (%s, 'small') RETURNING id", 5), [(5,)], "psycopg, INSERT")
same(rows("SELECT json_agg(b) FROM books b WHERE id = %s", ID), [([{"id": str(ID), "title": "one"}],)], "psycopg, JSON")

# psycopg2
old = psycopg2.connect(**PLACE)
cursor = old.cursor()
cursor.execute("SELECT id FROM books WHERE id = ANY(%s)", ([ID],))
same(cursor.fetchall(), [(str(ID),)], "psycopg2: texts")
cursor.execute("SELECT 'snowflake'::regtype::oid")
register_type(new_type(cursor.fetchone(), "SNOWFLAKE", INTEGER), old)
cursor.execute("INSERT INTO books VALUES (%s, 'smaller') RETURNING id", (4,))
same(cursor.fetchall(), [(4,)], "psycopg2 with register_type()")
old.close()


# asyncpg
async def with_asyncpg():
    connection = await asyncpg.connect(host=HOST, port=PORT, user=USER, database=DATABASE)
    insert = "INSERT INTO books VALUES ($1, 'three') RETURNING id, ARRAY[id]"

    async def got(query, value):
        try:
            return [tuple(row) for row in await connection.fetch(query, value)]
        except asyncpg.DataError as error:
            return str(error).rpartition("(")[2]

    same(await got("SELECT id FROM books WHERE id = $1", ID), [(str(ID),)], "asyncpg: a text, by an int")
    same(await got(insert, 3), "expected str, got int)", "asyncpg, INSERT of an int")
    same(await got(insert, "3"), [("3", ["3"])], "asyncpg, INSERT of a text")
    await recipe.read_as_int_asyncpg(connection)
    same(await got(insert, 2), [(2, [2])], "asyncpg with the recipe, INSERT of an int")
    same(await got("SELECT id FROM books WHERE id = ANY($1)", [ID]), [(ID,)], "asyncpg with the recipe")
    await connection.copy_records_to_table("books", records=[(1, "one more")])
    await connection.close()


asyncio.run(with_asyncpg())

# SQLAlchemy. IDs that are texts would be sorted as texts, and some objects get the ID of another row.
sql("CREATE SEQUENCE numbers")
url = f"postgresql+psycopg://{USER}@{HOST}:{PORT}/{DATABASE}"


class Base(DeclarativeBase):
    pass


class Shelf(Base):
    __tablename__ = "shelves"
    id: Mapped[int] = mapped_column(recipe.Snowflake, primary_key=True, server_default=func.nextval("numbers", monotonic=True))
    title: Mapped[str]


class Base2(DeclarativeBase):
    pass


class Plain(Base2):
    __tablename__ = "shelves"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, server_default=func.nextval("numbers", monotonic=True))
    title: Mapped[str]


for model, cured in ((Shelf, False), (Plain, False), (Shelf, True), (Plain, True)):
    engine = create_engine(url)
    if cured:
        recipe.read_as_int_sqlalchemy(engine)
    Base.metadata.create_all(engine)
    with Session(engine, expire_on_commit=False) as session:
        sql("ALTER SEQUENCE numbers RESTART")
        sql("TRUNCATE shelves")
        objects = [model(title=str(n)) for n in range(100)]
        session.add_all(objects)
        session.commit()
        stored = dict(sql("SELECT id::bigint, title FROM shelves"))
        right = sum(stored[int(o.id)] == o.title for o in objects)
        same((right == 100, type(objects[0].id)), (cured, int if cured else str), f"SQLAlchemy, {model.__name__}, recipe: {cured}: right IDs")
        if cured:
            same(session.scalars(select(model.id).where(model.id.in_([100, 7])).order_by(model.id)).all(), [7, 100], "SQLAlchemy, IN")
            same(session.execute(text("SELECT array_agg(id ORDER BY id) FROM shelves WHERE id < 3")).scalar(), [1, 2], "SQLAlchemy, an array")
same(sql("SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = 'shelves'::regclass AND attname = 'id'"),
     [("snowflake",)], "SQLAlchemy, the column that create_all() makes")
with warnings.catch_warnings():
    warnings.simplefilter("error")
    same(type(Table("books", MetaData(), autoload_with=engine).c.id.type), recipe.Snowflake, "SQLAlchemy, reflection")

# Alembic: what autogenerate would change.
for key, changed in ((recipe.Snowflake, False), (BigInteger, True)):
    wanted = MetaData()
    Table("books", wanted, Column("id", key, primary_key=True, server_default=text("snowflake_nextval()")), Column("title", Text))
    with engine.connect() as on:
        context = MigrationContext.configure(on, opts={"compare_server_default": True})
        operations = render_python_code(produce_migrations(context, wanted).upgrade_ops)
    same("'books', 'id'" in operations, changed, f"Alembic, {key.__name__}: the key would change")

# Django
import django
from django.conf import settings

settings.configure(DEFAULT_AUTO_FIELD="the_type_snowflake_recipe.SnowflakeAutoField",
                   DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "HOST": HOST, "PORT": PORT, "USER": USER, "NAME": DATABASE}})
django.setup()
from django.db import connection as django_connection
from django.db import models


class Big(models.Model):
    id = models.BigAutoField(primary_key=True)
    title = models.TextField()

    class Meta:
        app_label, db_table = "shop", "books"


class Book(models.Model):
    id = recipe.SnowflakeAutoField(primary_key=True)
    title = models.TextField()

    class Meta:
        app_label, db_table = "shop", "django_books"


class Copy(models.Model):
    id = recipe.SnowflakeAutoField(primary_key=True)
    book = models.ForeignKey(Book, on_delete=models.CASCADE)
    others = models.ManyToManyField(Book, related_name="+")

    class Meta:
        app_label = "shop"


same((Big.objects.get(pk=ID).pk, Big.objects.get(pk=ID) == Big(pk=ID)), (str(ID), False), "Django, BigAutoField: a text")
same(type(Big.objects.create(title="new").pk), str, "Django, BigAutoField, create()")
with django_connection.schema_editor() as editor:
    editor.create_model(Book)
    editor.create_model(Copy)
book = Book.objects.create(pk=ID, title="one")
copy = Copy.objects.create(book=book)
copy.others.add(book)
read = Copy.objects.select_related("book").get(pk=copy.pk)
same((type(copy.pk), read.pk == copy.pk, read.book_id, read.book == book), (int, True, ID, True), "Django, the recipe's field")
same(Copy.objects.filter(book__in=[ID]).values_list("book_id", "book__id").get(), (ID, ID), "Django, values of a foreign key")
same([type(b.pk) for b in Book.objects.bulk_create([Book(title="two"), Book(title="three")])], [int, int], "Django, bulk_create()")
same(sql("SELECT DISTINCT format_type(atttypid, NULL) FROM pg_attribute WHERE attnum > 0 AND attname LIKE '%%id'"
         " AND attrelid IN ('django_books'::regclass, 'shop_copy'::regclass, 'shop_copy_others'::regclass)"),
     [("snowflake",)], "Django, keys and columns that refer to them")

# Peewee and Tortoise ORM
database = peewee.PostgresqlDatabase(DATABASE, host=HOST, port=PORT, user=USER, prefer_psycopg3=True)


class PeeweeBook(peewee.Model):
    id = peewee.BigAutoField()
    title = peewee.TextField()

    class Meta:
        database, table_name = database, "books"


same([book.id for book in PeeweeBook.select().where(PeeweeBook.id.in_([ID]))], [ID], "Peewee, BigAutoField")
same(type(PeeweeBook.create(title="new").id), int, "Peewee, create()")


class TortoiseBook(Model):
    id = fields.BigIntField(primary_key=True, generated=False)
    title = fields.TextField()

    class Meta:
        table = "books"


async def with_tortoise():
    await Tortoise.init(db_url=f"asyncpg://{USER}@{HOST}:{PORT}/{DATABASE}", modules={"models": [__name__]})
    same((await TortoiseBook.get(id=ID)).id, str(ID), "Tortoise ORM: a text")
    try:
        got = (await TortoiseBook.create(id=9, title="nine")).id
    except Exception as error:
        got = str(error).rpartition("(")[2]
    same(got, "expected str, got int)", "Tortoise ORM, an ID that you give")
    await Tortoise.close_connections()


asyncio.run(with_tortoise())
