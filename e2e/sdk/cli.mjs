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
  const said = { out: '', err: '' }
  child.stdout.on('data', (d) => (said.out += d))
  child.stderr.on('data', (d) => (said.err += d))
  child.stdin.end(input)
  said.code = await new Promise((resolve, reject) => child.on('close', resolve).on('error', reject))
  return said
}

const e2b = (...args) => run(program, args)

async function ok(...args) {
  const said = await e2b(...args)
  assert.equal(said.code, 0, `e2b ${args.join(' ')}: ${said.out}${said.err}`)
  return said.out
}

function say(result) {
  process.stdout.write(JSON.stringify(result) + '\n')
}

const listed = async (...args) => JSON.parse(await ok('sandbox', 'list', '-f', 'json', ...args)).map((s) => s.sandboxId)

const cases = {
  async 'lists and describes'(id) {
    assert.ok((await listed()).includes(id))
    assert.match(await ok('sandbox', 'info', id), /State:\s+running/)
  },
  async 'runs commands and passes on how they end'(id) {
    assert.equal(await ok('sandbox', 'exec', id, '--', 'echo', 'hi'), 'hi\n')
    const said = await e2b('sandbox', 'exec', '-e', 'A=b c', '-c', '/tmp', id, '--', 'sh', '-c', 'pwd; echo "$A"; echo no >&2; exit 7')
    assert.deepEqual([said.out, said.code], ['/tmp\nb c\n', 7])
    assert.match(said.err, /^no\n/)
  },
  async 'pipes input to a command'(id) {
    const said = await run(program, ['sandbox', 'exec', id, '--', 'wc', '-c'], 'x'.repeat(200_000))
    assert.deepEqual([said.out.trim(), said.code], ['200000', 0])
  },
  async 'shows logs'(id) {
    await ok('sandbox', 'exec', id, '--', 'echo', 'to be seen')
    const lines = (await ok('sandbox', 'logs', '--format', 'json', id)).trim().split('\n').map((l) => JSON.parse(l))
    assert.ok(lines.some((l) => l.message === 'to be seen' && l.stream === 'stdout'), JSON.stringify(lines))
    assert.match(await ok('sandbox', 'logs', '--loggers', 'process', id), /to be seen/)
  },
  async 'opens a terminal'(id) {
    const command = `stty rows 31 cols 97; ${program} sandbox connect ${id}`
    const said = await run('script', ['-qec', command, '/dev/null'], 'stty size; exit\n')
    assert.match(said.out, /31 97/)
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
  async 'says what is unknown'() {
    const said = await e2b('sandbox', 'info', 'nothere')
    assert.notEqual(said.code, 0)
    assert.match(said.out + said.err, /wasn't found/)
  },
}

const create = async () => (await ok('sandbox', 'create', '-d', 'base')).trim()

const id = await create()
for (const [name, check] of Object.entries(cases)) {
  try {
    await check(id)
    say({ name, ok: true })
  } catch (err) {
    say({ name, ok: false, error: String(err?.stack ?? err) })
  }
}
await ok('sandbox', 'kill', id)
say({ name: 'done', ok: true })
