// The kernel of one context for JavaScript, and (with "client" as its first argument)
// one execution in it; see serve.py and client.py, which it corresponds to. It
// runs as the body of a function, so that code may use the same names.
'use strict'
const fs = require('node:fs')
const net = require('node:net')
const os = require('node:os')
const path = require('node:path')
const util = require('node:util')

// A file, as Node.js before 20 does not support abstract addresses.
const file = (context) => path.join(os.tmpdir(), '.millrace-context-' + context)

function client(context, variables, code) {
  const emit = (line) => process.stdout.write(JSON.stringify(line) + '\n')
  const fail = (name, value) => {
    emit({ type: 'error', name, value, traceback: `${name}: ${value}` })
    emit({ type: 'end_of_execution' })
    process.exitCode = 1
  }
  const until = Date.now() + 30000
  const dial = () => {
    let last = ''
    const kernel = net.createConnection({ path: file(context) })
    let there = false
    kernel.on('connect', () => {
      there = true
      kernel.write(JSON.stringify({ code, env_vars: JSON.parse(variables) }) + '\n')
      process.on('SIGURG', () => kernel.write('left\n')) // its client has disconnected
      emit({ type: 'keepalive' })
    })
    kernel.on('data', (part) => {
      process.stdout.write(part)
      last = (last + part.toString('latin1')).slice(-64)
    })
    kernel.on('error', (e) => {
      if (there) return
      if (Date.now() > until) fail('KernelUnreachable', `the kernel does not answer: ${e.message}`)
      else setTimeout(dial, 10)
    })
    kernel.on('close', () => {
      if (there && !last.endsWith('{"type":"end_of_execution"}\n')) fail('KernelDied', 'the kernel ended before the code did')
    })
  }
  dial()
}

