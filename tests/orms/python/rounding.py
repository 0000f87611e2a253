"""What pandas, openpyxl and jq make of an ID: the table in docs/text.md."""

import io
import json
import shutil
import subprocess
import tempfile

import openpyxl
import pandas
from sqlalchemy import create_engine

from server import DATABASE, HOST, PORT, USER, same

ID, EXACT_IN_53_BITS = 249722523258744845, 249722523258744
ROUNDED = int(float(ID))
engine = create_engine(f"postgresql+psycopg://{USER}@{HOST}:{PORT}/{DATABASE}")


def ids(frame):
    """The IDs of a frame, as exact as they are there; None where one is missing."""
    return [None if pandas.isna(value) else int(value) for value in frame["id"]]


# pandas: a missing value makes a column of floats.
def csv(id, **options):
    return ids(pandas.read_csv(io.StringIO(f"id,n\n{id},1\n,2\n"), **options))


def query(column, **options):
    rows = f"SELECT {column} FROM (VALUES (1, {ID}), (2, NULL)) AS v(n, id) ORDER BY n"
    return ids(pandas.read_sql(rows, engine, **options))


def read_json(*values, **options):
    text = json.dumps([{"id": value} for value in values])
    return ids(pandas.read_json(io.StringIO(text), **options))


NULLABLE, INT64 = dict(dtype_backend="numpy_nullable"), dict(dtype={"id": "Int64"})
same(ids(pandas.read_csv(io.StringIO(f"id\n{ID}\n"))), [ID], "read_csv(), no value is missing")
same(csv(ID), [ROUNDED, None], "read_csv()")
same(csv(ID, **NULLABLE), [ID, None], "read_csv(dtype_backend=...)")
same(csv(EXACT_IN_53_BITS), [EXACT_IN_53_BITS, None], "read_csv(), 53 bits")
same(query("id"), [ROUNDED, None], "read_sql()")
same(query("id", **INT64), [ROUNDED, None], "read_sql(dtype=...)")
same(query("id", **NULLABLE), [ID, None], "read_sql(dtype_backend=...)")
same(query("id::text"), [ID, None], "read_sql(), text")
same(read_json(ID), [ID], "read_json(), no value is missing")
same(read_json(ID, None), [ROUNDED, None], "read_json()")
same(read_json(ID, None, **NULLABLE), [ROUNDED, None], "read_json(dtype_backend=...)")
same(read_json(str(ID), None), [ROUNDED, None], "read_json(), text")
same(read_json(str(ID), None, **INT64), [ID, None], "read_json(dtype=...), text")
keys, orders = pandas.DataFrame({"n": [1, 2]}), pandas.DataFrame({"n": [1], "id": [ID]})
same(ids(keys.merge(orders, how="left")), [ROUNDED, None], "merge()")
same(ids(keys.merge(orders.astype({"id": "Int64"}), how="left")), [ID, None], "merge(), Int64")

# Sheets.
with tempfile.NamedTemporaryFile(suffix=".xlsx") as file:
    for frame, cell in ((orders, 249722523258744800), (orders.astype({"id": str}), str(ID))):
        frame.to_excel(file.name, index=False)
        same(openpyxl.load_workbook(file.name).active["B2"].value, cell, "to_excel()")


# jq: versions before 1.7 round what they only copy.
def jq(program, *options):
    return subprocess.run(
        ["jq", *options, program], input=f'{{"id": {ID}, "text": "{ID}"}}', capture_output=True, text=True, check=True
    ).stdout.strip()


if shutil.which("jq") is None:
    print("  jq is not installed, so it was not run")
else:
    name = subprocess.run(["jq", "--version"], capture_output=True, text=True).stdout.strip()
    copies = tuple(map(int, name.removeprefix("jq-").split("-")[0].split(".")[:2])) >= (1, 7)
    same(int(jq(".id")), ID if copies else 249722523258744830, f"{name}, a copy")
    same(jq(".id == 249722523258744830"), "false" if copies else "true", f"{name}, compared")
    same(int(jq(".id + 0")) != ID, True, f"{name}, a sum is rounded")
    same(jq(".text", "--raw-output"), str(ID), f"{name}, text")
