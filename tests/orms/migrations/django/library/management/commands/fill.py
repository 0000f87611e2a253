from django.core.management.base import BaseCommand
from django.db import transaction

from library.models import Author, Book, Tag, User


class Command(BaseCommand):
    def add_arguments(self, parser):
        parser.add_argument("side")

    @transaction.atomic
    def handle(self, side, **options):
        user = User.objects.create_user(side)
        tags = [Tag.objects.create(name=f"{side}{n}") for n in range(10)]
        authors = Author.objects.bulk_create(Author(name=f"{side}{n}") for n in range(200))
        for author in authors[:100]:
            for n in range(2):
                book = author.books.create(title=f"{author.name} {n}", reader=user)
                book.tags.add(tags[n], tags[n + 5])
        books = Book.objects.bulk_create(Book(title=a.name, author=a) for a in authors[100:] for _ in range(2))
        for book in books:
            book.tags.set(tags[3:5])
