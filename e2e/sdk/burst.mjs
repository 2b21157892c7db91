// Creates many sandboxes at once with the released e2b SDK, unmodified. Each one is
// killed as soon as it runs, so that capacity becomes free for the others. Usage: node
// burst.mjs <number of creates>; E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL select the
// gateway.
import { Sandbox } from 'e2b'

const wanted = Number(process.argv[2])
const ids = new Set()
const errors = new Map()

await Promise.all(Array.from({ length: wanted }, async () => {
  try {
    const sbx = await Sandbox.create('base', { timeoutMs: 60_000, requestTimeoutMs: 120_000 })
    ids.add(sbx.sandboxId)
    await sbx.kill({ requestTimeoutMs: 120_000 })
  } catch (err) {
    errors.set(String(err), (errors.get(String(err)) ?? 0) + 1)
  }
}))

const error = JSON.stringify({ made: ids.size, errors: Object.fromEntries(errors) })
process.stdout.write(JSON.stringify({ name: 'done', ok: ids.size === wanted && errors.size === 0, error }) + '\n')
process.exit(0)
