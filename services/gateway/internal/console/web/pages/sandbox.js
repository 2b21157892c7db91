// One sandbox: its state, timeline and processes.

import { h } from '../h.js';
import { open, call, get, lines, follow } from '../api.js';
import { region, heading, facts, badge, time, button, confirm, toast, field, dialog, act } from '../ui.js';
import { when } from '../format.js';
import { share } from '../share.js';
import { lanes, moments } from '../lanes.js';
import { list as processList } from './processes.js';

const path = (id) => '/sandboxes/' + encodeURIComponent(id);

/** Asks for a name and takes a snapshot. */
async function snapshot(id) {
	const name = h('input', { name: 'name', placeholder: 'optional' });
	const answer = await dialog('Take a snapshot', [h('p', null, 'Sandboxes can be created from it later.'), field('Name', name)],
		[h('button', { value: '' }, 'Cancel'), h('button.primary', { value: 'yes' }, 'Take')]);
	if (answer !== 'yes') return;
	const made = await call('POST', path(id) + '/snapshots', name.value ? { name: name.value } : {});
	toast('Stored snapshot ' + made.snapshotID);
}

async function kill(id, reload) {
	if (!await confirm('Kill ' + id + '?', 'Its processes end and its files are deleted. Its record stays readable.', 'Kill')) return;
	await call('DELETE', path(id));
	reload();
}

async function pause(id, reload) {
	if (!await confirm('Pause ' + id + '?', 'Its processes stop until it is resumed.', 'Pause')) return;
	await call('POST', path(id) + '/pause', {});
	reload();
}

async function resume(id, reload) {
	await call('POST', path(id) + '/resume', { timeout: 1800 });
	reload();
}

/**
 * Returns the buttons for a sandbox in its state.
 * @param {{sandbox: string, state: string}} s
 * @param {() => void} reload
 */
export function actions(s, reload) {
	const id = s.sandbox;
	return [
		s.state === 'running' && button('Pause', () => pause(id, reload), { 'aria-label': 'Pause ' + id }),
		s.state === 'paused' && button('Resume', () => resume(id, reload), { 'aria-label': 'Resume ' + id }),
		['running', 'paused'].includes(s.state) && button('Snapshot', () => snapshot(id), { 'aria-label': 'Take a snapshot of ' + id }),
		s.state !== 'ended' && button('Kill', () => kill(id, reload), { class: 'danger', 'aria-label': 'Kill ' + id }),
	];
}

/**
 * Starts a process and returns its id. It continues when the stream of its output closes.
 * @param {string} id of the sandbox
 * @param {Object} body of POST /commands
 */
export async function run(id, body) {
	const stop = new AbortController();
	const resp = await open('POST', '/commands?sandbox=' + encodeURIComponent(id), body, { signal: stop.signal });
	for await (const line of lines(resp)) {
		const first = JSON.parse(line);
		stop.abort();
		if (first.type !== 'start') throw new Error(first.message || 'the command did not start');
		return first.process;
	}
	throw new Error('the command did not start');
}

/** Returns the body that starts a shell in a terminal. */
const shell = () => ({
	cmd: '/bin/bash', args: ['-l'], timeout_ms: 0, env: { TERM: 'xterm-256color' },
	pty: { cols: innerWidth < 720 ? 48 : 100, rows: innerWidth < 720 ? 24 : 30 },
});

/** Returns the form that runs a command. */
function runner(id) {
	const line = h('input.mono', { name: 'cmd', required: true, placeholder: 'uname -a', autocomplete: 'off', spellcheck: 'false' });
	const pty = h('input', { type: 'checkbox', name: 'pty' });
	const start = async () => {
		const body = { cmd: line.value, timeout_ms: 0 };
		if (pty.checked) Object.assign(body, { pty: shell().pty, env: shell().env });
		location.hash = `#/p/${await run(id, body)}` + (pty.checked ? '?type' : '');
	};
	const terminal = async () => { location.hash = `#/p/${await run(id, shell())}?type`; };
	const label = h('label.field.grow', null, h('span', null, 'Run a command'), line);
	return h('form.bar', { onsubmit: act(start) }, label,
		h('label.field.check', null, pty, 'in a terminal'), h('button', { type: 'submit' }, 'Run'),
		button('Open a terminal', terminal, { class: 'primary', 'data-test': 'terminal' }));
}

