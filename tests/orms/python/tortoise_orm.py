"""Tortoise ORM: new tables, create() and bulk_create()."""

import asyncio

from tortoise import Tortoise

import tortoise_orm_recipe as recipe
from server import DATABASE, HOST, PORT, USER, Counted, same, sql


async def main():
    await Tortoise.init(db_url=f"asyncpg://{USER}@{HOST}:{PORT}/{DATABASE}", modules={"models": ["tortoise_orm_recipe"]})
    await Tortoise.generate_schemas()
    same(sql("SELECT format_type(atttypid, NULL), pg_get_expr(adbin, adrelid) FROM pg_attribute"
             " LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum"
             " WHERE attrelid = 'book'::regclass AND attname = 'id'"), [("bigint", "snowflake_nextval()")], "the key")
    with Counted() as server:
        book = await recipe.Book.create(title="one")
    same((server.calls("INSERT"), sql("SELECT id FROM book")), (1, [(book.id,)]), "create(): INSERTs, the ID")
    with Counted() as server:
        books = [recipe.Book(title=str(n)) for n in range(1000)]
        await recipe.Book.bulk_create(books)
    same((server.calls("INSERT"), isinstance(books[0].id, int)), (1000, False), "bulk_create(): INSERTs, whether the object has its ID")
    with Counted() as server:
        books = [recipe.Book(title=f"with an ID: {n}") for n in range(1000)]
        await recipe.create_books(books)
    rows = dict(sql("SELECT id, title FROM book"))
    same((server.calls("SELECT snowflake_nextval_batch"), all(rows[b.id] == b.title for b in books)), (1, True),
         "IDs first: batches, right IDs")
    await Tortoise.close_connections()


asyncio.run(main())
