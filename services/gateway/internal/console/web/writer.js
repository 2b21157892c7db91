// Sends keys to a terminal. One client at a time has the writer's lease; all others watch.

import { open, call, ApiError } from './api.js';

const tries = 12; // of a request whose connection breaks

/** Returns a name for a request, so that a retry is applied once. */
const requestName = () => [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, '0')).join('');

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
				await this.deliver(raw);
			}
		} catch (err) {
			this.set(false);
			throw err;
		} finally {
			this.sending = false;
		}
	}

	/** Sends bytes, again if the connection breaks or the gateway stops. */
	async deliver(raw) {
		const headers = { ...this.headers(), 'Idempotency-Key': requestName() };
		for (let n = 1; ; n++) {
			try {
				await open('POST', this.path + (this.lease ? '/input' : '/stdin'), undefined, { raw, headers });
				return;
			} catch (err) {
				const passing = !(err instanceof ApiError) || err.status === 503;
				if (!passing || n === tries) throw err;
				await new Promise((done) => setTimeout(done, 100 * n));
			}
		}
	}

	/** Sets the size of the terminal. */
	size(size) {
		return call('POST', this.path + (this.lease ? '/size' : '/resize'), size, { headers: this.headers() });
	}
}
