#!/usr/bin/env python3
"""Issues snowflake IDs beside the servers, with a worker ID that the program leases itself.

docs/lease-protocol.md has the rules. This client asks a registry in PostgreSQL, by psycopg2
(Debian: python3-psycopg2), and issues IDs of the default generator.

    ids = LeasedIds("host=db1 dbname=registry user=producer", state="/var/lib/producer/lease")
    print(ids.next_id())
    ids.close()
"""
import argparse
import contextlib
import fcntl
import json
import os
import random
import signal
import socket
import sys
import threading
import time

import psycopg2

# The default generator: Unix ms of tick 0, ticks of 1 ms, the widths of its fields.
EPOCH, WORKER_BITS, SEQUENCE_BITS = 1735689600000, 10, 12
FLOOR_LIMIT = 2 * 86400 * 1000  # ms by which a floor may be ahead of the clock
CALL_SECONDS = 5                # for how long a call of the registry may take
# Settings of the role or of the database must not change what a reply means.
OPTIONS = ("-c client_min_messages=warning -c default_transaction_read_only=off -c statement_timeout=5s"
           " -c lock_timeout=5s -c default_transaction_isolation=read\\ committed")


class LeaseError(Exception):
    """There is no ID now."""


def parts(value):
    """The name of an answer, and its particulars."""
    return (value, {}) if isinstance(value, str) else next(iter(value.items()))


class Registry:
    """A registry in PostgreSQL. A request is one statement, which is a transaction of its own."""

    def __init__(self, conninfo, pool):
        self.conninfo, self.pool, self.connection = conninfo, pool, None

    def ask(self, request):
        """Returns the reply. If an old connection turns out to be gone, the same request is sent
        again, unchanged: the registry has one answer to it."""
        if self.connection is not None:
            try:
                return self._ask(request)
            except (psycopg2.OperationalError, psycopg2.InterfaceError):
                self.close()
        return self._ask(request)

    def _ask(self, request):
        if self.connection is None:
            self.connection = psycopg2.connect(
                self.conninfo, connect_timeout=CALL_SECONDS, target_session_attrs="read-write", options=OPTIONS)
            self.connection.autocommit = True
        del self.connection.notices[:]
        with socket.socket(fileno=os.dup(self.connection.fileno())) as wire, self.connection.cursor() as cursor:
            # A registry that is frozen does not end the statement itself.
            limit = threading.Timer(CALL_SECONDS, wire.shutdown, [socket.SHUT_RDWR])
            limit.start()
            try:
                cursor.execute("SELECT _snowflake.lease(%s, %s)::text", (self.pool, json.dumps(request)))
                reply = cursor.fetchone()[0]
            finally:
                limit.cancel()
                limit.join()
        # As when a wait for a synchronous standby was ended: the registry can lose this reply.
        if self.connection.notices:
            raise LeaseError("the registry has warned: " + self.connection.notices[0].strip())
        return json.loads(reply)

    def close(self):
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()


