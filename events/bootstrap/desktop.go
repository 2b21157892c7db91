package bootstrap

import "github.com/millrace/millrace/events/process"

// DesktopTag is the tag of the process that runs the desktop of a sandbox without a conversation.
const DesktopTag = "desktop"

// DesktopEnv is the variable by which a sandbox of any template gets a desktop if its value is "true".
const DesktopEnv = "CUA_ENABLED"

// Desktop returns the process that runs the desktop until it is ended. It prints one line when the display
// is ready, or when it cannot be.
func Desktop() process.Spec {
	tag := DesktopTag
	return process.Spec{Cmd: Program, Args: []string{Arg, DesktopTag}, Tag: &tag, Helper: true}
}
