"""Peewee 4: new tables, create() and bulk_create()."""

from peewee import SQL, AutoField, BigIntegerField, ForeignKeyField, Model, PostgresqlDatabase, TextField

import peewee_recipe as recipe
from server import DATABASE, HOST, PORT, USER, Counted, same, sql

database = PostgresqlDatabase(DATABASE, host=HOST, port=PORT, user=USER, prefer_psycopg3=True)


class Book(Model):
    id = recipe.SnowflakeField()
    title = TextField()

    class Meta:
        database = database


class Copy(Model):
    id = recipe.SnowflakeField()
    book = ForeignKeyField(Book)

    class Meta:
        database = database


class Small(Model):
    id = AutoField()

    class Meta:
        database = database


class OfSmall(Model):
    small = ForeignKeyField(Small)

    class Meta:
        database = database


class Plain(Model):
    id = BigIntegerField(primary_key=True, constraints=[SQL("DEFAULT snowflake_nextval()")])
    title = TextField()

    class Meta:
        database = database


database.create_tables([Book, Copy, Small, OfSmall, Plain])
same(sql("SELECT attrelid::regclass::text, attname::text, format_type(atttypid, NULL), pg_get_expr(adbin, adrelid)"
         " FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum"
         " WHERE attrelid IN ('book'::regclass, 'copy'::regclass) AND attname IN ('id', 'book_id') ORDER BY 1, 2"),
     [("book", "id", "bigint", "snowflake_nextval()"), ("copy", "book_id", "bigint", None),
      ("copy", "id", "bigint", "snowflake_nextval()")], "columns")

same(sql("SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = 'ofsmall'::regclass"
         " AND attname = 'small_id'"), [("integer",)], "a foreign key to an AutoField")

with Counted() as server:
    book = Book.create(title="one")
    copy = Copy.create(book=book)
same((server.calls("INSERT"), Book.get_by_id(book.id).title), (2, "one"), "create(): INSERTs, the row")
with Counted() as server:
    books = [Book(title=str(n)) for n in range(1000)]
    Book.bulk_create(books)
rows = dict(sql("SELECT id, title FROM book"))
same((server.calls("INSERT"), all(rows[b.id] == b.title for b in books)), (1, True), "bulk_create(): INSERTs, right IDs")

plain = Plain(title="one")
try:
    Plain.bulk_create([plain])
    outcome = "the object has an ID" if plain.id else "the object has no ID"
except Exception as error:
    outcome = str(error).split("\n")[0]
same(outcome, 'null value in column "id" of relation "plain" violates not-null constraint',
     "bulk_create() with a field that is no AutoField")
