// Calls the gateway that served the page. The key stays in the memory of the tab and in its
// sessionStorage. It is sent in a header and never in a URL.

const storedKey = 'millrace.key';
const longTries = 60; // of a request that reads a long record
const longWait = 250; // milliseconds between them

/** Credentials of this tab. A share token replaces the key and permits only reading. */
export const session = {
	key: sessionStorage.getItem(storedKey) || '',
	share: '',
};

/** @param {string} key */
export function signIn(key) {
	session.key = key;
	sessionStorage.setItem(storedKey, key);
}

/** Forgets the key. */
export function signOut() {
	session.key = '';
	sessionStorage.removeItem(storedKey);
}

/** An error response of the gateway. */
export class ApiError extends Error {
	/**
	 * @param {number} status
	 * @param {string} message
	 */
	constructor(status, message) {
		super(message);
		this.status = status;
	}
}

/** Called when the gateway rejects the key. */
let rejected = () => {};

/** @param {() => void} f */
export function onRejected(f) { rejected = f; }

/**
 * @typedef {Object} Options
 * @property {AbortSignal} [signal]
 * @property {Object<string, string>} [headers]
 * @property {BodyInit} [raw] body that is sent as it is
 */

/** Returns the headers that authenticate a request. */
function credentials() {
	return session.share ? { 'Millrace-Share': session.share } : { Authorization: 'Bearer ' + session.key };
}

/**
 * Sends a request and returns the response, or throws an ApiError.
 * @param {string} method
 * @param {string} path
 * @param {any} [body] sent as JSON
 * @param {Options} [opt]
 * @returns {Promise<Response>}
 */
export async function open(method, path, body, opt = {}) {
	const headers = { Accept: 'application/json, */*;q=0.5', ...credentials(), ...opt.headers };
	let payload = opt.raw;
	if (body !== undefined && body !== null) {
		headers['Content-Type'] = 'application/json';
		payload = JSON.stringify(body);
	}
	const resp = await fetch(path, { method, headers, body: payload, signal: opt.signal, cache: 'no-store', credentials: 'omit' });
	if (resp.ok) return resp;
	if (resp.status === 401 && !session.share) rejected();
	throw new ApiError(resp.status, await messageOf(resp));
}

/** @param {Response} resp */
async function messageOf(resp) {
	const text = await resp.text();
	try {
		const body = JSON.parse(text);
		return body.message || body.msg || text;
	} catch {
		return text || 'status ' + resp.status;
	}
}

/**
 * Sends a request and returns the JSON of the response; null if it is empty.
 * @param {string} method
 * @param {string} path
 * @param {any} [body]
 * @param {Options} [opt]
 */
export async function call(method, path, body, opt) {
	const text = await (await open(method, path, body, opt)).text();
	return text === '' ? null : JSON.parse(text);
}

/** @param {string} path @param {AbortSignal} [signal] */
export const get = (path, signal) => call('GET', path, undefined, { signal });

/**
 * Returns the response to a request for a part of a record, again while the gateway still reads a long one:
 * each request continues where the one before ended.
 * @param {string} path
 * @param {AbortSignal} signal
 */
export async function getLong(path, signal) {
	for (let n = 1; ; n++) {
		try {
			return await get(path, signal);
		} catch (err) {
			if (err.status !== 503 || n === longTries || signal.aborted) throw err;
			await pause(longWait, signal);
		}
	}
}

/**
 * Yields the lines of a response.
 * @param {Response} resp
 */
export async function* lines(resp) {
	const reader = resp.body.pipeThrough(new TextDecoderStream()).getReader();
	let rest = '';
	for (;;) {
		const { value, done } = await reader.read();
		if (done) break;
		const parts = (rest + value).split('\n');
		rest = parts.pop();
		yield* parts;
	}
	if (rest) yield rest;
}

/**
 * @typedef {Object} ServerEvent
 * @property {string} type
 * @property {string} id
 * @property {any} data parsed JSON
 */

/**
 * Yields the Server-Sent Events of a response.
 * @param {Response} resp
 * @returns {AsyncGenerator<ServerEvent>}
 */
export async function* events(resp) {
	let type = 'message', id = '', data = '';
	for await (const line of lines(resp)) {
		if (line === '') {
			if (data) yield { type, id, data: JSON.parse(data) };
			type = 'message';
			data = '';
			continue;
		}
		const at = line.indexOf(':');
		const name = line.slice(0, at), value = line.slice(at + 1).trimStart();
		if (name === 'event') type = value;
		else if (name === 'id') id = value;
		else if (name === 'data') data += value;
	}
}

/** Waits for a time, or less if the signal aborts. */
export function pause(ms, signal) {
	return new Promise((done) => {
		const t = setTimeout(done, ms);
		signal.addEventListener('abort', () => { clearTimeout(t); done(); }, { once: true });
	});
}

/**
 * Follows a stream of Server-Sent Events until it ends, and reconnects after the last event
 * when the connection breaks.
 * @param {string} path
 * @param {Object} opt
 * @param {AbortSignal} opt.signal ends the stream
 * @param {(e: ServerEvent) => (boolean|void)} opt.on receives each event; true ends the stream
 * @param {(live: boolean) => void} [opt.state] receives changes of the connection
 */
export async function follow(path, { signal, on, state = () => {} }) {
	let last = '', wait = 250;
	while (!signal.aborted) {
		try {
			const headers = { Accept: 'text/event-stream', 'Keepalive-Ping-Interval': '5', ...(last && { 'Last-Event-ID': last }) };
			const resp = await open('GET', path, undefined, { signal, headers });
			if (resp.status === 204) return;
			state(true);
			wait = 250;
			for await (const e of events(resp)) {
				if (e.id) last = e.id;
				if (e.type === 'reconnect') break;
				if (e.type === 'error') throw new ApiError(0, e.data.message);
				if (on(e)) return;
			}
		} catch (err) {
			if (signal.aborted) return;
			if (err instanceof ApiError && err.status >= 400 && err.status < 500 && err.status !== 429) throw err;
		}
		if (signal.aborted) return;
		state(false);
		await pause(wait, signal);
		wait = Math.min(wait * 2, 4000);
	}
}
