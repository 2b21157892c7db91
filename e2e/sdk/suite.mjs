// Runs the released e2b SDK, unmodified, against a gateway and prints the result of each
// case as a JSON line. Usage: node suite.mjs <package> [case...]; E2B_API_KEY, E2B_API_URL
// and E2B_SANDBOX_URL select the gateway, and MILLRACE_E2E_WIDE is the number of concurrent
// cases.
import assert from 'node:assert/strict'
import { cases, parallel } from './cases.mjs'
import { complaints } from './complaints.mjs'
import { options } from './options.mjs'

const [pkg, ...wanted] = process.argv.slice(2)
const e2b = await import(pkg)

async function one(name) {
  const began = performance.now()
  try {
    await (cases[name] ?? options[name] ?? complaints[name])(e2b, assert, pkg)
    report({ name, ok: true, ms: Math.round(performance.now() - began) })
  } catch (err) {
    report({ name, ok: false, error: String(err?.stack ?? err) })
  }
}

function report(result) {
  process.stdout.write(JSON.stringify(result) + '\n')
}

const names = wanted.length ? wanted : Object.keys({ ...cases, ...options })
const wide = Number(process.env.MILLRACE_E2E_WIDE ?? 10) // a host has a capacity of 64 sandboxes
await parallel(names.length, wide, (i) => one(names[i]))
report({ name: 'done', ok: true, cases: names.length })
process.exit(0)
