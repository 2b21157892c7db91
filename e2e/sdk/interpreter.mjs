// Runs the released code interpreter SDK, unmodified, against a gateway and says,
// a JSON object a line, which cases hold. E2B_API_KEY, E2B_API_URL and
// E2B_SANDBOX_URL say where to.
import assert from 'node:assert/strict'
import { Sandbox } from '@e2b/code-interpreter'

function say(result) {
  process.stdout.write(JSON.stringify(result) + '\n')
}

const cases = {
  async 'runs code and keeps what it defines'(s) {
    const lines = []
    const run = await s.runCode('x = 1\nprint("hi")\nx + 1', { onStdout: (m) => lines.push(m.line) })
    assert.equal(run.text, '2')
    assert.deepEqual(run.logs.stdout, ['hi\n'])
    assert.deepEqual(lines, ['hi\n'])
    assert.equal((await s.runCode('x')).text, '1')
  },
  async 'tells errors with their traceback'(s) {
    const { error } = await s.runCode('def f():\n  return 1 / 0\nf()')
    assert.equal(error.name, 'ZeroDivisionError')
    assert.match(error.traceback, /line 2, in f/)
  },
  async 'gives variables to one execution'(s) {
    const read = 'import os; os.environ.get("COLOUR")'
    assert.equal((await s.runCode(read, { envs: { COLOUR: 'red' } })).text, "'red'")
    assert.equal((await s.runCode(read)).text, undefined)
  },
  async 'speaks JavaScript and bash'(s) {
    assert.equal((await s.runCode('[1, 2].map((n) => n * 2)', { language: 'js' })).text, '[ 2, 4 ]')
    assert.deepEqual((await s.runCode('echo shell', { language: 'bash' })).logs.stdout, ['shell\n'])
  },
  async 'has contexts'(s) {
    const one = await s.createCodeContext({ cwd: '/tmp' })
    assert.equal((await s.runCode('import os; a = 1; os.getcwd()', { context: one })).text, "'/tmp'")
    assert.ok((await s.listCodeContexts()).some((c) => c.id === one.id))
    await s.restartCodeContext(one)
    assert.equal((await s.runCode('a', { context: one })).error.name, 'NameError')
    await s.removeCodeContext(one)
    await assert.rejects(s.runCode('1', { context: one }), /not found/i)
  },
}

const sandbox = await Sandbox.create()
await Promise.all(Object.entries(cases).map(async ([name, run]) => {
  try {
    await run(sandbox)
    say({ name, ok: true })
  } catch (err) {
    say({ name, ok: false, error: String(err?.stack ?? err) })
  }
}))
await sandbox.kill()
say({ name: 'done', ok: true })
process.exit(0)
