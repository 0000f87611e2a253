from tortoise import fields
from tortoise.models import Model


class Author(Model):
    id = fields.BigIntField(primary_key=True)
    name = fields.TextField()


class Book(Model):
    id = fields.BigIntField(primary_key=True)
    title = fields.TextField()
    author = fields.ForeignKeyField("library.Author")


class Copy(Model):
    id = fields.BigIntField(primary_key=True)
    book = fields.ForeignKeyField("library.Book")
