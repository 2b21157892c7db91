// Reads a Dockerfile into the steps of a template build.

/**
 * @typedef {Object} Recipe body of a build request
 * @property {string} fromImage
 * @property {{type: string, args: string[]}[]} steps
 * @property {string} [startCmd]
 */

/** Instructions that mean nothing for a template. */
const ignored = new Set(['LABEL', 'EXPOSE', 'MAINTAINER', 'STOPSIGNAL', 'VOLUME', 'HEALTHCHECK']);

/** Yields the instructions with the number of their first line. */
function* instructions(text) {
	let joined = '', first = 0;
	for (const [i, raw] of text.split(/\r?\n/).entries()) {
		const line = raw.trim();
		if (line.startsWith('#') || (!line && !joined)) continue;
		if (!joined) first = i + 1;
		if (line.endsWith('\\')) { joined += line.slice(0, -1) + ' '; continue; }
		yield { text: (joined + line).trim(), line: first };
		joined = '';
	}
	if (joined.trim()) yield { text: joined.trim(), line: first };
}

/** Returns a word without its quotes. */
const unquoted = (w) => (/^(['"]).*\1$/.test(w) ? w.slice(1, -1) : w);

/** Returns the shell command of RUN or CMD, which may be a list in JSON. */
function shellOf(rest) {
	if (!rest.startsWith('[')) return rest;
	const words = JSON.parse(rest);
	return words.map((w) => (/^[\w@%+=:,./-]+$/.test(w) ? w : "'" + w.replaceAll("'", "'\\''") + "'")).join(' ');
}

/** Returns names and values, alternately. */
function pairs(rest) {
	if (!/^[A-Za-z_]\w*=/.test(rest)) {
		const [, name, value] = rest.match(/^(\S+)\s*(.*)$/) || ['', '', ''];
		return [name, unquoted(value)];
	}
	const words = rest.match(/[A-Za-z_]\w*=("[^"]*"|'[^']*'|\S*)/g);
	return words.flatMap((w) => [w.slice(0, w.indexOf('=')), unquoted(w.slice(w.indexOf('=') + 1))]);
}

/**
 * Returns the recipe of a Dockerfile, or throws an error with the line that cannot be built.
 * @param {string} text
 * @returns {Recipe}
 */
export function parse(text) {
	const out = { fromImage: '', steps: [] };
	let user = 'root';
	for (const { text: t, line } of instructions(text)) {
		const [, word, rest] = t.match(/^(\S+)\s*([^]*)$/);
		const name = word.toUpperCase();
		const fail = (why) => { throw new Error(`line ${line}: ${why}`); };
		if (!rest && !ignored.has(name)) fail(`${name} needs an argument`);
		if (name !== 'FROM' && name !== 'ARG' && !out.fromImage) fail('the first instruction must be FROM');
		try {
			switch (name) {
			case 'FROM':
				if (out.fromImage) fail('a build has one FROM');
				out.fromImage = rest.replace(/^--platform=\S+\s+/, '').split(/\s+/)[0];
				break;
			case 'RUN': out.steps.push({ type: 'RUN', args: [shellOf(rest), user] }); break;
			case 'ENV': out.steps.push({ type: 'ENV', args: pairs(rest) }); break;
			case 'ARG': if (rest.includes('=')) out.steps.push({ type: 'ENV', args: pairs(rest) }); break;
			case 'WORKDIR': out.steps.push({ type: 'WORKDIR', args: [rest] }); break;
			case 'USER': user = rest; out.steps.push({ type: 'USER', args: [rest] }); break;
			case 'CMD': case 'ENTRYPOINT': out.startCmd = shellOf(rest); break;
			case 'COPY': case 'ADD': fail(`${name} needs files, which only an SDK can send; RUN can fetch or write them`); break;
			default: if (!ignored.has(name)) fail(`${name} is not supported`);
			}
		} catch (err) {
			if (err instanceof SyntaxError) fail(`${name} has a list that is no JSON`);
			throw err;
		}
	}
	if (!out.fromImage) throw new Error('FROM is missing');
	return out;
}
