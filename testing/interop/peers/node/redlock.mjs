// Drives node-redlock, over one server or several, as ../PROTOCOL.md says. It asks again after 100 to 300 ms; `using` keeps a lock alive.

import { Redis } from 'ioredis'
import Redlock, { ExecutionError, Lock } from 'redlock'
import { serve, versionOf } from './driver.mjs'

const [ports, keepMs] = [process.argv[2].split(',').map(Number), Number(process.argv[3])]
const redlock = new Redlock(ports.map((port) => new Redis(port)))
// Its settings of tries are a number, not a time: so many fit into a wait at the longest pause, one more than that are made.
const LONGEST_PAUSE_MS = 300
const SOLO_LEASE_MS = 30_000

// Not to get, to release or to lengthen it is an answer; the rest are faults.
const unless = (failed) => (error) => {
  if (error instanceof ExecutionError) return failed
  throw error
}

async function within (waitMs, leaseMs, name) {
  const end = Date.now() + waitMs
  for (;;) {
    const retryCount = Math.floor(Math.max(0, end - Date.now()) / LONGEST_PAUSE_MS)
    const lock = await redlock.acquire([name], leaseMs, { retryCount }).catch(unless(null))
    if (lock || retryCount === 0) return lock
  }
}

// The lock is kept until `done` is called; `using` is given a promise that ends then.
async function kept (name) {
  let done
  const until = new Promise((resolve) => { done = resolve })
  let ended
  await new Promise((resolve, reject) => {
    ended = redlock.using([name], keepMs, { retryCount: 0 }, async () => { resolve(); await until })
    ended.catch(reject)
  })
  return { release: () => { done(); return ended } }
}

await serve({
  library: 'node-redlock',
  version: versionOf('redlock'),
  acquire: (name, leaseMs, waitMs) => leaseMs === 0 ? kept(name) : within(waitMs, leaseMs, name),
  release: (lock) => Promise.resolve(lock.release({ retryCount: 0 })).then(() => true).catch(unless(false)),
  // Its `using`, which keeps a lock alive, would cost more.
  solo: (name) => ({ take: () => redlock.acquire([name], SOLO_LEASE_MS), release: (lock) => lock.release() }),
  renew: async (lock, leaseMs) => { Object.assign(lock, await lock.extend(leaseMs)); return true },
  stranger: (name) => redlock.release(new Lock(redlock, [name], 'stranger', [], Date.now() + 1000), { retryCount: 0 }).then(() => true).catch(unless(false))
})
