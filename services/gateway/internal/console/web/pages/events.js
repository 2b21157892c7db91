// The tail of events, as `millrace events tail` prints it.

import { h, fill } from '../h.js';
import { follow } from '../api.js';
import { heading, field, select, badge, act } from '../ui.js';
import { clock } from '../format.js';

const maxRows = 500; // newest events that are shown

/** Members that a row shows elsewhere. */
const shownElsewhere = new Set(['record', 'rev', 'tenant', 'sandbox', 'process', 'host', 'seq', 'time', 'type']);

/** Returns the text of a value, with control characters escaped. */
const textOf = (v) => (typeof v === 'string' && !/[\x00-\x1f\x7f]/.test(v) ? v : JSON.stringify(v));

/** Returns the members of an event that are its own. */
function detail(e) {
	const own = Object.entries(e).filter(([k, v]) => !shownElsewhere.has(k) && v !== null);
	return own.map(([k, v]) => `${k}=${textOf(v)}`).join(' ').slice(0, 400);
}

/** Returns the row of an event. */
function row(e) {
	const link = (href, id) => h('a.mono.cut', { href, title: id }, id);
	const name = e.process ? link(`#/p/${e.process}/${e.seq}`, e.process) : e.sandbox ? link('#/sandboxes/' + e.sandbox, e.sandbox) : [e.record, e.host].filter(Boolean).join(' ');
	const cell = (label, content) => h('td', { 'data-label': label }, content);
	return h('tr', null, cell('Time', h('time', { datetime: e.time }, clock(e.time))), cell('Type', h('span.whole', null, e.type)),
		cell('Record', name), cell('Seq', h('span.whole', null, e.seq)), cell('Details', h('span.mono', null, detail(e))));
}

/** Returns the query for the filters. */
function queryOf(form) {
	const q = new URLSearchParams();
	for (const name of ['kind', 'sandbox', 'process', 'tenant', 'after']) if (form[name].value.trim()) q.set(name, form[name].value.trim());
	return q;
}

/** Returns the form of the filters. */
function filters(query, apply) {
	const text = (name, placeholder) => h('input', { name, placeholder, value: query.get(name) || '', class: 'mono', size: 16 });
	const since = [['now', 'from now on'], ['1m', 'last minute'], ['10m', 'last 10 minutes'], ['1h', 'last hour'], ['', 'all stored']];
	return h('form.bar', { onsubmit: act(async () => apply()) },
		field('Kinds', text('kind', 'sandbox,start,end')), field('Sandbox', text('sandbox', 'any')), field('Process', text('process', 'any')), field('Tenant', text('tenant', 'any')),
		field('Since', select(since, { name: 'after' }, query.get('after') ?? '10m')), h('button', { type: 'submit' }, 'Apply'));
}

/** @param {import('../router.js').Context} c */
export function page({ query, signal }) {
	const body = h('tbody'), status = h('span', { role: 'status' }), count = h('span.muted'), none = h('p.muted');
	let stop = new AbortController(), paused = false, seen = 0;
	const on = (e) => {
		if (paused || !e.data.time) return;
		fill(none);
		body.prepend(row(e.data));
		if (body.childElementCount > maxRows) body.lastElementChild.remove();
		fill(count, `${++seen} events`);
	};
	const apply = () => {
		stop.abort();
		stop = new AbortController();
		seen = 0;
		fill(body);
		fill(count);
		fill(none, 'None yet. Events appear here as they are stored.');
		fill(status, badge('waiting'));
		const both = AbortSignal.any([signal, stop.signal]);
		follow('/v1/events?' + queryOf(form), { signal: both, on, state: (live) => fill(status, badge(live ? 'live' : 'waiting')) })
			.catch((err) => fill(status, badge('error'), ' ', err.message));
	};
	const form = filters(query, apply);
	const hold = h('button', { type: 'button', 'aria-pressed': 'false', onclick: () => {
		paused = !paused;
		hold.setAttribute('aria-pressed', String(paused));
		hold.textContent = paused ? 'Continue' : 'Hold';
	} }, 'Hold');
	apply();
	const head = h('tr', null, ['Time', 'Type', 'Record', 'Seq', 'Details'].map((n) => h('th', { scope: 'col' }, n)));
	return [heading('Events', count, status, hold), form,
		h('div.scroll', null, h('table', null, h('caption', null, 'Events, newest first'), h('thead', null, head), body)), none,
		h('p.muted', null, 'The same in a shell: ', h('code', null, 'millrace events tail'))];
}
