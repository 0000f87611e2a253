"""SQLAlchemy 2.0: one INSERT for many objects, the right IDs."""

import sqlalchemy
from sqlalchemy import create_engine, insert, text
from sqlalchemy.orm import Session

import sqlalchemy_20_recipe as recipe
from server import DATABASE, HOST, PORT, USER, Counted, same

same(sqlalchemy.__version__.startswith("2.0."), True, "this is SQLAlchemy 2.0")
titles = [str(n) for n in range(1000)]
for driver, helped in (("psycopg", False), ("psycopg", True), ("psycopg2", False)):
    engine = create_engine(f"postgresql+{driver}://{USER}@{HOST}:{PORT}/{DATABASE}")
    inserts = 1000 if (driver, helped) == ("psycopg", False) else 1
    if helped:
        recipe.insert_many_at_once(engine)
    recipe.Base.metadata.create_all(engine)
    with Session(engine, expire_on_commit=False) as session:
        books = [recipe.Book(title=title) for title in titles]
        with Counted() as server:
            session.add_all(books)
            session.commit()
        rows = dict(session.execute(text("SELECT id, title FROM books")).all())
    same((server.calls("SELECT snowflake_nextval_batch"), server.calls("INSERT")), (1, inserts),
         f"{driver}: batches of IDs, INSERTs")
    same(all(rows[book.id] == book.title for book in books), True, "each object has its ID")
    same([book.id for book in books] == sorted(book.id for book in books), True, "IDs in the order of add_all()")
    with Session(engine) as session, Counted() as server:
        session.execute(insert(recipe.Book), [{"title": title} for title in titles])
    same(server.calls("INSERT"), inserts, f"{driver}: INSERTs of insert(Book)")
