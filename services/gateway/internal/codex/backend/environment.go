package backend

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/process"
	"github.com/millrace/millrace/events/sandbox"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/services/gateway/internal/codex/protocol"
	"github.com/millrace/millrace/services/gateway/internal/procs"
)

// descriptions are the descriptions of sandboxes, each read once. They hold variables of the
// sandboxes, which never leave this process but in the environment of processes.
type descriptions struct {
	mu  sync.Mutex
	all map[sandbox.ID]*description
}

type description struct {
	info protocol.Info
	vars map[string]string
}

// maxDescriptions is how many descriptions are kept.
const maxDescriptions = 4096

// describe is a script that prints the working directory, the shell and the environment, each
// ended by NUL.
const describe = `printf '%s\0' "$(pwd)" "$(command -v bash || command -v sh)"; exec env -0`

const (
	// maxDescription limits what the script may print.
	maxDescription = 1 << 20
	// describeTries is how often the script is run if a gateway misses its output, which a host sends
	// once and does not store.
	describeTries = 3
	// describePause is the pause before the second run. It doubles before each other one.
	describePause = 50 * time.Millisecond
)

// errMissed reports that the output of a command was sent, but did not arrive here.
var errMissed = kind.New(kind.Unavailable, "describe", "", "the output of the command did not arrive")

// Describe implements [session.Environment]. It runs a short command in the sandbox, once. The
// record has no output of it: the variables of a sandbox may be secrets.
func (s *sandboxSession) Describe(ctx context.Context) (protocol.Info, map[string]string, error) {
	d := &s.b.descriptions
	d.mu.Lock()
	known := d.all[s.sbx]
	d.mu.Unlock()
	if known != nil {
		return known.info, known.vars, nil
	}
	out, err := []byte(nil), errMissed
	for i := 0; i < describeTries && errors.Is(err, errMissed); i++ {
		if i > 0 && !waiting.Sleep(ctx, waiting.Delay(i-1, describePause, time.Second)) {
			return protocol.Info{}, nil, ctx.Err()
		}
		out, err = s.run(ctx, process.Spec{Cmd: "/bin/sh", Args: []string{"-c", describe}, Helper: true, Record: sandbox.RecordMeta})
	}
	if err != nil {
		return protocol.Info{}, nil, err
	}
	known, err = parseDescription(s.sbx, out)
	if err != nil {
		return protocol.Info{}, nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil || len(d.all) >= maxDescriptions {
		d.all = make(map[sandbox.ID]*description)
	}
	d.all[s.sbx] = known
	return known.info, known.vars, nil
}

// parseDescription parses the output of the script.
func parseDescription(sbx sandbox.ID, out []byte) (*description, error) {
	fields := strings.Split(string(bytes.TrimSuffix(out, []byte{0})), "\x00")
	if len(fields) < 2 || !path.IsAbs(fields[0]) || fields[1] == "" {
		return nil, kind.New(kind.Unavailable, "describe", string(sbx), "the sandbox's environment could not be read")
	}
	vars := make(map[string]string, len(fields))
	for _, f := range fields[2:] {
		k, v, ok := strings.Cut(f, "=")
		if ok && !ofShell[k] {
			vars[k] = v
		}
	}
	temp := "/tmp"
	if t := vars["TMPDIR"]; path.IsAbs(t) {
		temp = path.Clean(t)
	}
	home := fields[0]
	if h := vars["HOME"]; path.IsAbs(h) {
		home = path.Clean(h)
	}
	return &description{vars: vars, info: protocol.Info{
		Shell: protocol.Shell{Name: path.Base(fields[1]), Path: fields[1]}, Cwd: path.Clean(fields[0]),
		TempDir: temp, TemporaryDirectories: []string{temp}, UserHomeDir: home,
		ExecutorVersion: "millrace", PlatformOS: "linux",
		ProviderID: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("millrace sandbox\x00"+string(sbx)))),
	}}, nil
}

// ofShell are the variables that the shell of the script sets itself.
var ofShell = map[string]bool{"PWD": true, "OLDPWD": true, "SHLVL": true, "_": true}

// run runs a command and returns what it prints.
func (s *sandboxSession) run(ctx context.Context, spec process.Spec) ([]byte, error) {
	_, src, err := s.ops.Start(ctx, s.p, s.sbx, spec, procs.StartOptions{})
	if err != nil {
		return nil, err
	}
	defer src.Close()
	var out []byte
	for {
		batch, err := src.Next(ctx, time.Second)
		for i := range batch {
			switch b := batch[i].Body.(type) {
			case process.Wrote:
				if out = append(out, b.Data...); len(out) > maxDescription {
					return nil, kind.New(kind.Exhausted, "describe", string(s.sbx), "the sandbox's environment is too large")
				}
			case process.Omitted:
				return nil, errMissed
			case process.Failed:
				return nil, kind.New(kind.Unavailable, "describe", string(s.sbx), b.Message)
			case process.Exited:
				return out, nil
			default:
			}
		}
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
