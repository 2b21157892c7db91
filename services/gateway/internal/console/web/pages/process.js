// One process: its state, signals, and its output or terminal.

import { h, fill } from '../h.js';
import { session, call, get } from '../api.js';
import { heading, facts, badge, time, button, confirm, toast } from '../ui.js';
import { command, duration } from '../format.js';
import { outcome } from './processes.js';
import { Output } from './output.js';
import { Terminal } from '../terminal.js';

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
		['Sandbox', session.share ? h('span.mono', null, p.sandbox) : h('a.mono', { href: '#/sandboxes/' + p.sandbox }, p.sandbox)], ['Host', p.host],
		['Kind', p.pty ? 'terminal' : 'pipes'], ['User', p.user], ['Directory', p.cwd], ['Tag', p.tag], ['PID', p.pid ? String(p.pid) : ''],
		['Started', p.started_at && time(p.started_at)], ['Duration', took],
	]);
}

/**
 * Returns the view of a process.
 * @param {string} id
 * @param {Object} o
 * @param {number} o.seq event to show; 0 is the live end
 * @param {number} [o.until] last event that may be shown; 0 is no limit
 * @param {boolean} [o.type] take the writer's lease at once
 * @param {(seq: number) => string} o.link returns the fragment of an event
 * @param {AbortSignal} o.signal
 */
export async function view(id, { seq, until = 0, type, link, signal: left }) {
	const head = h('div'), state = h('div');
	const show = async () => {
		const p = await get(path(id), left);
		const names = p.state === 'ended' || session.share ? [] : ['SIGINT', 'SIGTERM', 'SIGKILL'];
		fill(head, heading(h('span.mono', null, command(p.cmd, p.args)), names.map((s) => button(s, () => signal(id, s), { class: s === 'SIGKILL' && 'danger' }))));
		fill(state, about(p));
		return p;
	};
	const p = await show();
	const ended = () => show().catch((err) => toast(err.message, true));
	const section = h('section', null, h('h2', null, 'About'), state);
	const recording = new (p.pty ? Terminal : Output)({ process: p, path: path(id), link, until, ended, signal: left });
	const el = await recording.start(seq);
	if (type && p.pty && p.state !== 'ended') setTimeout(() => recording.toggle().catch((err) => toast(err.message, true)));
	return [head, el, section];
}

/** @param {import('../router.js').Context} c */
export function page({ args: [id, seq], query, signal: left }) {
	const link = (n) => '#/p/' + id + (n ? '/' + n : '');
	return view(id, { seq: Number(seq) || 0, type: query.has('type'), link, signal: left });
}
