// Runs E2B's released command line program, unmodified, against a gateway and prints the
// result of each case as a JSON line. E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL select
// the gateway.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'

const program = fileURLToPath(new URL('node_modules/.bin/e2b', import.meta.url))

// run runs a program to its end.
async function run(cmd, args, input = '') {
  const env = { ...process.env, NO_UPDATE_NOTIFIER: '1', FORCE_COLOR: '0' }
  const child = spawn(cmd, args, { env, stdio: ['pipe', 'pipe', 'pipe'], timeout: 60_000, killSignal: 'SIGKILL' })
  const result = { out: '', err: '' }
  child.stdout.on('data', (d) => (result.out += d))
  child.stderr.on('data', (d) => (result.err += d))
  child.stdin.end(input)
  result.code = await new Promise((resolve, reject) => child.on('close', resolve).on('error', reject))
  return result
}

const e2b = (...args) => run(program, args)

async function ok(...args) {
  const result = await e2b(...args)
  assert.equal(result.code, 0, `e2b ${args.join(' ')}: ${result.out}${result.err}`)
  return result.out
}

function report(result) {
  process.stdout.write(JSON.stringify(result) + '\n')
}

const listed = async (...args) => JSON.parse(await ok('sandbox', 'list', '-f', 'json', ...args)).map((s) => s.sandboxId)

const cases = {
  async 'lists and describes'(id) {
    assert.ok((await listed()).includes(id))
    assert.match(await ok('sandbox', 'info', id), /State:\s+running/)
  },
  async 'runs commands and returns their exit codes'(id) {
    assert.equal(await ok('sandbox', 'exec', id, '--', 'echo', 'hi'), 'hi\n')
    const result = await e2b('sandbox', 'exec', '-e', 'A=b c', '-c', '/tmp', id, '--', 'sh', '-c', 'pwd; echo "$A"; echo no >&2; exit 7')
    assert.deepEqual([result.out, result.code], ['/tmp\nb c\n', 7])
    assert.match(result.err, /^no\n/)
  },
  async 'pipes input to a command'(id) {
    const result = await run(program, ['sandbox', 'exec', id, '--', 'wc', '-c'], 'x'.repeat(200_000))
    assert.deepEqual([result.out.trim(), result.code], ['200000', 0])
  },
  async 'shows logs'(id) {
    await ok('sandbox', 'exec', id, '--', 'echo', 'to be seen')
    const lines = (await ok('sandbox', 'logs', '--format', 'json', id)).trim().split('\n').map((l) => JSON.parse(l))
    assert.ok(lines.some((l) => l.message === 'to be seen' && l.stream === 'stdout'), JSON.stringify(lines))
    assert.match(await ok('sandbox', 'logs', '--loggers', 'process', id), /to be seen/)
  },
  async 'opens a terminal'(id) {
    const command = `stty rows 31 cols 97; ${program} sandbox connect ${id}`
    const result = await run('script', ['-qec', command, '/dev/null'], 'stty size; exit\n')
    assert.match(result.out, /31 97/)
  },
  async 'makes and removes snapshots'(id) {
    const snapshot = (await ok('sandbox', 'snapshot', 'create', id)).match(/snapshot (\S+)/)[1]
    assert.ok((await ok('sandbox', 'snapshot', 'list', id)).includes(snapshot))
    await ok('sandbox', 'snapshot', 'delete', snapshot)
    assert.ok(!(await ok('sandbox', 'snapshot', 'list', id)).includes(snapshot))
  },
  async 'pauses and resumes'() {
    const id = await create()
    await ok('sandbox', 'pause', id)
    assert.ok(!(await listed()).includes(id))
    assert.ok((await listed('--state', 'paused')).includes(id))
    await ok('sandbox', 'resume', id)
    assert.ok((await listed()).includes(id))
    await ok('sandbox', 'kill', id)
    assert.ok(!(await listed()).includes(id))
  },
  async 'reports an unknown sandbox'() {
    const result = await e2b('sandbox', 'info', 'nothere')
    assert.notEqual(result.code, 0)
    assert.match(result.out + result.err, /wasn't found/)
  },
}

const create = async () => (await ok('sandbox', 'create', '-d', 'base')).trim()

const id = await create()
for (const [name, check] of Object.entries(cases)) {
  try {
    await check(id)
    report({ name, ok: true })
  } catch (err) {
    report({ name, ok: false, error: String(err?.stack ?? err) })
  }
}
await ok('sandbox', 'kill', id)
report({ name: 'done', ok: true })
