"""Drives python-redis-lock as ../PROTOCOL.md says. Leases are whole seconds; it waits for a signal in a list (BLPOP)."""

from importlib.metadata import version

import redis
import redis_lock

import driver


class PythonRedisLock(driver.Peer):
    library, version = "python-redis-lock", version("python-redis-lock")
    # A library that does not use its list of signals does not wake it: only its own time limit does.
    patience_ms = 1000

    def __init__(self, ports, keep_ms):
        (port,) = ports
        # It blocks on the server for as long as it waits: redis-py's own limit of five seconds would break in, and send the same again.
        self.client = redis.StrictRedis(port=port, socket_timeout=None)
        self.keep_ms = keep_ms

    def handle(self, name, lease_ms):
        kept = lease_ms == 0
        return redis_lock.Lock(self.client, name, expire=(self.keep_ms if kept else lease_ms) // 1000, auto_renewal=kept)

    def acquire(self, handle, wait_ms):
        if wait_ms == 0:
            return handle.acquire(blocking=False)
        # Whole seconds, and no longer than the lease: it refuses that.
        return handle.acquire(timeout=max(wait_ms // 1000, 1))

    def release(self, handle):
        try:
            handle.release()
        except redis_lock.NotAcquired:
            return False
        return True

    def renew(self, handle, lease_ms):
        handle.extend(lease_ms // 1000)
        return True

    def stranger(self, name):
        return self.release(redis_lock.Lock(self.client, name, expire=1, id="stranger"))


driver.serve(PythonRedisLock)
