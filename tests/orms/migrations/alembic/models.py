import os

from sqlalchemy import BigInteger, Column, ForeignKey, String, Table, URL, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class Base(DeclarativeBase):
    pass


book_tags = Table(
    "book_tags",
    Base.metadata,
    Column("book_id", ForeignKey("books.id"), primary_key=True),
    Column("tag_id", ForeignKey("tags.id"), primary_key=True),
)


class Author(Base):
    __tablename__ = "authors"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    name: Mapped[str] = mapped_column(String(100))
    books: Mapped[list["Book"]] = relationship(back_populates="author")


class Tag(Base):
    __tablename__ = "tags"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    name: Mapped[str] = mapped_column(String(100), unique=True)


class Book(Base):
    __tablename__ = "books"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    title: Mapped[str]
    author_id: Mapped[int] = mapped_column(BigInteger, ForeignKey("authors.id"))
    author: Mapped[Author] = relationship(back_populates="books")
    tags: Mapped[list[Tag]] = relationship(secondary=book_tags)


engine = create_engine(
    URL.create(
        "postgresql+psycopg",
        host=os.environ["PGHOST"],
        port=int(os.environ["PGPORT"]),
        username=os.environ["PGUSER"],
        database=os.environ["PGDATABASE"],
    )
)
