package protocol

import (
	"encoding/json"

	"github.com/millrace/millrace/services/gateway/internal/codex/fileuri"
)

// helperName is the argv[0] of codex's own sandbox program. Releases up to 0.140 have no sandbox
// member: they wrap the command in this program, by its path on the client's machine:
//
//	codex --sandbox-policy-cwd DIR --command-cwd DIR --permission-profile JSON -- COMMAND
//
// and up to 0.12x, with the parts of the profile in arguments of their own,
//
//	codex --sandbox-policy-cwd DIR [--command-cwd DIR] --sandbox-policy JSON
//		--file-system-sandbox-policy JSON --network-sandbox-policy JSON -- COMMAND
const helperName = "codex-linux-sandbox"

// unwrap replaces a command in codex's sandbox program by the command and its policy.
func (p *StartParams) unwrap() error {
	if p.Arg0 == nil || *p.Arg0 != helperName {
		return nil
	}
	if p.Sandbox != nil {
		return notUnderstood(helperName + " with a sandbox")
	}
	values := make(map[string]string)
	args := p.Argv[1:]
	for ; len(args) > 1 && args[0] != "--"; args = args[2:] {
		switch args[0] {
		case "--sandbox-policy-cwd", "--command-cwd", "--permission-profile",
			"--sandbox-policy", "--file-system-sandbox-policy", "--network-sandbox-policy":
			values[args[0]] = args[1]
		default:
			return notUnderstood(helperName + " with the argument " + clip(args[0]))
		}
	}
	if len(args) < 2 || args[0] != "--" || args[1] == "" {
		return notUnderstood(helperName + " without a command")
	}
	s := &Sandbox{}
	for flag, set := range map[string]func(Path){
		"--sandbox-policy-cwd": func(at Path) { s.Cwd = &at },
		"--command-cwd":        func(at Path) { p.Cwd = at },
	} {
		dir, ok := values[flag]
		if !ok {
			continue
		}
		name, form, err := fileuri.Parse(dir)
		if err != nil {
			return err
		}
		set(Path{name, form})
	}
	profile, files, network := values["--permission-profile"], values["--file-system-sandbox-policy"], values["--network-sandbox-policy"]
	switch {
	case profile != "":
		s.Permissions = json.RawMessage(profile)
	case files != "" && network != "":
		raw, err := json.Marshal(map[string]json.RawMessage{
			"type": json.RawMessage(`"managed"`), "file_system": json.RawMessage(files), "network": json.RawMessage(network),
		})
		if err != nil {
			return notUnderstood(helperName + " with a policy that is not JSON")
		}
		s.Permissions = raw
	default:
		return notUnderstood(helperName + " without a policy")
	}
	p.Argv, p.Arg0, p.Sandbox = args[1:], nil, s
	return nil
}
