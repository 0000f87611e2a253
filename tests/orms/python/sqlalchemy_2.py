"""SQLAlchemy 2.1: one INSERT for many objects, the right IDs, reflection."""

from sqlalchemy import BigInteger, MetaData, Table, create_engine, event, func, insert, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.schema import CreateTable

import sqlalchemy_recipe as recipe
from server import DATABASE, HOST, PORT, USER, Counted, same, sql

engine = create_engine(f"postgresql+psycopg://{USER}@{HOST}:{PORT}/{DATABASE}")


def inserted(model):
    """Adds 1,000 objects; returns how many INSERTs that took, and how many IDs are right."""
    with Session(engine, expire_on_commit=False) as session:
        objects = [model(title=str(n)) for n in range(1000)]
        with Counted() as server:
            session.add_all(objects)
            session.commit()
        rows = dict(session.execute(text(f"SELECT id, title FROM {model.__tablename__}")).all())
        right = sum(rows[o.id] == o.title for o in objects)
    return server.calls("INSERT"), right


recipe.Base.metadata.create_all(engine)
same(inserted(recipe.Book), (1, 1000), "monotonic: INSERTs, right IDs")
same(sql("SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'books'::regclass"),
     [("snowflake_nextval()",)], "the default")
with Session(engine) as session, Counted() as server:
    session.execute(insert(recipe.Book), [{"title": str(n)} for n in range(1000)])
same(server.calls("INSERT"), 1000, "insert(Book) without returning(): INSERTs")
with Session(engine) as session, Counted() as server:
    session.execute(insert(recipe.Book).returning(recipe.Book.id), [{"title": str(n)} for n in range(1000)])
same(server.calls("INSERT"), 1, "insert(Book).returning(): INSERTs")
with Session(engine) as session, Counted() as server:
    ordered = insert(recipe.Book).returning(recipe.Book.id, recipe.Book.title, sort_by_parameter_order=True)
    rows = session.execute(ordered, [{"title": str(n)} for n in range(1000)]).all()
same((server.calls("INSERT"), [title for _, title in rows] == [str(n) for n in range(1000)]), (1, True),
     "sort_by_parameter_order: INSERTs, in order")


class Base(DeclarativeBase):
    pass


class Plain(Base):
    __tablename__ = "plain_books"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, server_default=text("snowflake_nextval()"))
    title: Mapped[str]


class Unpredictable(Base):
    __tablename__ = "unpredictable_books"
    id: Mapped[int] = mapped_column(
        BigInteger, primary_key=True, server_default=func.snowflake_nextval("unpredictable", monotonic=True)
    )
    title: Mapped[str]


sql("SELECT snowflake_create_generator('unpredictable', 'preset=default sequence_start=random')")
Base.metadata.create_all(engine)
same(inserted(Plain), (1000, 1000), "server_default alone: INSERTs, right IDs")
calls, right = inserted(Unpredictable)
same((calls, right < 500), (1, True), "monotonic for a generator that is not: INSERTs, most IDs wrong")

reflect = lambda: str(CreateTable(Table("unpredictable_books", MetaData(), autoload_with=engine)).compile(engine))
same("DEFAULT snowflake_nextval('unpredictable'::regclass)" in reflect(), True, "reflection keeps the default")
event.remove(Table, "column_reflect", recipe.keep_generator)
same("id BIGSERIAL" in reflect(), True, "without the listener, reflection makes a serial")
