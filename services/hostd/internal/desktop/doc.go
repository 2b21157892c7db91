// Package desktop runs the desktop of a sandbox and uses it for an agent or a client: an X server
// without a screen, a window manager and a browser, screenshots, mouse and keyboard.
//
// # Supervision
// [Desktop.Start] starts Xvfb, and fluxbox and Chromium on it. Each one is restarted when it ends,
// with a backoff. If the display has a server already, that server and its programs are used as they
// are, and the desktop is started when that server has ended.
//
// # Calls
// [Desktop.Do] waits until the display is ready, within limits. A failed call does not end anything:
// the next one finds the restarted display. A PNG is what scrot printed, byte for byte.
//
// # Errors
// The code of an error ([kind.Code]) is invalid_argument, display_unavailable, program_missing,
// locator_unavailable, locator_failed or tool_failed.
package desktop
