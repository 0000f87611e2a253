import sys

from sqlalchemy.orm import Session

from models import Author, Book, Tag, engine

side = sys.argv[1]
with Session(engine) as session:
    tags = [Tag(name=f"{side}{n}") for n in range(10)]
    session.add_all(tags)
    for n in range(200):
        author = Author(name=f"{side}{n}")
        author.books = [Book(title=f"{side}{n} {i}", tags=tags[i : i + 2]) for i in range(2)]
        session.add(author)
    session.commit()
