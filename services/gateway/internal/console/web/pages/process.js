// One process: its state, signals, and its output or terminal.

import { h, fill } from '../h.js';
import { call, get } from '../api.js';
import { heading, facts, badge, time, button, confirm, toast } from '../ui.js';
import { command, duration } from '../format.js';
import { outcome } from './processes.js';
import { output } from './output.js';

/** @param {string} id */
export const path = (id) => '/v1/processes/' + encodeURIComponent(id);

async function signal(id, name) {
	if (!await confirm(`Send ${name}?`, 'It goes to the process and its children.', 'Send')) return;
	await call('POST', path(id) + '/signal', { signal: name });
	toast('Sent ' + name);
}

/** Returns the state of a process as names and values. */
function about(p) {
	const took = p.ended_at && p.started_at && duration(Date.parse(p.ended_at) - Date.parse(p.started_at));
	return facts([
		['State', badge(p.state)], ['Result', outcome(p)], ['Message', p.message],
		['Sandbox', h('a.mono', { href: '#/sandboxes/' + p.sandbox }, p.sandbox)], ['Host', p.host],
		['Kind', p.pty ? 'terminal' : 'pipes'], ['User', p.user], ['Directory', p.cwd], ['Tag', p.tag], ['PID', p.pid ? String(p.pid) : ''],
		['Started', p.started_at && time(p.started_at)], ['Duration', took],
	]);
}

/** @param {import('../router.js').Context} c */
export async function page({ args: [id, seq], signal: left }) {
	const head = h('div'), state = h('div');
	const show = async () => {
		const p = await get(path(id), left);
		const buttons = p.state === 'ended' ? [] : ['SIGINT', 'SIGTERM', 'SIGKILL'].map((s) => button(s, () => signal(id, s), { class: s === 'SIGKILL' && 'danger' }));
		fill(head, heading(h('span.mono', null, command(p.cmd, p.args)), buttons));
		fill(state, about(p));
		return p;
	};
	const p = await show();
	const ended = () => show().catch((err) => toast(err.message, true));
	return [head, output(p, Number(seq) || 0, ended, left), h('section', null, h('h2', null, 'About'), state)];
}
