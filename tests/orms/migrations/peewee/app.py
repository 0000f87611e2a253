import os
import sys

from peewee import BigAutoField, ForeignKeyField, Model, PostgresqlDatabase, TextField

database = PostgresqlDatabase(os.environ["PGDATABASE"], host=os.environ["PGHOST"], port=int(os.environ["PGPORT"]), user=os.environ["PGUSER"])


class Base(Model):
    id = BigAutoField()

    class Meta:
        database = database


class Author(Base):
    name = TextField()


class Book(Base):
    title = TextField()
    author = ForeignKeyField(Author)


class Copy(Base):
    book = ForeignKeyField(Book)


side = sys.argv[1]
if side == "create":
    database.create_tables([Author, Book, Copy])
else:
    with database.atomic():
        authors = [Author(name=f"{side}{n}") for n in range(200)]
        Author.bulk_create(authors)
        for author in authors:
            for n in range(2):
                Copy.create(book=Book.create(title=f"{author.name} {n}", author=author))
