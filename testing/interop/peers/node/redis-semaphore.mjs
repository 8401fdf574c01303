// Drives redis-semaphore's Mutex as ../PROTOCOL.md says. It asks every 10 ms, keeps a lock alive, and does not say whether a release came too late.

import { Redis } from 'ioredis'
import { Mutex } from 'redis-semaphore'
import { serve, versionOf } from './driver.mjs'

const [port, keepMs] = process.argv.slice(2).map(Number)
const client = new Redis(port)

// A lost lock would end the process; here the runner sees it.
const onLockLost = (error) => console.error(String(error))

function handle (name, leaseMs, waitMs) {
  const time = leaseMs === 0 ? { lockTimeout: keepMs } : { lockTimeout: leaseMs, refreshInterval: 0 }
  const wait = waitMs === 0 ? { acquireAttemptsLimit: 1 } : { acquireTimeout: waitMs }
  return new Mutex(client, name, { ...time, ...wait, onLockLost })
}

await serve({
  library: 'redis-semaphore',
  version: versionOf('redis-semaphore'),
  acquire: async (name, leaseMs, waitMs) => {
    const mutex = handle(name, leaseMs, waitMs)
    return await mutex.tryAcquire() ? mutex : null
  },
  release: (mutex) => mutex.release().then(() => null),
  solo: (name) => {
    const mutex = new Mutex(client, name)
    return { take: () => mutex.acquire(), release: () => mutex.release() }
  },
  renew: () => { throw new Error('redis-semaphore lengthens by itself only') },
  stranger: (name) => new Mutex(client, name, { identifier: 'stranger', acquiredExternally: true }).release().then(() => null)
})
