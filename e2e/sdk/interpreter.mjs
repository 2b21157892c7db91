// Runs the released code interpreter SDK, unmodified, against a gateway and prints the
// result of each case as a JSON line. E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL select
// the gateway.
import assert from 'node:assert/strict'
import { Sandbox, TimeoutError } from '@e2b/code-interpreter'

function report(result) {
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
  async 'reports errors with their traceback'(s) {
    const { error } = await s.runCode('def f():\n  return 1 / 0\nf()')
    assert.equal(error.name, 'ZeroDivisionError')
    assert.match(error.traceback, /line 2, in f/)
  },
  async 'sets variables for one execution'(s) {
    const read = 'import os; os.environ.get("COLOR")'
    assert.equal((await s.runCode(read, { envs: { COLOR: 'red' } })).text, 'red')
    assert.equal((await s.runCode(read)).text, undefined)
  },
  async 'runs JavaScript and bash'(s) {
    assert.equal((await s.runCode('[1, 2].map((n) => n * 2)', { language: 'js' })).text, '[ 2, 4 ]')
    assert.deepEqual((await s.runCode('echo shell', { language: 'bash' })).logs.stdout, ['shell\n'])
  },
  async 'returns results in all their formats'(s) {
    const shown = await s.runCode('class A:\n  def _repr_html_(self): return "<b>"\n  def _repr_json_(self): return {"a": [1]}\n  def __repr__(self): return "A"\nA()')
    const [r] = shown.results
    assert.deepEqual([r.text, r.html, r.json, r.isMainResult, r.formats().sort()], ['A', '<b>', { a: [1] }, true, ['html', 'json']])
  },
  async 'displays objects of IPython.display, lists and dicts'(s) {
    const code = 'from IPython.display import HTML, Image, Markdown, display\ndisplay(HTML("<b>"), Markdown("# m"), Image(data=b"\\x89PNG"))\n{"a": [1, None]}'
    const { results, text } = await s.runCode('%matplotlib inline\n' + code)
    assert.deepEqual(results.map((r) => [r.isMainResult, ...r.formats()]), [[false, 'html'], [false, 'markdown'], [false, 'png'], [true, 'json']])
    assert.deepEqual([results[0].html, results[3].json, text], ['<b>', { a: [1, null] }, "{'a': [1, None]}"])
  },
  async 'displays objects that an installed IPython would only print'(s) {
    await s.files.write([
      { path: '/tmp/installed/IPython/__init__.py', data: 'version = 1' },
      { path: '/tmp/installed/IPython/display.py', data: 'def display(v): print(v)\nclass HTML:\n  def _repr_html_(self): return "<i>"' },
    ])
    const context = await s.createCodeContext({ cwd: '/tmp/installed' })
    const { results, logs } = await s.runCode('import IPython\nfrom IPython.display import HTML, display\ndisplay(HTML())\nIPython.version', { context })
    assert.deepEqual([results.map((r) => r.html), results[1].text, logs.stdout], [['<i>', undefined], '1', []])
  },
  async 'installs packages with pip'(s) {
    const { logs } = await s.runCode('!pip install --no-index nothing-there')
    assert.doesNotMatch(logs.stderr.join(''), /externally-managed/)
  },
  async 'streams output before a line is complete'(s) {
    const at = []
    // The code prints each piece only after the client has received the one before.
    const code = 'import os, time\nfor i in range(3):\n  print(i, end="")\n  while not os.path.exists(f"/tmp/piece-{i}"): time.sleep(0.01)\nprint("\\nfour")\nprint("five")'
    const seen = []
    const onStdout = (m) => {
      at.push(m.line)
      if (/^\d$/.test(m.line)) seen.push(s.files.write(`/tmp/piece-${m.line}`, ''))
    }
    const { logs } = await s.runCode(code, { context: await s.createCodeContext(), onStdout })
    await Promise.all(seen)
    assert.deepEqual([...at.slice(0, 3), at.slice(3).join('')], ['0', '1', '2', '\nfour\nfive\n'])
    assert.deepEqual(logs.stdout, at)
  },
  async 'interrupts an abandoned run when another one begins'(s) {
    for (const [language, code] of [['python', 'import time\nwhile True: time.sleep(0.05)'], ['bash', 'sleep 1000'], ['javascript', 'await new Promise(() => {})']]) {
      const context = await s.createCodeContext({ language })
      await assert.rejects(s.runCode(code, { context, timeoutMs: 300 }), { name: 'TimeoutError' })
      const next = await s.runCode(language === 'bash' ? 'echo on' : '"on"', { context, timeoutMs: 20_000 })
      assert.equal(next.text ?? next.logs.stdout[0].trim(), 'on', language)
    }
  },
  async 'reports that its sandbox was killed'() {
    const other = await Sandbox.create()
    let began
    const printed = new Promise((resolve) => (began = resolve))
    const run = other.runCode('import time; print(1); time.sleep(100)', { onStdout: began })
    const failed = assert.rejects(run, (e) => e instanceof TimeoutError && /killed/.test(e.message))
    await printed
    await other.kill()
    await failed
  },
  async 'calls callbacks as output arrives'(s) {
    const [out, err, results, errors] = [[], [], [], []]
    const opts = { onStdout: (m) => out.push(m), onStderr: (m) => err.push(m), onResult: (r) => results.push(r), onError: (e) => errors.push(e), requestTimeoutMs: 60_000, timeoutMs: 0 }
    const run = await s.runCode('import sys\nprint("o")\nprint("e", file=sys.stderr)\ndisplay("shown") if "display" in globals() else None\n"last"', opts)
    assert.deepEqual([out.map((m) => [m.line, m.error]), err.map((m) => [m.line, m.error])], [[['o\n', false]], [['e\n', true]]])
    assert.ok(out[0].timestamp > 0)
    assert.equal(results.at(-1).text, 'last')
    assert.equal(run.results.filter((r) => r.isMainResult).length, 1)
    assert.ok(run.executionCount > 0)
    const failed = await s.runCode('raise ValueError("v")', opts)
    assert.deepEqual(errors.map((e) => [e.name, e.value]), [['ValueError', 'v']])
    assert.equal(failed.error.name, 'ValueError')
    assert.equal(failed.toJSON().error.name, 'ValueError')
  },
  async 'supports contexts of each language, by id'(s) {
    const all = [
      ['javascript', 'var n = 1; n + 1', '2'], ['typescript', 'const n: number = 2; n + 1', '3'], ['python', 'n = 3; n + 1', '4'],
      ['java', 'int n = 4; n + 1', '5'], ['r', 'n <- 5; n + 1', '[1] 6'],
    ]
    for (const [language, code, want] of all) {
      const context = await s.createCodeContext({ language, requestTimeoutMs: 60_000 }).catch((e) => {
        if (['typescript', 'java', 'r'].includes(language) && /^400/.test(e.message)) return null // the template does not have its program
        throw e
      })
      if (!context) continue
      assert.equal(context.language, language)
      const run = await s.runCode(code, { context })
      assert.equal(run.text, want, language)
      await s.restartCodeContext(context.id)
      await s.removeCodeContext(context.id)
      await assert.rejects(s.removeCodeContext(context.id))
    }
    await assert.rejects(s.runCode('1', { language: 'cobol' }))
    await assert.rejects(s.createCodeContext({ language: 'cobol' }))
    await assert.rejects(s.createCodeContext({ cwd: '/nowhere' }))
  },
  async 'runs code of any size, with any character'(s) {
    const long = await s.runCode(`len("${'x'.repeat(3 << 20)}")`, { requestTimeoutMs: 180_000 })
    assert.equal(long.text, String(3 << 20))
    assert.equal((await s.runCode('"a\0b".length', { language: 'js', requestTimeoutMs: 180_000 })).text, '3')
    assert.match((await s.runCode('"a\0b"')).error.value, /null bytes/)
  },
  async 'reports why a request is rejected'(s) {
    await assert.rejects(s.runCode('1', { language: 'cobol' }), { message: '400 unknown language "cobol"' })
    await assert.rejects(s.runCode('1', { envs: { 'A=B': 'x' } }), (e) => /^400 .*A=B/.test(e.message) || assert.fail(e.message))
    await assert.rejects(s.createCodeContext({ cwd: '/nowhere' }), { message: "400 cwd '/nowhere' does not exist" })
  },
  async 'creates contexts in the home of root'(s) {
    if (process.env.MILLRACE_E2E_ROOT !== '1') return
    for (const [language, code] of [['python', 'import os; os.getcwd()'], ['javascript', 'process.cwd()']]) {
      const context = await s.createCodeContext({ cwd: '/root', language })
      assert.equal((await s.runCode(code, { context })).text, '/root')
    }
  },
  async 'keeps one kernel when code forks, and its event loop between runs'(s) {
    const context = await s.createCodeContext()
    const run = await s.runCode('\n    import os, asyncio\n    pid = os.fork()\n    if pid: os.waitpid(pid, 0)\n    print("child" if pid == 0 else "parent")\n    pid > 0', { context })
    assert.deepEqual([run.logs.stdout.join(''), run.text], ['child\nparent\n', 'True'])
    await s.runCode('async def f():\n  await asyncio.sleep(.2)\n  print("between")\nt = asyncio.create_task(f())', { context })
    const kernel = (await s.commands.list()).find((p) => p.tag === `context:${context.id}`)
    let seen = ''
    await new Promise((resolve, reject) => s.commands.connect(kernel.pid, { onStdout: (d) => (seen += d).includes('between\n') && resolve() }).catch(reject))
    assert.equal(seen, 'ready\nbetween\n')
  },
  async 'draws charts'(s) {
    const drawn = await s.runCode('import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4])\nplt.show()')
    if (drawn.error?.name === 'ModuleNotFoundError') return
    assert.equal(Buffer.from(drawn.results[0].png, 'base64').subarray(1, 4).toString(), 'PNG')
    assert.equal(drawn.results[0].chart.type, 'line')
  },
  async 'interrupts abandoned runs'(s) {
    const context = await s.createCodeContext()
    await assert.rejects(s.runCode('import time\nwhile True: time.sleep(0.05)', { context, timeoutMs: 1000 }), /timed out/i)
    const mine = (await s.commands.list()).filter((p) => p.tag === `execution:${context.id}`)
    assert.equal(mine.length, 1)
    assert.equal(await s.commands.kill(mine[0].pid), true)
    assert.equal((await s.runCode('1 + 1', { context })).text, '2')
  },
  async 'supports contexts'(s) {
    const one = await s.createCodeContext({ cwd: '/tmp' })
    assert.equal((await s.runCode('import os; a = 1; os.getcwd()', { context: one })).text, '/tmp')
    assert.ok((await s.listCodeContexts()).some((c) => c.id === one.id))
    await s.restartCodeContext(one)
    assert.equal((await s.runCode('a', { context: one })).error.name, 'NameError')
    await s.removeCodeContext(one)
    await assert.rejects(s.runCode('1', { context: one }), { message: `Context ${one.id} not found` })
  },
}

const sandbox = await Sandbox.create()
await Promise.all(Object.entries(cases).map(async ([name, run]) => {
  try {
    await run(sandbox)
    report({ name, ok: true })
  } catch (err) {
    report({ name, ok: false, error: String(err?.stack ?? err) })
  }
}))
await sandbox.kill()
report({ name: 'done', ok: true })
process.exit(0)
