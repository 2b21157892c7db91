package builder

import (
	"context"
	"strings"

	"github.com/millrace/millrace/events/build"
	"github.com/millrace/millrace/events/kind"
	"github.com/millrace/millrace/events/sandbox"
)

// imageSum starts the sum of an image from a registry. Its version changes with installPackages,
// so that layers made by another version are not used again.
const imageSum = "registry image 1 "

// isImage reports whether the build starts from an image of a registry, as opposed to the
// host's files or another template.
func (o *origin) isImage() bool { return strings.HasPrefix(o.sum, imageSum) }

// packagesStep is the number of the layer that installs packages, before the template's own steps.
const packagesStep = 0

// packagesLayer returns the layer that adds to an image what E2B's templates have: sudo, curl,
// CA certificates, git and jq.
func packagesLayer(from settings, sum string, keys Keys) layer {
	run := &build.Step{Type: build.Run, Args: []string{installPackages, "root"}}
	from.workdir = "/"
	return layer{settings: from, step: packagesStep, do: run, sum: chain(keys, sum, "packages")}
}

// packages runs the layer of packagesLayer. A failure to install them does not fail the build:
// the image may have no shell, or its package manager no working mirror.
func (ex *executor) packages(ctx context.Context, sbx sandbox.ID, l *layer) error {
	err := ex.execute(ctx, sbx, l)
	if err == nil || ctx.Err() != nil || kind.Is(err, kind.Unavailable) || kind.Is(err, kind.Internal) {
		return err
	}
	return ex.record.append(ctx, ex.record.logged(build.Warn, "[base] Packages not installed (sudo, curl, ca-certificates, git, jq): "+kind.Message(err)))
}

// installPackages is a script for any POSIX shell. It reports on standard output, because what
// a step writes to standard error is an error line of the build's log.
const installPackages = `exec 2>&1
PATH=${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}
has() { command -v "$1" >/dev/null 2>&1; }
missing=
for c in curl git jq; do has $c || missing="$missing $c"; done
if ! has sudo || sudo -V | grep -q Millrace; then missing="$missing sudo"; fi
[ -s /etc/ssl/certs/ca-certificates.crt ] || [ -s /etc/pki/tls/certs/ca-bundle.crt ] || [ -s /etc/ssl/ca-bundle.pem ] || missing="$missing ca-certificates"
if [ -z "$missing" ]; then echo "sudo, curl, ca-certificates, git and jq are installed"; exit 0; fi
skip() { echo "Packages not installed ($*):$missing"; exit 0; }
[ -n "$http_proxy" ] || skip "the build has no network"
export DEBIAN_FRONTEND=noninteractive
if has apt-get; then
	apt="apt-get -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -o Dpkg::Use-Pty=0"
	$apt update && $apt install -y --no-install-recommends $missing && rm -rf /var/lib/apt/lists/*
elif has apk; then apk add --no-cache $missing
elif has microdnf; then microdnf install -y --setopt=install_weak_deps=0 $missing && microdnf clean all
elif has dnf; then dnf install -q -y --setopt=timeout=20 --setopt=retries=1 --setopt=install_weak_deps=False --allowerasing $missing && dnf clean all
elif has yum; then yum install -q -y $missing && yum clean all
elif has zypper; then zypper -q -n install --no-recommends $missing && zypper clean -a
elif has pacman; then pacman -Sy --noconfirm --needed $missing
else skip "the image has no known package manager"; fi || skip "the package manager failed"
echo "Packages installed:$missing"
`
