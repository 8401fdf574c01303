"""Drives pottery's Redlock, over one server or several, as ../PROTOCOL.md says. It has no watchdog, and asks again after up to 200 ms."""

from importlib.metadata import version

import pottery
import redis

import driver

# It counts extensions, and allows three where nothing else is said.
EXTENSIONS = 100


class Pottery(driver.Peer):
    library, version = "pottery", version("pottery")

    def __init__(self, ports, _keep_ms):
        self.clients = {redis.Redis(port=port) for port in ports}

    def handle(self, name, lease_ms):
        if lease_ms == 0:
            raise NotImplementedError("pottery keeps no lock alive")
        return pottery.Redlock(key=name, masters=self.clients, auto_release_time=lease_ms / 1000, num_extensions=EXTENSIONS)

    def acquire(self, handle, wait_ms):
        if wait_ms == 0:
            return handle.acquire(blocking=False)
        return handle.acquire(timeout=wait_ms / 1000)

    def release(self, handle):
        try:
            handle.release()
        except pottery.ReleaseUnlockedLock:
            return False
        return True

    def renew(self, handle, _lease_ms):
        handle.extend()
        return True

    def solo(self, name):
        # Ten seconds, as it has it where nothing else is said.
        handle = pottery.Redlock(key=name, masters=self.clients)
        return handle.acquire, handle.release

    def stranger(self, name):
        return self.release(self.handle(name, 1000))


driver.serve(Pottery)
