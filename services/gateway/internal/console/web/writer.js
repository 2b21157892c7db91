// Sends keys to a terminal. One client at a time has the writer's lease; all others watch.

import { open, call, ApiError } from './api.js';

/** A client of a terminal that may become its writer. */
export class Writer {
	/** @param {string} path of the process @param {(held: boolean) => void} changed */
	constructor(path, changed) {
		this.path = path;
		this.changed = changed;
		this.lease = '';
		this.waiting = '';
		this.sending = false;
		this.held = false;
	}

	/** Takes the lease, or has it handed over. */
	async take() {
		try {
			const made = await call('POST', this.path + '/writer', {});
			this.lease = made.lease || made.id || '';
		} catch (err) {
			if (!(err instanceof ApiError) || (err.status !== 404 && err.status !== 405)) throw err;
			this.lease = ''; // a gateway without leases
		}
		this.set(true);
	}

	/** Gives the lease back. */
	async release() {
		this.set(false);
		if (this.lease) await call('DELETE', this.path + '/writer', undefined, { headers: this.headers() });
	}

	set(held) {
		this.held = held;
		this.waiting = '';
		this.changed(held);
	}

	headers() { return this.lease ? { 'Millrace-Writer': this.lease } : {}; }

	/** Queues bytes. Those that arrive while a request runs are sent together in the next one. */
	async send(text) {
		this.waiting += text;
		if (this.sending) return;
		this.sending = true;
		try {
			while (this.waiting) {
				const raw = this.waiting;
				this.waiting = '';
				await open('POST', this.path + (this.lease ? '/input' : '/stdin'), undefined, { raw, headers: this.headers() });
			}
		} catch (err) {
			this.set(false);
			throw err;
		} finally {
			this.sending = false;
		}
	}

	/** Sets the size of the terminal. */
	size(size) {
		return call('POST', this.path + (this.lease ? '/size' : '/resize'), size, { headers: this.headers() });
	}
}
