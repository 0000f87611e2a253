import sys

from tortoise import Tortoise, run_async
from tortoise.transactions import in_transaction

from models import Author, Book, Copy
from settings import TORTOISE_ORM


async def fill(side):
    await Tortoise.init(TORTOISE_ORM)
    async with in_transaction():
        for n in range(200):
            author = await Author.create(name=f"{side}{n}")
            for i in range(2):
                await Copy.create(book=await Book.create(title=f"{author.name} {i}", author=author))


run_async(fill(sys.argv[1]))
