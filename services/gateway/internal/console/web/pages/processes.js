// The list of processes.

import { h } from '../h.js';
import { open, follow } from '../api.js';
import { region, table, heading, select, field, badge, time, code, empty, button } from '../ui.js';
import { command, duration } from '../format.js';

/** Returns how a process ended. */
export function outcome(p) {
	if (p.state !== 'ended') return '';
	if (p.exit_code !== null && p.exit_code >= 0) return 'exit ' + p.exit_code;
	return [p.cause, p.signal && 'signal ' + p.signal].filter(Boolean).join(', ');
}

/**
 * Returns the table of processes.
 * @param {any[]} rows
 * @param {boolean} sandboxes whether to name the sandbox of each
 */
export function list(rows, sandboxes) {
	if (!rows.length && !sandboxes) return h('p.muted', null, 'Nothing has run in this sandbox yet.');
	if (!rows.length) return empty('No processes', 'Run a command in a sandbox:', "millrace run 'echo hello; uname -a'");
	const columns = [
		{ name: 'Command', cell: (p) => code('#/p/' + p.process, command(p.cmd, p.args)) },
		{ name: 'State', cell: (p) => badge(p.state) },
		{ name: 'Result', cell: (p) => h('span.whole', null, outcome(p)) },
		{ name: 'Kind', cell: (p) => h('span.whole', null, p.pty ? `terminal ${p.pty.cols}×${p.pty.rows}` : 'pipes') },
		sandboxes && { name: 'Sandbox', cell: (p) => h('a.mono.whole', { href: '#/sandboxes/' + p.sandbox }, p.sandbox) },
		{ name: 'Started', cell: (p) => time(p.started_at) },
		{ name: 'Duration', class: 'num', cell: (p) => (p.ended_at && p.started_at ? duration(Date.parse(p.ended_at) - Date.parse(p.started_at)) : '–') },
	];
	return table('Processes', columns.filter(Boolean), rows);
}

/** @param {import('../router.js').Context} c */
export function page({ signal }) {
	let token = '', rows = [];
	const form = h('form.bar', { onsubmit: (e) => e.preventDefault(), onchange: () => { token = ''; rows = []; all.reload(); } },
		field('State', select([['', 'all'], ['starting,running', 'active'], ['ended', 'ended']], { name: 'state' })),
		field('Tag', h('input', { name: 'tag' })),
		field('Id begins with', h('input', { name: 'prefix', class: 'mono' })));
	const all = region(async () => {
		const q = new URLSearchParams({ limit: '100' });
		for (const name of ['state', 'tag', 'prefix']) if (form[name].value) q.set(name, form[name].value);
		if (token) q.set('nextToken', token);
		const resp = await open('GET', '/v1/processes?' + q, undefined, { signal });
		rows = token ? rows.concat(await resp.json()) : await resp.json();
		const next = resp.headers.get('X-Next-Token');
		return [list(rows, true), next && button('More', async () => { token = next; await all.reload(); })];
	}, signal);
	const fresh = () => { if (!token) all.reload(); };
	follow('/v1/events?kind=accepted,start,end,lost&after=now', { signal, on: fresh }).catch(() => {});
	return [heading('Processes'), form, all.el];
}