/** Returns the state of a sandbox as names and values. */
function about(s) {
	const limit = (n, unit) => (n ? n + unit : undefined);
	return facts([
		['State', badge(s.state)], ['Template', s.alias || s.template], ['Host', s.host], ['Driver', s.driver && `${s.driver} (isolation: ${s.isolation})`],
		['Created', time(s.created_at)], ['Ends', s.ends_at && when(s.ends_at) + ', then ' + s.on_timeout], ['Paused', s.paused_at && time(s.paused_at)],
		['Ended', s.ended_at && time(s.ended_at)], ['Cause', s.cause], ['Message', s.message],
		['CPUs', limit(s.cpus, '')], ['Memory', limit(s.memory_mb, ' MiB')], ['Disk', limit(s.disk_mb, ' MiB')], ['Processes', limit(s.pids, ' at most')],
		['Internet', s.internet ? 'allowed by its rules' : 'none'],
		...Object.entries(s.metadata || {}).map(([k, v]) => [k, h('span.mono', null, v)]),
	]);
}

/** Reads the lifecycle of a sandbox from its record. */
async function history(id, signal) {
	const resp = await open('GET', '/v1/events?follow=0&kind=sandbox&sandbox=' + encodeURIComponent(id), undefined, { signal });
	const all = [];
	for await (const line of lines(resp)) {
		const e = JSON.parse(line);
		if (e.seq) all.push(e);
	}
	return all.sort((a, b) => a.seq - b.seq);
}

/** Returns the timeline of a sandbox. */
async function timeline(id, signal) {
	const [t, all] = await Promise.all([get('/v1/timeline/' + encodeURIComponent(id), signal), history(id, signal)]);
	const text = (e) => [e.driver, e.host && 'on ' + e.host, e.cause, e.message, e.snapshot].filter(Boolean).join(', ');
	return [lanes(t, (p) => '#/p/' + p), moments(all.map((e) => ({ name: e.type.replaceAll('_', ' '), text: text(e), time: e.time })), t.start)];
}

/** @param {import('../router.js').Context} c */
export async function page({ args: [id], signal }) {
	const url = '/v1/store/sandboxes/' + encodeURIComponent(id);
	const query = '?sandbox=' + encodeURIComponent(id);
	await get(url, signal); // one error for the page, and not one for each part
	const head = h('div');
	const state = region(async () => {
		const s = await get(url, signal);
		const buttons = [button('Share', () => share({ sandbox: id })), s.state === 'running' && h('a.button', { href: `#/sandboxes/${id}/files` }, 'Files'), actions(s, state.reload)];
		head.replaceChildren(heading(h('span.mono', null, id), buttons));
		return [s.state === 'running' && runner(id), about(s)];
	}, signal);
	const procs = region(async () => processList(await get('/v1/processes' + query + '&limit=100', signal), false), signal);
	const past = region(() => timeline(id, signal), signal);
	const changed = (e) => {
		if (e.data.record === 'sandbox') state.reload();
		else procs.reload();
		past.reload();
	};
	const kinds = '&kind=sandbox,accepted,start,end,lost';
	follow('/v1/events' + query + kinds + '&after=now', { signal, on: changed }).catch(() => {});
	head.append(heading(h('span.mono', null, id)));
	return [head, state.el,
		h('section', null, h('h2', null, 'Processes'), procs.el), h('section', null, h('h2', null, 'Timeline'), past.el)];
}
