// The name of this page, by which people tell apart who types in a terminal.

import { session, get } from './api.js';

const longest = 40; // characters of a key's name

/** The end of the name: another one for each page, also for those with the same key. */
const id = [...crypto.getRandomValues(new Uint8Array(4))].map((b) => 'abcdefghjkmnpqrstuvwxyz23456789'[b % 31]).join('');

let known = { key: '', name: '' };

/** Returns the name of the key, or its first characters, which the list of keys shows too. */
async function nameOfKey(key) {
	const start = (k) => k.mask.prefix + k.mask.maskedValuePrefix;
	const all = (await get('/api-keys')).filter((k) => k.mask.maskedValuePrefix && key.startsWith(start(k)) && key.endsWith(k.mask.maskedValueSuffix));
	const name = all.length === 1 ? all[0].name.replace(/[^\x20-\x7e]/g, '').trim().slice(0, longest) : '';
	return name || (all.length ? `key ${all[0].mask.maskedValuePrefix}` : 'console');
}

/** Returns the name of this page: that of the key, and a short id. */
export async function pageName() {
	if (known.key !== session.key) known = { key: session.key, name: await nameOfKey(session.key).catch(() => 'console') };
	return `${known.name} ${id}`;
}
