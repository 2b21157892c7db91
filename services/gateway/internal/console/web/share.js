// The dialog that creates and revokes share links.

import { h, fill } from './h.js';
import { call, get } from './api.js';
import { act, button, copy, dialog, field, select, toast } from './ui.js';
import { when } from './format.js';

const ages = [['1h', '1 hour'], ['24h', '1 day'], ['168h', '7 days'], ['720h', '30 days']];

/** Returns the list of links with buttons that revoke them; a second click confirms. */
async function list(target, el) {
	const answer = await get('/v1/shares');
	const all = (answer.shares || answer).filter((s) => Object.entries(target).every(([k, v]) => s[k] === v));
	const revoke = (s) => {
		const b = button('Revoke', async () => {
			if (b.textContent === 'Revoke') { b.textContent = 'Revoke now?'; return; }
			await call('DELETE', '/v1/shares/' + encodeURIComponent(s.id));
			toast('The link is revoked');
			await list(target, el);
		}, { class: 'danger', 'data-test': 'revoke' });
		return b;
	};
	fill(el, all.length > 0 && h('h2', null, 'Links'), all.map((s) => h('div.bar', null,
		h('span.grow', null, s.seq ? `up to event ${s.seq}` : 'live', h('span.muted', null, ', until ' + when(s.expires))), revoke(s))));
}

/**
 * Shows the dialog for a process or a sandbox.
 * @param {{process?: string, sandbox?: string}} target
 * @param {number} [seq] the event on the screen
 */
export async function share(target, seq) {
	const until = select([['', 'live, with its whole record'], ...(seq ? [[String(seq), `up to event ${seq}`]] : [])], { name: 'seq' });
	const age = select(ages, { name: 'expires' }, '24h');
	const made = h('div'), links = h('div');
	const create = async () => {
		const body = { ...target, expires: age.value, ...(until.value && { seq: Number(until.value) }) };
		const s = await call('POST', '/v1/shares', body);
		const url = new URL(s.url, location.href).href;
		const text = h('input.mono', { value: url, readonly: true, 'aria-label': 'Link', 'data-test': 'link', onfocus: (e) => e.target.select() });
		fill(made, h('p', null, 'Anyone with this link can watch. It is shown only once.'), h('div.bar', null, h('div.grow', null, text), button('Copy', () => copy(url))));
		text.parentElement.style.display = 'grid';
		await list(target, links);
	};
	list(target, links).catch((err) => fill(links, h('p.muted', null, err.message)));
	await dialog('Share read-only', [field('Content', until), field('Expires after', age), made, links], [
		h('button', { value: '' }, 'Close'),
		h('button.primary', { type: 'button', onclick: act(create), 'data-test': 'make-link' }, 'Create link'),
	]);
}
