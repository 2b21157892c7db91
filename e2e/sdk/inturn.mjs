// inTurn runs cases (functions by name) one after another, prints the result of each as a
// JSON line, and ends the program.
export async function inTurn(cases) {
  const report = (result) => process.stdout.write(JSON.stringify(result) + '\n')
  for (const [name, run] of Object.entries(cases)) {
    try {
      await run()
      report({ name, ok: true })
    } catch (err) {
      report({ name, ok: false, error: String(err?.stack ?? err) })
    }
  }
  report({ name: 'done', ok: true })
  process.exit(0)
}
