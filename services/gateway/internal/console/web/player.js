// Moves through the record of a process: seek, replay, and back to the live end.

import { open, getLong, lines, pause } from './api.js';

const chunk = 400;       // events of a read
const silence = 500;     // milliseconds of a pause that replay keeps
const drawEvery = 50;    // milliseconds between screens of a replay

/** The position of a page in the record of a process. */
export class Player {
	/**
	 * @param {(seq: number) => string} source returns the path of what is drawn at an event
	 * @param {string} path of the process
	 * @param {(frame: any) => void} draw
	 * @param {AbortSignal} signal ends all reads
	 */
	constructor(source, path, draw, signal) {
		Object.assign(this, { source, path, draw, signal, wanted: 0, busy: false, speed: 1, stop: null, seq: 0 });
	}

	/**
	 * Shows the screen after an event. Of the calls that arrive while a read runs only the last
	 * one is read.
	 * @param {number} seq
	 */
	async seek(seq) {
		this.wanted = seq;
		if (this.busy) return;
		this.busy = true;
		try {
			for (let at = -1; at !== this.wanted && !this.signal.aborted;) {
				at = this.wanted;
				const frame = await getLong(this.source(at), this.signal);
				if (at === this.wanted) this.show(frame);
			}
		} finally {
			this.busy = false;
		}
	}

	show(frame) {
		this.seq = frame.seq;
		this.draw(frame);
	}

	get playing() { return this.stop !== null; }

	pause() {
		if (this.stop) this.stop.abort();
		this.stop = null;
	}

	/** Yields the seq and time of the events after one. */
	async *times(after, signal) {
		for (let more = true; more && !signal.aborted;) {
			more = false;
			const resp = await open('GET', `${this.path}/events?follow=0&limit=${chunk}&after=${after}`, undefined, { signal });
			for await (const line of lines(resp)) {
				const e = JSON.parse(line);
				if (!e.seq || !e.time) continue;
				more = true;
				after = e.seq;
				yield { seq: e.seq, time: Date.parse(e.time) };
			}
		}
	}

	/**
	 * Replays from an event to the end of the record. Silence is skipped.
	 * @param {number} from
	 */
	async play(from) {
		this.pause();
		const stop = new AbortController();
		this.stop = stop;
		const signal = AbortSignal.any([this.signal, stop.signal]);
		let last = 0, due = performance.now(), drawn = 0, pending = 0;
		for await (const e of this.times(from, signal)) {
			if (signal.aborted) return;
			due += last ? Math.min(e.time - last, silence) / this.speed : 0;
			last = e.time;
			pending = e.seq;
			const early = due - performance.now();
			if (early < 5 && performance.now() - drawn < drawEvery) continue;
			if (early > 0) {
				await this.seek(pending - 1);
				await pause(due - performance.now(), signal);
			}
			if (signal.aborted) return;
			await this.seek(e.seq);
			drawn = performance.now();
			due = Math.max(due, drawn - silence); // a slow connection does not make up for lost time
		}
		if (pending && !signal.aborted) await this.seek(pending);
		if (this.stop === stop) this.stop = null;
	}
}
