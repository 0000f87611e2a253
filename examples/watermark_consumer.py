#!/usr/bin/env python3
"""Reads new rows of a publication in the order of their IDs, and misses none.

docs/change-stream.md explains watermarks. Rows wait here until a watermark says that all rows with
smaller IDs have come; then they are written, as JSON, one a line. By psycopg2 (Debian:
python3-psycopg2).

    watermark_consumer.py 'host=db1 dbname=shop user=reader' --slot orders --publication orders \\
        --generator public.order_ids --state /var/lib/consumer/orders.json

The slot is one of plugin pgoutput. After a crash of this program, rows may be written twice: their
IDs tell.
"""
import argparse
import heapq
import json
import os
import select
import struct
import sys

import psycopg2
import psycopg2.extras


class Reader:
    """Takes a message of pgoutput, protocol 1, apart."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("!" + form, self.data, self.at)
        self.at += struct.calcsize("!" + form)
        return values[0]

    def text(self):
        end = self.data.index(b"\0", self.at)
        value, self.at = self.data[self.at:end].decode(), end + 1
        return value

    def bytes(self, length):
        self.at += length
        return self.data[self.at - length:self.at]

    def columns(self):
        """The names of a relation's columns."""
        names = []
        for _ in range(self.take("h")):
            self.take("b")
            names.append(self.text())
            self.take("i"), self.take("i")
        return names

    def row(self):
        """The values of a new row, as text."""
        values = []
        for _ in range(self.take("h")):
            kind = self.take("c")
            values.append(self.bytes(self.take("i")).decode() if kind == b"t" else None)
        return values


class Consumer:
    def __init__(self, arguments):
        self.arguments = arguments
        self.watermark = 0  # all rows below it are written
        self.waiting = []   # the other rows, by their IDs, and where their transactions commit
        self.relations = {}
        self.commit = 0
        if os.path.exists(arguments.state):
            with open(arguments.state, encoding="utf-8") as file:
                self.watermark = json.load(file)["watermark"]

    def handle(self, data, position):
        """Returns up to where the slot need not send again, if that is known now."""
        message = Reader(data)
        kind = message.take("c")
        if kind == b"B":
            self.commit = message.take("Q")
        elif kind == b"R":
            relation = message.take("I")
            schema, name = message.text(), message.text()
            message.take("c")
            self.relations[relation] = (f"{schema}.{name}", message.columns())
        elif kind == b"I":
            table, names = self.relations[message.take("I")]
            message.take("c")
            row = dict(zip(names, message.row()))
            key = int(row[self.arguments.column])
            # One that was written before, and is sent again.
            if key >= self.watermark:
                heapq.heappush(self.waiting, (key, self.commit, json.dumps({"table": table, **row})))
        elif kind == b"M":
            is_transactional = message.take("b")
            message.take("Q")
            prefix = message.text()
            content = message.bytes(message.take("I"))
            if prefix == "snowflake_watermark" and not is_transactional:
                return self.mark(json.loads(content), position)
        return None

    def mark(self, told, position):
        horizon = int(told["horizon"])
        if told["generator"] != self.arguments.generator or horizon <= self.watermark:
            return None
        while self.waiting and self.waiting[0][0] < horizon:
            print(heapq.heappop(self.waiting)[2])
        sys.stdout.flush()
        # What was written is stored first: a row may be written twice, but none is left out.
        self.watermark = horizon
        with open(self.arguments.state + ".new", "w", encoding="utf-8") as file:
            json.dump({"watermark": horizon}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self.arguments.state + ".new", self.arguments.state)
        # Transactions whose rows wait are sent again.
        return min((commit for _, commit, _ in self.waiting), default=position)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("server", help="a libpq conninfo")
    parser.add_argument("--slot", required=True)
    parser.add_argument("--publication", required=True)
    parser.add_argument("--generator", default="public.snowflake_default")
    parser.add_argument("--column", default="id")
    parser.add_argument("--state", required=True, help="a file that says how far the rows are written")
    arguments = parser.parse_args()
    consumer = Consumer(arguments)
    connection = psycopg2.connect(
        arguments.server, connection_factory=psycopg2.extras.LogicalReplicationConnection)
    cursor = connection.cursor()
    cursor.start_replication(slot_name=arguments.slot, options={
        "proto_version": "1", "publication_names": arguments.publication, "messages": "true"})
    while True:
        message = cursor.read_message()
        if message is None:
            select.select([cursor], [], [], 10)
            cursor.send_feedback()  # the server ends a connection that is silent
            continue
        flushed = consumer.handle(message.payload, message.data_start)
        if flushed:
            cursor.send_feedback(flush_lsn=flushed)


if __name__ == "__main__":
    main()
