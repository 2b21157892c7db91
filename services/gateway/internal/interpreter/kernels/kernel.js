// The kernel of one context for JavaScript, and (with "ask" as its first argument)
// one execution in it; see kernel.py and ask.py, of which this is the same.
'use strict'
const net = require('node:net')
const util = require('node:util')

const address = (context) => '\0millrace-context-' + context

function ask(context, variables, code) {
  const say = (line) => process.stdout.write(JSON.stringify(line) + '\n')
  const fail = (name, value) => {
    say({ type: 'error', name, value, traceback: `${name}: ${value}` })
    say({ type: 'end_of_execution' })
    process.exitCode = 1
  }
  const until = Date.now() + 30000
  const dial = () => {
    let last = ''
    const kernel = net.createConnection({ path: address(context) })
    let there = false
    kernel.on('connect', () => {
      there = true
      kernel.write(JSON.stringify({ code, env_vars: JSON.parse(variables) }) + '\n')
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
  let to = null
  const say = (line) => to && to.write(JSON.stringify(line) + '\n')
  for (const stream of ['stdout', 'stderr']) {
    process[stream].write = (data, encoding, done) => {
      const text = typeof data === 'string' ? data : Buffer.from(data).toString('utf8')
      say({ type: stream, text, timestamp: Date.now() * 1000000 })
      const after = typeof encoding === 'function' ? encoding : done
      if (after) process.nextTick(after)
      return true
    }
  }
  const forms = (value) => {
    const found = { text: typeof value === 'string' ? `'${value}'` : util.inspect(value) }
    for (const [form, name] of Object.entries({ html: 'toHTML', svg: 'toSVG', png: 'toPNG', markdown: 'toMarkdown' })) {
      if (value && typeof value[name] === 'function') found[form] = String(value[name]())
    }
    return found
  }
  globalThis.require = require('node:module').createRequire(process.cwd() + '/')
  globalThis.display = (...values) => values.forEach((v) => say({ type: 'result', is_main_result: false, ...forms(v) }))
  const session = new inspector.Session()
  session.connect()
  session.post('Runtime.enable')
  const evaluate = (expression) => new Promise((resolve, reject) => {
    session.post('Runtime.evaluate', { expression, replMode: true, awaitPromise: true, objectGroup: 'c' }, (err, r) => err ? reject(err) : resolve(r))
  })
  const strip = (code) => {
    const { stripTypeScriptTypes } = require('node:module')
    if (!stripTypeScriptTypes) throw new Error(`this node (${process.version}) does not know TypeScript`)
    return stripTypeScriptTypes(code)
  }
  // The value itself, not the inspector's picture of it.
  const main = (result) => new Promise((resolve) => {
    globalThis.__millrace = (v) => resolve(forms(v))
    session.post('Runtime.callFunctionOn', {
      functionDeclaration: 'function (v) { globalThis.__millrace(v) }', arguments: [result.objectId ? { objectId: result.objectId } : result.unserializableValue ? { unserializableValue: result.unserializableValue } : { value: result.value }],
      executionContextId: 1,
    }, (err) => err && resolve({ text: result.description }))
  })
  const one = async ({ code, env_vars: variables }, conn, count) => {
    to = conn
    const was = Object.fromEntries(Object.keys(variables).map((k) => [k, process.env[k]]))
    Object.assign(process.env, variables)
    say({ type: 'number_of_executions', execution_count: count })
    const gone = new Promise((resolve) => conn.once('close', () => resolve(null)))
    try {
      const r = await Promise.race([evaluate(language === 'typescript' ? strip(code) : code), gone])
      if (r && r.exceptionDetails) {
        const e = r.exceptionDetails.exception || {}
        const trace = e.description || r.exceptionDetails.text
        const [head] = trace.split('\n')
        say({ type: 'error', name: e.className || 'Error', value: e.value !== undefined ? String(e.value) : head.replace(/^\w+: /, ''), traceback: trace })
      } else if (r && r.result.type !== 'undefined') {
        say({ type: 'result', is_main_result: true, ...(await main(r.result)) })
      }
    } catch (e) {
      say({ type: 'error', name: e.name, value: e.message, traceback: e.stack })
    }
    for (const [k, v] of Object.entries(was)) v === undefined ? delete process.env[k] : (process.env[k] = v)
    say({ type: 'end_of_execution' })
    to = null
    conn.end()
  }
  let turn = Promise.resolve()
  let count = 0
  net.createServer((conn) => {
    let asked = ''
    conn.setEncoding('utf8')
    conn.on('error', () => {})
    conn.on('data', (part) => {
      asked += part
      if (!asked.endsWith('\n')) return
      turn = turn.then(() => one(JSON.parse(asked), conn, ++count)).catch(() => conn.destroy())
    })
  }).listen(address(context))
  process.on('uncaughtException', (e) => say({ type: 'stderr', text: e.stack + '\n', timestamp: Date.now() * 1000000 }))
}

const [role, ...args] = process.argv.slice(1)
if (role === 'ask') ask(args[0], args[1], args.slice(2).join(''))
else serve(role, args[0])
