"""What the drivers of Python libraries share: commands in, answers out, as ../PROTOCOL.md says."""

import json
import logging
import os
import sys
import threading
import time


def now_us():
    """CLOCK_MONOTONIC, as every driver counts."""
    return time.monotonic_ns() // 1000


class Peer:
    """A library: each of its drivers gives these. A handle is the library's own object."""

    library = version = None
    # How long a counting worker waits for the lock before it looks at the time again.
    patience_ms = 20_000

    def handle(self, name, lease_ms):
        """A new handle; a lease of 0 is kept alive by the library itself."""
        raise NotImplementedError

    def acquire(self, handle, wait_ms):
        """Whether the lock was got."""
        raise NotImplementedError

    def release(self, handle):
        """Whether the lock was still ours to give back."""
        raise NotImplementedError

    def renew(self, handle, lease_ms):
        """Whether it was lengthened."""
        raise NotImplementedError

    def solo(self, name):
        """For measuring, the library's own calls that take and release it."""
        raise NotImplementedError

    def stranger(self, name):
        """Whether one who does not hold the lock could release it."""
        raise NotImplementedError


class Driver:
    """One peer, driven by commands."""

    def __init__(self, peer):
        self.peer = peer
        self.held = {}

    def lock(self, name, lease_ms, wait_ms):
        handle = self.peer.handle(name, int(lease_ms))
        since = now_us()
        got = self.peer.acquire(handle, int(wait_ms))
        at = now_us()
        if got:
            self.held[name] = handle
        return {"got": got, "from_us": since, "at_us": at}

    def unlock(self, name):
        handle = self.held.pop(name)
        since = now_us()
        released = self.peer.release(handle)
        return {"released": released, "from_us": since, "at_us": now_us()}

    def renew(self, name, lease_ms):
        return {"renewed": self.peer.renew(self.held[name], int(lease_ms))}

    def stranger(self, name):
        since = now_us()
        released = self.peer.stranger(name)
        return {"released": released, "from_us": since, "at_us": now_us()}

    def solo(self, name, pairs):
        take, release = self.peer.solo(name)
        times = []
        for _ in range(int(pairs)):
            since = time.monotonic_ns()
            take()
            release()
            times.append(time.monotonic_ns() - since)
        times.sort()
        return {f"p{percent}_us": times[(len(times) - 1) * percent // 100] / 1000 for percent in (50, 99)}

    def count(self, name, file, for_ms, workers, lease_ms):
        end = time.monotonic() + int(for_ms) / 1000
        done, errors = [], []

        def work():
            try:
                done.append(self.count_until(end, name, file, int(lease_ms)))
            except Exception as error:  # passed on below, from the thread that answers
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(int(workers))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return {"count": sum(done)}

    def count_until(self, end, name, file, lease_ms):
        done = 0
        counter = os.open(file, os.O_RDWR)
        while time.monotonic() < end:
            handle = None if name == "-" else self.peer.handle(name, lease_ms)
            if handle is not None and not self.peer.acquire(handle, self.peer.patience_ms):
                continue
            add_one(counter)
            if handle is not None and self.peer.release(handle) is False:
                raise RuntimeError("the lock was lost while counting")
            done += 1
        os.close(counter)
        return done


def add_one(counter):
    value = int(os.pread(counter, 12, 0))
    time.sleep(0)
    os.pwrite(counter, b"%012d" % (value + 1), 0)


def answer(fields):
    print(json.dumps(fields), flush=True)


def serve(make_peer):
    """Does what standard input says until it ends; `make_peer` is given the ports and the kept lease."""
    # That a lock is busy is no news here.
    logging.disable(logging.WARNING)
    peer = make_peer([int(port) for port in sys.argv[1].split(",")], int(sys.argv[2]))
    driver = Driver(peer)
    commands = {name: getattr(driver, name) for name in ("lock", "unlock", "renew", "stranger", "solo", "count")}
    answer({"ready": True, "library": peer.library, "version": peer.version})
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "quit":
            break
        try:
            answer(commands[command](*arguments))
        except Exception as error:
            answer({"error": f"{type(error).__name__}: {error}"})
    # What is held stays held until its lease ends, as with a process that dies.
    sys.stdout.flush()
    os._exit(0)
