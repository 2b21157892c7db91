package main

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// sbomTool reads the modules that a Go program was built from.
const sbomTool = "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0"

// program is one of the programs of a release.
type program struct {
	name, module, path string // module is a directory of the source
	debug              bool   // keep the table of symbols, which stack traces of ours need
}

var programs = []program{
	{name: "millrace", module: ".", path: ".", debug: true},
	{name: "millrace-shim", module: ".", path: "./services/hostd/cmd/millrace-shim", debug: true},
	{name: "millrace-runsc", module: "runsc", path: "."},
	{name: "millrace-mcp-gateway", module: "mcpgateway", path: "."},
}

// build compiles programs for a platform into dir/bin. The shim embeds the agent.
func (r *release) build(ctx context.Context, platform, dir string, all []program) error {
	scratch, err := os.MkdirTemp("", "millrace-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	overlay, err := r.agent(ctx, platform, scratch)
	if err != nil {
		return err
	}
	for _, p := range all {
		flags := "-s -w"
		if p.debug {
			flags = "-s"
		}
		if p.name == "millrace" {
			flags += " -X github.com/millrace/millrace/internal/app.release=" + r.version
		}
		args := []string{"-ldflags=" + flags}
		if p.name == "millrace-shim" {
			args = append(args, "-overlay", overlay)
		}
		if err := r.compile(ctx, platform, p, filepath.Join(dir, "bin", p.name), args...); err != nil {
			return err
		}
	}
	return nil
}

// agent builds the program that the shim embeds and returns the file that tells the compiler.
func (r *release) agent(ctx context.Context, platform, scratch string) (string, error) {
	raw, packed, overlay := filepath.Join(scratch, "agent"), filepath.Join(scratch, "agent.gz"), filepath.Join(scratch, "overlay.json")
	agent := program{name: "agent", module: ".", path: "./services/hostd/cmd/millrace-agent"}
	if err := r.compile(ctx, platform, agent, raw, "-ldflags=-s -w"); err != nil {
		return "", err
	}
	if err := compress(packed, raw); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(r.root, "services/hostd/internal/agentexec/agent.gz"): packed,
	}})
	if err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, text, 0o600)
}

func (r *release) compile(ctx context.Context, platform string, p program, to string, args ...string) error {
	_, arch, _ := strings.Cut(platform, "/")
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"build", "-trimpath", "-o", to}, args...), p.path)...)
	cmd.Dir = filepath.Join(r.root, p.module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOOS=linux", "GOARCH="+arch)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w", p.name, err)
	}
	return nil
}

// modules writes which modules the programs in dir were built from.
func (r *release) modules(ctx context.Context, platform, dir string) error {
	cmd := exec.CommandContext(ctx, "go", "run", sbomTool, "bin", "-json", "-licenses=false",
		"-output", filepath.Join(r.out, r.name(platform)+".cdx.json"), filepath.Join(dir, "bin/millrace"))
	cmd.Env = append(os.Environ(), "GOWORK=off")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("list the modules: %w", err)
	}
	return nil
}

func compress(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	w, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, in); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return out.Close()
}
