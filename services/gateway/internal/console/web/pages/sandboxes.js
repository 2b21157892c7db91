// The list of sandboxes.

import { h } from '../h.js';
import { call, get, follow } from '../api.js';
import { region, table, heading, select, field, badge, time, code, button, empty, dialog, toast } from '../ui.js';
import { actions } from './sandbox.js';

const states = ['starting', 'running', 'paused', 'stopping', 'ended'];

/** Returns the query of the list for the filters. */
function queryOf(form) {
	const q = new URLSearchParams({ limit: '200' });
	if (form.state.value === 'live') q.set('state', 'starting,running,paused,stopping');
	else if (form.state.value) q.set('state', form.state.value);
	for (const pair of form.metadata.value.split(/[\s,]+/).filter(Boolean)) q.append('metadata', pair);
	return q;
}

/** Returns metadata in one line. */
function metadata(all) {
	const text = Object.entries(all).map(([k, v]) => `${k}=${v}`).join(' ');
	return h('span.mono.cut', { title: text }, text);
}

/** Returns the table of sandboxes. */
function list(rows, reload) {
	return table('Sandboxes', [
		{ name: 'Sandbox', cell: (s) => code('#/sandboxes/' + s.sandbox, s.sandbox) },
		{ name: 'State', cell: (s) => badge(s.state) },
		{ name: 'Template', cell: (s) => s.alias || s.template },
		{ name: 'Host', cell: (s) => s.host || '–' },
		{ name: 'Created', cell: (s) => time(s.created_at) },
		rows.some((s) => s.metadata && Object.keys(s.metadata).length) && { name: 'Metadata', cell: (s) => metadata(s.metadata || {}) },
		rows.some((s) => s.ended_at) && { name: 'Ended', cell: (s) => s.ended_at && h('span', null, time(s.ended_at), ' ', h('span.muted', null, s.cause || s.outcome)) },
		{ name: 'Actions', class: 'end', cell: (s) => s.state !== 'ended' && h('div.actions', null, actions(s, reload)) },
	].filter(Boolean), rows);
}

/**
 * Asks for a template and a lifetime, and creates a sandbox.
 * @param {(id: string) => void} reload called afterwards
 * @param {string} [name] of the template
 */
export async function create(reload, name = 'base') {
	const template = h('input', { name: 'template', value: name, required: true });
	const minutes = h('input', { name: 'minutes', type: 'number', min: '1', value: '30' });
	const metadata = h('input', { name: 'metadata', placeholder: 'name=value, ...' });
	const answer = await dialog('Create a sandbox', [
		field('Template', template), field('Lifetime in minutes', minutes), field('Metadata', metadata),
	], [h('button', { value: '', formnovalidate: true }, 'Cancel'), h('button.primary', { value: 'yes' }, 'Create')]);
	if (answer !== 'yes') return;
	const pairs = metadata.value.split(',').map((p) => p.trim()).filter(Boolean).map((p) => p.split('='));
	const made = await call('POST', '/sandboxes', {
		templateID: template.value, timeout: Number(minutes.value) * 60,
		metadata: Object.fromEntries(pairs.map(([k, ...v]) => [k, v.join('=')])),
	});
	toast('Created ' + made.sandboxID);
	reload(made.sandboxID);
}

/** @param {import('../router.js').Context} c */
export function page({ signal, query }) {
	const labels = [['live', 'not ended'], ['', 'all'], ...states.map((s) => [s, s])];
	const form = h('form.bar', { onsubmit: (e) => e.preventDefault(), onchange: () => list_.reload() },
		field('State', select(labels, { name: 'state' }, query.get('state') ?? 'live')),
		field('Metadata', h('input', { name: 'metadata', placeholder: 'name=value', size: 24 })));
	const list_ = region(async () => {
		const rows = await get('/v1/store/sandboxes?' + queryOf(form), signal);
		if (rows.length) return list(rows, list_.reload);
		if (form.metadata.value || !['', 'live'].includes(form.state.value)) return h('p.muted', null, 'No sandbox matches the filters.');
		return empty('No sandboxes', 'Create one here, with an SDK, or run a command in a new sandbox:', "millrace run 'echo hello; uname -a'");
	}, signal);
	follow('/v1/events?kind=sandbox&after=now', { signal, on: () => { list_.reload(); } }).catch(() => {});
	return [heading('Sandboxes', button('Create', () => create(list_.reload), { class: 'primary', 'data-test': 'create' })), form, list_.el];
}
