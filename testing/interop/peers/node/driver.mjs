// What the drivers of Node libraries share: commands in, answers out, as ../PROTOCOL.md says.

import { openSync, readSync, writeSync, closeSync, readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { setImmediate as letOthersRun } from 'node:timers/promises'

// How long a counting worker waits for the lock before it looks at the time again.
const PATIENCE_MS = 20_000

// hrtime is CLOCK_MONOTONIC, as every driver counts.
const now = () => Number(process.hrtime.bigint() / 1000n)

const answer = (fields) => process.stdout.write(JSON.stringify(fields) + '\n')

// What npm brought.
export const versionOf = (library) => JSON.parse(readFileSync(new URL(`./node_modules/${library}/package.json`, import.meta.url))).version.replace(/^v/, '')

// Does what standard input says until it ends. A peer has `acquire(name, leaseMs, waitMs)`, which resolves to a handle or null, `release(handle)`,
// which resolves to whether the lock was still ours (null where the library does not say), `renew(handle, leaseMs)` and `stranger(name)`; for
// measuring, `solo(name)` has the library's own calls: `take()`, whose result `release` is given.
export async function serve (peer) {
  const held = new Map()
  const commands = {
    async lock (name, leaseMs, waitMs) {
      const from = now()
      const handle = await peer.acquire(name, Number(leaseMs), Number(waitMs))
      const at = now()
      if (handle) held.set(name, handle)
      return { got: handle !== null, from_us: from, at_us: at }
    },
    async unlock (name) {
      const handle = held.get(name)
      held.delete(name)
      const from = now()
      const released = await peer.release(handle)
      return { released, from_us: from, at_us: now() }
    },
    async renew (name, leaseMs) {
      return { renewed: await peer.renew(held.get(name), Number(leaseMs)) }
    },
    async stranger (name) {
      const from = now()
      const released = await peer.stranger(name)
      return { released, from_us: from, at_us: now() }
    },
    async solo (name, pairs) {
      const { take, release } = peer.solo(name)
      const times = []
      for (let pair = 0; pair < Number(pairs); pair++) {
        const from = process.hrtime.bigint()
        await release(await take())
        times.push(Number(process.hrtime.bigint() - from) / 1000)
      }
      times.sort((a, b) => a - b)
      const quantile = (q) => times[Math.floor((times.length - 1) * q)]
      return { p50_us: quantile(0.5), p99_us: quantile(0.99) }
    },
    async count (name, file, forMs, workers, leaseMs) {
      const end = now() + Number(forMs) * 1000
      const all = Array.from({ length: Number(workers) }, () => countUntil(peer, end, name, file, Number(leaseMs)))
      const done = await Promise.all(all)
      return { count: done.reduce((sum, one) => sum + one, 0) }
    }
  }
  answer({ ready: true, library: peer.library, version: peer.version })
  for await (const line of createInterface({ input: process.stdin })) {
    const [command, ...words] = line.split(' ')
    if (command === 'quit') break
    try {
      answer(await commands[command](...words))
    } catch (error) {
      answer({ error: String(error) })
    }
  }
  // What is held stays held until its lease ends, as with a process that dies.
  process.exit(0)
}

async function countUntil (peer, end, name, file, leaseMs) {
  let done = 0
  const counter = openSync(file, 'r+')
  while (now() < end) {
    const handle = name === '-' ? undefined : await peer.acquire(name, leaseMs, PATIENCE_MS)
    if (handle === null) continue
    await addOne(counter)
    if (handle && await peer.release(handle) === false) throw new Error('the lock was lost while counting')
    done++
  }
  closeSync(counter)
  return done
}

async function addOne (counter) {
  const digits = Buffer.alloc(12)
  readSync(counter, digits, 0, 12, 0)
  const value = Number(digits.toString())
  await letOthersRun()
  writeSync(counter, String(value + 1).padStart(12, '0'), 0)
}
