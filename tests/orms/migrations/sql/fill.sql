-- One author has two books, and each book two tags.
WITH names AS (SELECT n, :'side' || n AS name FROM generate_series(0, 199) AS n),
some_tags AS (INSERT INTO tags (name) SELECT :'side' || n FROM generate_series(0, 9) AS n RETURNING id, name),
new_authors AS (INSERT INTO authors (name) SELECT name FROM names RETURNING id, name),
new_books AS (
    INSERT INTO books (title, author_id) SELECT name || ' ' || n, id FROM new_authors, generate_series(1, 2) AS n
    RETURNING id)
INSERT INTO book_tags SELECT b.id, t.id
FROM (SELECT id, row_number() OVER () AS n FROM new_books) AS b
JOIN (SELECT id, row_number() OVER () AS n FROM some_tags) AS t ON t.n IN (b.n % 10 + 1, (b.n + 3) % 10 + 1);
