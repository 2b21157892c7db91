// Text forms of values.

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/** @param {number} n */
export function bytes(n) {
	let i = 0;
	while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
	return (i === 0 ? String(n) : n.toFixed(n < 10 ? 1 : 0)) + '\u00a0' + units[i];
}

const plain = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });

/** @param {string} time RFC 3339 */
export const when = (time) => plain.format(new Date(time));

/** Returns the time of the day with milliseconds. @param {string} time */
export const clock = (time) => new Date(time).toISOString().slice(11, 23);

/**
 * Returns a duration with its two largest units.
 * @param {number} ms
 */
export function duration(ms) {
	if (ms < 1000) return Math.max(0, Math.round(ms)) + '\u00a0ms';
	const s = ms / 1000;
	if (s < 60) return s.toFixed(1) + '\u00a0s';
	const parts = [[86400, 'd'], [3600, 'h'], [60, 'm'], [1, 's']];
	let rest = Math.floor(s);
	const out = [];
	for (const [size, unit] of parts) {
		const n = Math.floor(rest / size);
		rest -= n * size;
		if (n || out.length) out.push(n + '\u00a0' + unit);
	}
	return out.slice(0, 2).join(' ');
}

/** @param {string} time */
export function ago(time) {
	const ms = Date.now() - Date.parse(time);
	return ms < 5000 ? 'now' : duration(ms).split(' ')[0] + ' ago';
}

/**
 * Returns a command as a shell shows it. A login shell that runs a line is shown as the line.
 * @param {string} cmd
 * @param {string[]} [args]
 */
export function command(cmd, args = []) {
	if (cmd === '/bin/bash' && args.length === 3 && args[0] === '-l' && args[1] === '-c') return args[2];
	return [cmd, ...args].map((a) => (/^[\w@%+=:,./-]+$/.test(a) ? a : "'" + a.replaceAll("'", "'\\''") + "'")).join(' ');
}
