"""Drives redis-py's Lock as ../PROTOCOL.md says. It has no watchdog, and asks every 100 ms while it waits."""

from importlib.metadata import version

import redis
from redis.exceptions import LockError

import driver

SOLO_LEASE_MS = 30_000


class RedisPy(driver.Peer):
    library, version = "redis-py", version("redis")

    def __init__(self, ports, _keep_ms):
        (port,) = ports
        self.client = redis.Redis(port=port)

    def handle(self, name, lease_ms):
        if lease_ms == 0:
            raise NotImplementedError("redis-py keeps no lock alive")
        return self.client.lock(name, timeout=lease_ms / 1000, thread_local=False)

    def acquire(self, handle, wait_ms):
        if wait_ms == 0:
            return handle.acquire(blocking=False)
        return handle.acquire(blocking_timeout=wait_ms / 1000)

    def release(self, handle):
        try:
            handle.release()
        except LockError:
            return False
        return True

    def renew(self, handle, lease_ms):
        return handle.extend(lease_ms / 1000, replace_ttl=True)

    def solo(self, name):
        handle = self.handle(name, SOLO_LEASE_MS)
        return handle.acquire, handle.release

    def stranger(self, name):
        handle = self.handle(name, 1000)
        # A handle without a token refuses by itself: with one, the server has to.
        handle.local.token = b"stranger"
        return self.release(handle)


driver.serve(RedisPy)
