// Reads records with the released Durable Streams client, unmodified. Usage:
// node durable.mjs <stream URL of an ended record> <of a running one>; the API
// key is in MILLRACE_KEY.
import { stream, DurableStream } from '@durable-streams/client'
import assert from 'node:assert/strict'

const [ended, running] = process.argv.slice(2)
const headers = { Authorization: 'Bearer ' + process.env.MILLRACE_KEY }

async function one(name, fn) {
  try {
    await fn()
    report({ name, ok: true })
  } catch (err) {
    report({ name, ok: false, error: String(err?.stack ?? err) })
  }
}

function report(result) {
  process.stdout.write(JSON.stringify(result) + '\n')
}

const types = (items) => items.map((e) => e.type)
const output = (items) => items.filter((e) => e.type === 'stdout').map((e) => e.data).join('')
const dense = (items, from = 1) => items.forEach((e, i) => assert.equal(e.seq, from + i))

await one('catch-up', async () => {
  const res = await stream({ url: ended, headers, offset: '-1', live: false })
  const items = await res.json()
  dense(items)
  assert.equal(types(items).at(0), 'accepted')
  assert.equal(types(items).at(-1), 'end')
  assert.equal(output(items), 'one\ntwo\nthree\n')
})

await one('from an offset', async () => {
  const res = await stream({ url: ended, headers, offset: '-1', live: false })
  const all = await res.json()
  const rest = await stream({ url: ended, headers, offset: res.offset, live: false })
  assert.deepEqual(await rest.json(), [])
  const head = await DurableStream.head({ url: ended, headers })
  assert.equal(head.offset, res.offset)
  assert.ok(all.length >= 5)
})

for (const live of ['long-poll', 'sse']) {
  await one('live by ' + live, async () => {
    const res = await stream({ url: running, headers, offset: '-1', live })
    const items = []
    for await (const item of res.jsonStream()) {
      items.push(item)
      if (item.type === 'end') break
    }
    dense(items)
    assert.equal(output(items), Array.from({ length: 20 }, (_, i) => `tick ${i + 1}\n`).join(''))
    assert.equal(types(items).at(-1), 'end')
  })
}

await one('a stream that does not exist', async () => {
  await assert.rejects(stream({ url: ended.replace(/\/[^/]*$/, '/00000000000000000000000000-nobody'), headers, offset: '-1', live: false }))
})

report({ name: 'done', ok: true })
process.exit(0)
