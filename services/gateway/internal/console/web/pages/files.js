// The files of a running sandbox.

import { h } from '../h.js';
import { open, call } from '../api.js';
import { region, table, heading, button, confirm, time, empty, toast, dialog, field } from '../ui.js';
import { bytes } from '../format.js';

const maxView = 256 * 1024; // bytes of a file that are shown

/** Returns the URL of a file's content. */
const content = (id, path) => '/files?' + new URLSearchParams({ sandbox: id, path });

const rpc = (id, method, body, signal) => call('POST', `/filesystem.Filesystem/${method}?sandbox=${encodeURIComponent(id)}`, body, { signal });

/** Returns the fragment of a directory. */
const at = (id, path) => `#/sandboxes/${id}/files?` + new URLSearchParams({ path });

/** Returns the path as links to its directories. */
function crumbs(id, path) {
	const names = path.split('/').filter(Boolean);
	const links = names.map((n, i) => [' / ', h('a', { href: at(id, '/' + names.slice(0, i + 1).join('/')) }, n)]);
	return h('nav.mono', { 'aria-label': 'Path' }, h('a', { href: at(id, '/') }, 'root'), links);
}

async function download(id, entry) {
	const blob = await (await open('GET', content(id, entry.path))).blob();
	const url = URL.createObjectURL(blob);
	h('a', { href: url, download: entry.name }).click();
	setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** Shows a file in a dialog: an image, text, or its first bytes. */
async function view(id, entry) {
	const resp = await open('GET', content(id, entry.path));
	const blob = (await resp.blob()).slice(0, maxView);
	const name = entry.name.toLowerCase();
	let body;
	if (/\.(png|jpe?g|gif|webp)$/.test(name) && Number(entry.size) <= maxView) {
		body = h('img', { src: URL.createObjectURL(blob), alt: entry.name });
	} else {
		body = h('pre.out', { tabindex: '0' }, await blob.text());
	}
	const cut = Number(entry.size) > maxView && h('p.muted', null, `The first ${bytes(maxView)} of ${bytes(Number(entry.size))}.`);
	await dialog(entry.path, [body, cut].filter(Boolean), [h('button', { value: '' }, 'Close')]);
}

/** Uploads files to a directory. */
async function upload(id, dir, chosen, reload) {
	for (const f of chosen) {
		const form = new FormData();
		form.append('file', f, f.name);
		const path = (dir === '/' ? '' : dir) + '/' + f.name;
		await open('POST', content(id, path), undefined, { raw: form });
		toast('Uploaded ' + path);
	}
	reload();
}

async function remove(id, entry, reload) {
	if (!await confirm('Delete ' + entry.name + '?', entry.path, 'Delete')) return;
	await rpc(id, 'Remove', { path: entry.path });
	reload();
}

async function makeDir(id, dir, reload) {
	const name = h('input', { name: 'name', required: true });
	const answer = await dialog('New directory', [field('Name', name)], [h('button', { value: '', formnovalidate: true }, 'Cancel'), h('button.primary', { value: 'yes' }, 'Create')]);
	if (answer !== 'yes') return;
	await rpc(id, 'MakeDir', { path: (dir === '/' ? '' : dir) + '/' + name.value });
	reload();
}

/** Returns the table of a directory. */
function list(id, entries, reload) {
	const isDir = (e) => e.type === 'FILE_TYPE_DIRECTORY';
	entries.sort((a, b) => isDir(b) - isDir(a) || a.name.localeCompare(b.name));
	const name = (e) => (isDir(e) ? h('a.mono', { href: at(id, e.path) }, e.name + '/') : button(e.name, () => view(id, e), { class: 'quiet mono' }));
	return table('Files', [
		{ name: 'Name', cell: name },
		{ name: 'Size', class: 'num', cell: (e) => (isDir(e) ? '' : bytes(Number(e.size))) },
		{ name: 'Mode', cell: (e) => h('span.mono', null, e.permissions) },
		{ name: 'Owner', cell: (e) => `${e.owner}:${e.group}` },
		{ name: 'Changed', cell: (e) => time(e.modifiedTime) },
		{ name: 'Actions', class: 'end', cell: (e) => h('div.actions', null,
			!isDir(e) && button('Download', () => download(id, e), { 'aria-label': 'Download ' + e.name }),
			button('Delete', () => remove(id, e, reload), { class: 'danger', 'aria-label': 'Delete ' + e.name })) },
	], entries);
}

/** @param {import('../router.js').Context} c */
export function page({ args: [id], query, signal }) {
	const dir = query.get('path') || '/home/user';
	const all = region(async () => {
		const found = await rpc(id, 'ListDir', { path: dir, depth: 1 }, signal);
		if (!found.entries || !found.entries.length) return empty('Empty directory', 'Upload a file here, or write one with a command:', `echo hello > ${dir === '/' ? '' : dir}/hello.txt`);
		return list(id, found.entries, all.reload);
	}, signal);
	const input = h('input', { type: 'file', multiple: true, hidden: true, 'aria-label': 'Files to upload' });
	input.addEventListener('change', () => {
		upload(id, dir, [...input.files], all.reload).catch((err) => toast(err.message, true));
	});
	return [
		heading(h('span', null, 'Files of ', h('a.mono', { href: '#/sandboxes/' + id }, id)),
			input, button('Upload', async () => input.click()), button('New directory', () => makeDir(id, dir, all.reload))),
		h('div.bar', null, crumbs(id, dir)), all.el,
	];
}