class LeasedIds:
    """Issues IDs in increasing order.

    state: a file that stays on this machine. It makes the identity, and its lock gives that to one
        process at a time. Without one, each start is a new holder.
    worker: the worker ID to claim; None: any.
    """

    def __init__(self, conninfo, pool="default", state=None, worker=None):
        self.registry, self.fixed = Registry(conninfo, pool), worker
        self.holder = {"identity": self._identity(state), "host": socket.gethostname(), "address": "", "port": 0,
                       "data_directory": os.path.abspath(state or sys.argv[0])}
        # Guards what follows: the right and whether it is renewed, the position, the clock.
        self.lock = threading.Condition()
        self.right, self.holds, self.closed, self.trouble = None, False, False, "the registry was not asked yet"
        self.tick, self.sequence = -1, 0
        self.time_ns, self.monotonic_ns = 0, time.monotonic_ns()
        self.process, self.needed, self.failures, self.memory = os.getpid(), False, 0, None
        self._begin()
        self.keeper = threading.Thread(target=self._keep, daemon=True)
        self.keeper.start()

    def _identity(self, state):
        if not state:
            return {"system": random.SystemRandom().getrandbits(53), "boot": os.urandom(16).hex(),
                    "device": 0, "inode": 0, "generator": 1}
        self.file = open(state, "ab+")
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LeaseError(f"a different process uses {state}") from error
        self.file.seek(0)
        number = self.file.read()
        if not number:
            number = b"%d" % random.SystemRandom().getrandbits(53)
            self.file.write(number)
            self.file.flush()
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:
            boot_id = boot.read().strip().replace("-", "")
        found = os.fstat(self.file.fileno())
        return {"system": int(number), "boot": boot_id, "device": found.st_dev, "inode": found.st_ino, "generator": 0}

    def _begin(self):
        self.nonce, self.number = os.urandom(16).hex(), 0
        self.holder["started"] = time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def next_id(self, wait=5.0):
        """Returns the next ID. Waits for up to so many seconds while there is none."""
        # A child would issue what its parent issues.
        if os.getpid() != self.process:
            raise LeaseError("a different process has leased the worker ID")
        until = time.monotonic() + wait
        with self.lock:
            while True:
                new = self._take()
                if new is not None:
                    return new
                left = until - time.monotonic()
                if self.closed or left <= 0:
                    raise LeaseError(self.trouble or "the registry has not confirmed more time yet")
                self.lock.wait(min(left, 0.1 if self.needed or not self.right else 0.001))

    def _clock(self):
        """The generator's clock in ms, which never goes back. Where it is ahead of the wall clock,
        it runs at half speed: so a lead shrinks, and IDs do not run out meanwhile."""
        now = time.monotonic_ns()
        self.time_ns = max(time.time_ns(), self.time_ns + (now - self.monotonic_ns) // 2)
        self.monotonic_ns = now
        return self.time_ns // 1_000_000

    def _take(self):
        if self.right is None or self.closed:
            return None
        tick = self._clock() - EPOCH
        sequence = self.sequence + 1 if tick == self.tick else random.getrandbits(6)
        # What would be issued counts, not the wall clock, which may have been set back.
        if tick < 0 or EPOCH + tick >= self.right["bound"]:
            self.needed = True
            self.lock.notify_all()
            return None
        if sequence >> SEQUENCE_BITS:
            return None
        self.tick, self.sequence = tick, sequence
        return (tick << WORKER_BITS | self.right["worker"]) << SEQUENCE_BITS | sequence

    def close(self):
        """Issues no more IDs, and returns the worker ID."""
        if os.getpid() != self.process:
            return
        with self.lock:
            self.closed, self.trouble = True, self.trouble or "no more IDs are issued"
            self.lock.notify_all()
        self.keeper.join()
        if self.holds:
            self.holds = False
            try:
                self.registry.ask(self._request("release", {**self._token(), "end": self._furthest()}))
            except (psycopg2.Error, LeaseError, OSError):
                pass  # the lease ends by itself
        self.registry.close()

    def _furthest(self):
        """No ID whose tick begins at or after it has been issued."""
        return max(EPOCH + self.tick + 1, self.right["floor"])

    def _token(self):
        return {key: self.right[key] for key in ("worker", "counter", "bound")}

    def _request(self, name, ask):
        self.number += 1
        return {"format": 1, "asker": self.holder, "nonce": self.nonce, "number": self.number,
                "clock": time.time_ns() // 1_000_000, "memory": self.memory, "ask": {name: ask}}

    def _next_request(self):
        if not self.holds:
            return self._request("acquire", {"fixed": self.fixed, "last": self.right and self.right["worker"]})
        return self._request("renew", {**self._token(), "furthest": self._furthest()})

    def _keep(self):
        while not self.closed:
            sent = time.monotonic()
            try:
                with self.lock:
                    request, self.needed = self._next_request(), False
                reply = self.registry.ask(request)
                with self.lock:
                    pause, self.failures = self._conclude(reply), 0
            except Exception as error:  # whatever it is, the bound stands
                self.registry.close()
                self.trouble, self.failures = str(error).strip(), self.failures + 1
                is_early = self.right and 2 * (self.right["bound"] - time.time_ns() // 1_000_000) > self.right["span"]
                longest = max(1, min(10, self.right["terms"]["patience"] / 2000)) if is_early else 1
                pause = min(2 ** min(self.failures, 5) / 2, longest)
            with self.lock:
                self.lock.notify_all()
                soonest = sent + (pause if self.trouble else min(pause, 0.2))
                self.lock.wait_for(lambda: self.closed or self.needed and time.monotonic() >= soonest,
                                   sent + pause - time.monotonic())

    def _conclude(self, reply):
        """Takes a reply in. Returns how many seconds after the request to send the next one."""
        if (reply["nonce"], reply["number"]) != (self.nonce, self.number):
            return 0.02
        self.memory = reply["memory"]
        kind, what = parts(reply["answer"])
        if kind == "granted":
            return self._granted(what)
        if kind == "renewed":
            self.right["bound"] = max(self.right["bound"], what["bound"])
            return self._confirmed(what)
        self.trouble = "the registry refuses the request: " + json.dumps(reply["answer"])
        why, what = parts(what) if kind == "refused" else (kind, {"retry": 20})
        if why == "ignored" or why == "fenced" and what["why"] == "copied":
            self.right, self.holds = None, False
            self._begin()
        elif why in ("fenced", "foreign") and self.holds:
            self.holds = False  # what lies below the bound can still be issued
            return 0.02
        return min(max(what.get("retry", 1000), 20), 1000) / 1000

    def _granted(self, grant):
        if grant["floor"] - time.time_ns() // 1_000_000 > FLOOR_LIMIT:
            self.trouble = f"the floor is too far ahead of the clock: {grant['floor']}"
            return 10
        self.right, self.holds = grant, True
        if grant["terms"]["ids"]["end"] > 1 << WORKER_BITS:
            self.trouble, self.closed = "the pool has worker IDs that the layout cannot hold", True
            return 0
        self.time_ns = max(self.time_ns, grant["floor"] * 1_000_000)
        return self._confirmed(grant)

    def _confirmed(self, answer):
        self.trouble = ""
        self.right["span"] = left = self.right["bound"] - max(time.time_ns() // 1_000_000, self._furthest())
        return max(min(answer["again"] * random.uniform(0.8, 1.2), left / 3), 20) / 1000


def main():
    parser = argparse.ArgumentParser(description="Prints snowflake IDs with a worker ID that it leases.")
    parser.add_argument("registry", help="conninfo or URL of the registry's database")
    parser.add_argument("--pool", default="default")
    parser.add_argument("--state", help="a file that stays, for the identity")
    parser.add_argument("--worker", type=int, help="the worker ID to claim")
    parser.add_argument("--count", type=int, default=1, help="how many IDs; 0: until it is stopped")
    parser.add_argument("--interval", type=float, default=0, help="seconds between two IDs")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with contextlib.closing(LeasedIds(options.registry, options.pool, options.state, options.worker)) as ids:
        left = options.count
        while left or not options.count:
            try:
                print(ids.next_id(), flush=True)
                left -= 1
            except LeaseError as error:
                print(error, file=sys.stderr, flush=True)
                if ids.closed or options.count:
                    return 1
            time.sleep(options.interval)


if __name__ == "__main__":
    sys.exit(main())
