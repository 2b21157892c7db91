// Turns keys into the bytes that a terminal sends.

/** Keys with a sequence of their own. */
const named = {
	Tab: '\t', Escape: '\x1b', Backspace: '\x7f', Delete: '\x1b[3~', Insert: '\x1b[2~',
	ArrowUp: '\x1b[A', ArrowDown: '\x1b[B', ArrowRight: '\x1b[C', ArrowLeft: '\x1b[D', Home: '\x1b[H', End: '\x1b[F',
	PageUp: '\x1b[5~', PageDown: '\x1b[6~', F1: '\x1bOP', F2: '\x1bOQ', F3: '\x1bOR', F4: '\x1bOS', F5: '\x1b[15~', F6: '\x1b[17~',
	F7: '\x1b[18~', F8: '\x1b[19~', F9: '\x1b[20~', F10: '\x1b[21~', F11: '\x1b[23~', F12: '\x1b[24~',
};

/** Returns the control character of a key, or ''. */
function control(key) {
	if (key === ' ' || key === '@') return '\0';
	const code = key.toUpperCase().charCodeAt(0);
	return code >= 0x41 && code <= 0x5f ? String.fromCharCode(code - 0x40) : '';
}

/**
 * Returns what a key sends; '' if the browser turns it into text, which arrives as input.
 * @param {KeyboardEvent} e
 */
export function bytesOf(e) {
	if (e.isComposing || e.metaKey) return '';
	if (e.ctrlKey && e.shiftKey && /^[cv]$/i.test(e.key)) return ''; // copy and paste
	if (e.key === 'Tab' && e.shiftKey) return '\x1b[Z';
	if (named[e.key]) return (e.altKey ? '\x1b' : '') + named[e.key];
	if (e.key === 'Enter') return e.altKey ? '\x1b\r' : '';
	if (e.key.length !== 1 || e.getModifierState('AltGraph')) return '';
	if (e.ctrlKey && !e.altKey) return control(e.key);
	return e.altKey && !e.ctrlKey && e.key < '\x7f' ? '\x1b' + e.key : '';
}
