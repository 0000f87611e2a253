"""What the tests of the Python recipes share: the server, and how many statements it got."""

import os

import psycopg

HOST = "127.0.0.1"
PORT = int(os.environ["PGPORT"])
USER = os.environ["PGUSER"]
DATABASE = os.environ["PGDATABASE"]

_connection = psycopg.connect(host=HOST, port=PORT, user=USER, dbname=DATABASE, autocommit=True)


def sql(statement, *parameters):
    """Runs a statement, and returns its rows."""
    cursor = _connection.execute(statement, parameters or None)
    return cursor.fetchall() if cursor.description else []


class Counted:
    """Counts the statements that the server gets in a block, by how they begin."""

    def __enter__(self):
        sql("SELECT pg_stat_statements_reset()")
        return self

    def __exit__(self, *error):
        self._calls = sql("SELECT query, calls FROM pg_stat_statements")

    def calls(self, beginning):
        return sum(calls for query, calls in self._calls if query.startswith(beginning))


def same(got, expected, what):
    """Fails unless two values are equal."""
    if got != expected:
        raise SystemExit(f"{what}: got {got!r}, expected {expected!r}")
    print(f"  {what}: {got!r}")
