// Sends keys to a terminal. One client at a time has the writer's lease; all others watch.

import { open, call, get, ApiError } from './api.js';
import { pageName } from './names.js';

const tries = 12;   // of a request whose connection breaks
const renew = 2000; // milliseconds between renewals, and between looks at who types
const taken = 409;  // status of a request without the lease

/** Returns a name for a request, so that a retry is applied once. */
const requestName = () => [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, '0')).join('');

const refused = (err) => err instanceof ApiError && err.status === taken;

/**
 * @typedef {Object} Lease state of the writer's lease
 * @property {boolean} held whether a client has it
 * @property {string} [name] of that client
 * @property {string} [asked] name of the client that waits for it
 * @property {string} [lease] of this client
 * @property {boolean} [writes] whether this client has it
 */

/** A client of a terminal that may become its writer. */
export class Writer {
	/**
	 * @param {string} path of the process
	 * @param {() => void} changed called when held, waits or state change
	 */
	constructor(path, changed) {
		Object.assign(this, { path, changed, lease: '', queue: '', sending: false, held: false, waits: false, turn: 0, timer: 0 });
		/** @type {Lease} */
		this.state = { held: false };
		this.before = Promise.resolve();
	}

	headers() { return this.lease ? { 'Millrace-Writer': this.lease } : {}; }

	/** Sends a request about the lease after the one before, and keeps its answer unless the user has released the lease since. */
	post(body) {
		const turn = this.turn;
		return this.next(async () => {
			if (turn !== this.turn) return;
			try {
				const state = await call('POST', this.path + '/writer', { name: await pageName(), ...body }, { headers: this.headers() });
				if (turn === this.turn) this.keep(state);
			} catch (err) {
				if (refused(err) && turn === this.turn) this.set(false, false, this.state);
				throw err;
			}
		});
	}

	/** Runs f after the functions before it. */
	next(f) {
		const run = this.before.then(f);
		this.before = run.catch(() => {});
		return run;
	}

	/** @param {Lease} state */
	keep(state) {
		if (state.lease) this.lease = state.lease;
		const known = state.writes !== undefined;
		this.set(known ? state.writes : this.held, known ? this.waits && !state.writes : this.waits, state);
	}

	set(held, waits, { held: other, name, asked }) {
		const state = { held: other, name, asked };
		const same = held === this.held && waits === this.waits && JSON.stringify(state) === JSON.stringify(this.state);
		if (!held) this.queue = '';
		Object.assign(this, { held, waits, state });
		if (!same) this.changed();
	}

	/** Takes the lease, or asks the client that has it for a hand-over. */
	async take() {
		this.set(this.held, true, this.state);
		await this.post({ ask: true });
	}

	/** Hands the lease over to the client that waits. */
	handOver() { return this.post({ hand_over: true }); }

	/** Gives the lease back, or stops waiting for it. */
	async release() {
		this.turn++;
		this.set(false, false, { held: false });
		await this.next(async () => {
			const headers = this.headers();
			this.lease = '';
			if (headers['Millrace-Writer']) await call('DELETE', this.path + '/writer', undefined, { headers });
		});
	}

	/** Renews the lease, or looks at who has it, until the signal aborts. */
	watch(signal) {
		const look = async () => {
			const turn = this.turn;
			try {
				if (this.held || this.waits) {
					await this.post({ ask: this.waits });
				} else {
					const state = await get(this.path + '/writer', signal);
					if (turn === this.turn && !this.held && !this.waits) this.keep(state);
				}
			} catch (err) {
				if (err instanceof ApiError && err.status === 404) return;
			}
			if (!signal.aborted && !this.ended) this.timer = setTimeout(look, renew);
		};
		look();
		signal.addEventListener('abort', () => clearTimeout(this.timer));
	}

	/** Forgets the lease of a process that ended. */
	end() {
		this.ended = true;
		this.turn++;
		clearTimeout(this.timer);
		this.set(false, false, { held: false });
	}

	/** Queues text. What arrives while a request runs is sent together in the next one. */
	async send(text) {
		this.queue += text;
		if (this.sending) return;
		this.sending = true;
		try {
			while (this.queue) {
				const raw = this.queue;
				this.queue = '';
				await this.deliver(raw);
			}
		} finally {
			this.sending = false;
		}
	}

	/** Sends text, again if the connection breaks, the gateway stops, or the lease has ended and is free. */
	async deliver(raw) {
		const name = requestName();
		let retaken = false;
		for (let n = 1; ; n++) {
			try {
				await open('POST', this.path + '/input', undefined, { raw, headers: { ...this.headers(), 'Idempotency-Key': name } });
				return;
			} catch (err) {
				if (refused(err) && !retaken) {
					retaken = true;
					await this.post({});
					if (this.held) continue;
				}
				const passing = !(err instanceof ApiError) || err.status === 503;
				if (!passing || n === tries) throw err;
				await new Promise((done) => setTimeout(done, 100 * n));
			}
		}
	}

	/** Sets the size of the terminal. */
	size(size) { return call('POST', this.path + '/size', size, { headers: this.headers() }); }
}
