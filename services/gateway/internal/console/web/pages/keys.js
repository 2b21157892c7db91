// API keys of the tenant.

import { h } from '../h.js';
import { call, get } from '../api.js';
import { region, table, heading, button, confirm, dialog, field, time, empty, copy } from '../ui.js';

/** Shows a new key. It cannot be shown again. */
async function reveal(made) {
	const secret = h('pre', { tabindex: '0' }, made.key);
	await dialog('Key ' + (made.name || made.id), [h('p', null, 'Store it now: it is shown only once.'), secret],
		[button('Copy', () => copy(made.key)), h('button.primary', { value: '' }, 'Done')]);
}

async function create(reload) {
	const name = h('input', { name: 'name', required: true, maxlength: 100 });
	const answer = await dialog('Create a key', [field('Name', name)],
		[h('button', { value: '', formnovalidate: true }, 'Cancel'), h('button.primary', { value: 'yes' }, 'Create')]);
	if (answer !== 'yes') return;
	const made = await call('POST', '/api-keys', { name: name.value });
	reload();
	await reveal(made);
}

async function revoke(key, reload) {
	if (!await confirm('Revoke ' + (key.name || key.id) + '?', 'Requests with this key fail at once. This cannot be undone.', 'Revoke')) return;
	await call('DELETE', '/api-keys/' + encodeURIComponent(key.id));
	reload();
}

/** @param {import('../router.js').Context} c */
export function page({ signal }) {
	const all = region(async () => {
		const rows = await get('/api-keys', signal);
		if (!rows.length) return empty('No keys', 'Create one for each client, so that it can be revoked alone.');
		return table('Keys', [
			{ name: 'Name', cell: (k) => k.name || h('span.muted', null, 'unnamed') },
			{ name: 'Key', cell: (k) => h('span.mono', null, `${k.mask.prefix}${k.mask.maskedValuePrefix}…${k.mask.maskedValueSuffix}`) },
			{ name: 'Id', cell: (k) => h('span.mono', null, k.id) },
			{ name: 'Created', cell: (k) => time(k.createdAt) },
			{ name: 'Actions', class: 'end', cell: (k) => h('div.actions', null, button('Revoke', () => revoke(k, all.reload), { class: 'danger', 'aria-label': 'Revoke ' + (k.name || k.id) })) },
		], rows);
	}, signal);
	return [heading('Keys', button('Create', () => create(all.reload), { class: 'primary' })), all.el];
}