function serve(context, language) {
  const inspector = require('node:inspector')
  const { spawnSync } = require('node:child_process')
  // Between two executions output is written to the kernel's own record, as plain text.
  const record = { stdout: process.stdout.write.bind(process.stdout), stderr: process.stderr.write.bind(process.stderr) }
  // TypeScript without its types: by esbuild, where the template has it, else by node
  // itself. Unused imports are kept: later code may use them.
  const keep = '--tsconfig-raw={"compilerOptions":{"importsNotUsedAsValues":"preserve","preserveValueImports":true}}'
  const esbuild = (code) => spawnSync('esbuild', ['--loader=ts', '--log-level=error', '--sourcefile=cell.ts', keep], { input: code, encoding: 'utf8', maxBuffer: 1 << 26 })
  const builtIn = require('node:module').stripTypeScriptTypes
  if (language === 'typescript' && !builtIn && esbuild('').error) {
    console.error(`TypeScript needs esbuild (Debian has it), or a node of 22.6 or later: this is ${process.version}`)
    process.exit(1)
  }
  let to = null
  const emit = (line) => {
    if (to) to.write(JSON.stringify(line) + '\n')
    else if (record[line.type]) record[line.type](line.text)
    else if (line.type === 'result' && !line.is_main_result) record.stdout(line.text + '\n')
  }
  for (const stream of ['stdout', 'stderr']) {
    process[stream].write = (data, encoding, done) => {
      const text = typeof data === 'string' ? data : Buffer.from(data).toString('utf8')
      emit({ type: stream, text, timestamp: Date.now() * 1000000 })
      const after = typeof encoding === 'function' ? encoding : done
      if (after) process.nextTick(after)
      return true
    }
  }
  const forms = (value) => {
    const found = { text: typeof value === 'string' ? value : util.inspect(value) } // E2B's server sends strings without quotes
    for (const [form, name] of Object.entries({ html: 'toHTML', svg: 'toSVG', png: 'toPNG', markdown: 'toMarkdown' })) {
      if (value && typeof value[name] === 'function') found[form] = String(value[name]())
    }
    return found
  }
  globalThis.require = require('node:module').createRequire(process.cwd() + '/')
  globalThis.display = (...values) => values.forEach((v) => emit({ type: 'result', is_main_result: false, ...forms(v) }))
  const session = new inspector.Session()
  session.connect()
  session.post('Runtime.enable')
  const evaluate = (expression) => new Promise((resolve, reject) => {
    session.post('Runtime.evaluate', { expression, replMode: true, awaitPromise: true, objectGroup: 'c' }, (err, r) => err ? reject(err) : resolve(r))
  })
  const strip = (code) => {
    const { error, status, stdout, stderr } = esbuild(code)
    if (error && builtIn) return builtIn(code)
    if (error || status !== 0) throw Object.assign(new SyntaxError((/\[ERROR\] (.*)/.exec(stderr) || [])[1] || String(error)), { stack: `SyntaxError: ${stderr.trim()}` })
    return stdout
  }
  // Static imports at the start of code: evaluated code is not a module.
  globalThis.__millrace_import = (name) => import(name)
  // A comment matches in one way only: with two, a row of slashes would backtrack forever.
  const first = /^(?:\s|\/\/[^\n]*\n|\/\*(?:[^*]|\*(?!\/))*\*\/)*import\s*(?:([\w$]+)\s*,?\s*)?(?:\*\s*as\s+([\w$]+)\s*|\{([^}]*)\}\s*)?(?:(?<=[\s}\w$])from\s*)?(["'])([^"'\n]+)\4[ \t]*;?/
  const imported = (code) => {
    let head = ''
    for (let m; (m = first.exec(code)); code = code.slice(m[0].length)) {
      const [whole, name, all, some, , from] = m
      const parts = [name && `default: ${name}`, some && some.replace(/([\w$]+)\s+as\s+/g, '$1: ')].filter(Boolean).join(', ')
      const module = `await __millrace_import(${JSON.stringify(from)});`
      head += (all ? `const ${all} = ${module}` : '') + (parts ? `const { ${parts} } = ${module}` : '') + (all || parts ? '' : module)
      head += '\n'.repeat(whole.split('\n').length - 1)
    }
    return head + code
  }
  // The value itself, not the inspector's description of it.
  const main = (result) => new Promise((resolve) => {
    globalThis.__millrace = (v) => resolve(forms(v))
    session.post('Runtime.callFunctionOn', {
      functionDeclaration: 'function (v) { globalThis.__millrace(v) }', arguments: [result.objectId ? { objectId: result.objectId } : result.unserializableValue ? { unserializableValue: result.unserializableValue } : { value: result.value }],
      executionContextId: 1,
    }, (err, r) => (err || r.exceptionDetails) && resolve({ text: result.description || String(result.value) }))
  })
  const one = async ({ code, env_vars: variables }, conn, count) => {
    if (conn.destroyed) return // the execution ended while it waited
    to = conn
    const was = Object.fromEntries(Object.keys(variables).map((k) => [k, process.env[k]]))
    Object.assign(process.env, variables)
    emit({ type: 'number_of_executions', execution_count: count })
    const gone = new Promise((resolve) => conn.once('close', () => resolve(null)).once('yield', () => resolve(null)))
    current = conn
    yieldTo(waiting)
    try {
      const r = await Promise.race([evaluate(imported(language === 'typescript' ? strip(code) : code)), gone])
      if (r && r.exceptionDetails) {
        const e = r.exceptionDetails.exception || {}
        const trace = (e.description || r.exceptionDetails.text).replace(/\n    at Session\.post [^]*$/, '') // the rest is the kernel
        const [head] = trace.split('\n')
        emit({ type: 'error', name: e.className || 'Error', value: e.value !== undefined ? String(e.value) : head.replace(/^\w+( \[\w+\])?: /, ''), traceback: trace })
      } else if (r && r.result.type !== 'undefined') {
        emit({ type: 'result', is_main_result: true, ...(await main(r.result)) })
      }
    } catch (e) {
      emit({ type: 'error', name: e.name, value: e.message, traceback: e.stack })
    }
    for (const [k, v] of Object.entries(was)) v === undefined ? delete process.env[k] : (process.env[k] = v)
    emit({ type: 'end_of_execution' })
    to = null
    conn.end()
  }
  fs.rmSync(file(context), { force: true }) // of the context's previous kernel
  let turn = Promise.resolve()
  let count = 0
  let [current, waiting] = [null, 0]
  // An execution whose client has disconnected is interrupted when another one waits.
  const yieldTo = (others) => others && current && current.left && current.emit('yield')
  net.createServer((conn) => {
    let received = ''
    conn.setEncoding('utf8')
    conn.on('error', () => {})
    conn.on('data', (part) => {
      const whole = received.endsWith('\n')
      received += part
      if (whole) conn.left = true
      else if (received.endsWith('\n')) {
        waiting++
        const request = received
        turn = turn.then(() => (waiting--, one(JSON.parse(request), conn, ++count))).catch(() => conn.destroy())
      }
      yieldTo(waiting)
    })
  }).listen(file(context), () => record.stdout('ready\n'))
  process.on('uncaughtException', (e) => emit({ type: 'stderr', text: ((e && e.stack) || util.inspect(e)) + '\n', timestamp: Date.now() * 1000000 }))
}

const [role, ...args] = process.argv.slice(1)
if (role === 'client') client(args[0], process.env.MILLRACE_EXECUTION_VARIABLES || '{}', args.length > 1 ? args.slice(1).join('') : fs.readFileSync(0, 'utf8'))
else serve(role, args[0])
