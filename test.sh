#!/usr/bin/env bash
# All checks of a change, on a fresh machine with Go and a C compiler (for the race
# detector). The script installs the Debian packages that the tests need when it runs as
# root; the tests install Go modules and npm packages.
#
#	./test.sh          all of it
#	./test.sh unit     vet, lint, the product's tests with the race detector
#	./test.sh guests   the driver microvm, in QEMU without KVM
#	./test.sh e2e      the real binary and third-party clients
#	./test.sh faults   the tests of e2e that kill services, with their output
set -euo pipefail
cd "$(dirname "$0")"

linter=github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# log has the current step, and the failed tests with their first errors. They are printed
# last, because services for continuous integration often keep only the end of the output.
log=$(mktemp -d)
echo start >"$log/step"
declare -A beside=()
trap 'summary $?' EXIT

step() {
	printf '\n== %s\n' "$*"
	[ "$BASHPID" != $$ ] || echo "$*" >"$log/step" # not beside other tests
}

# start_beside FUNCTION runs a function while the script continues; finish_beside waits for it and
# prints its output.
start_beside() {
	set -m # with a process group of its own, which can be ended as a whole
	("$1") >"$log/$1" 2>&1 </dev/null &
	set +m
	beside[$1]=$!
}

finish_beside() {
	local status=0
	step "beside other tests: $1"
	wait "${beside[$1]}" || status=$?
	unset "beside[$1]"
	cat "$log/$1"
	return "$status"
}

# summary STATUS prints the failed tests at the end of the script.
summary() {
	local group
	for group in "${beside[@]}"; do
		kill -- "-$group" 2>/dev/null || true
	done
	if [ -s "$log/failed" ]; then
		printf '\n== failed tests, and their first errors\n'
		cat "$log/failed"
	fi
	if [ "$1" != 0 ]; then
		printf '\nFAILED (%s) in the step: %s\n' "$1" "$(cat "$log/step")"
	fi
	rm -rf "$log" 2>/dev/null || true
}

missing=()
need() { # need COMMAND PACKAGE... adds the packages to those to install if COMMAND does not exist
	command -v "$1" >/dev/null || missing+=("${@:2}")
}

# install installs the missing packages in one run of apt-get. It waits for the lock of
# another package manager, such as the automatic update of a fresh machine.
install() {
	if [ ${#missing[@]} = 0 ]; then
		return
	fi
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "missing (Debian's packages): ${missing[*]}" >&2
		exit 1
	fi
	step "install Debian's packages (about a minute): ${missing[*]}"
	update_lists
	DEBIAN_FRONTEND=noninteractive apt-get -o Dpkg::Options::=--force-unsafe-io \
		-o DPkg::Lock::Timeout="$lock_wait" \
		install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
	missing=()
}

lock_wait=600 # seconds to wait for another package manager

# update_lists runs apt-get update and retries while another program holds the lock of the
# lists, because apt-get itself does not wait for that lock.
update_lists() {
	local out end=$((SECONDS + lock_wait))
	while ! out=$(apt-get update -qq 2>&1); do
		if [[ $out != *"Could not get lock"* ]] || ((SECONDS >= end)); then
			echo "$out" >&2
			return 1
		fi
		echo "waiting for another package manager: ${out%%$'\n'*}"
		sleep 5
	done
}

needs_unit() {
	need gcc gcc libc6-dev
	need git git
	need busybox busybox-static
	need pgrep procps
	need nft nftables
	need ip iproute2
	need mkfs.ext4 e2fsprogs
	need python3 python3
	need node nodejs
}

needs_guests() {
	need qemu-system-x86_64 qemu-system-x86
	need mksquashfs squashfs-tools
	need busybox busybox-static
}

# The tests of the code interpreter use the template of the host's files, so the languages
# must be installed on this machine.
needs_e2e() {
	need curl curl ca-certificates
	need npm nodejs npm
	need esbuild esbuild
	need R r-base-core
	need jshell default-jdk-headless
	need ssh openssh-client
	need sshd openssh-server
	need vim vim
	need chromium chromium
	need top procps
	need tmux tmux
	# Desktops of e2a: 10 s, 27 MB to download.
	need Xvfb xvfb
	need fluxbox fluxbox
	need xdotool xdotool
	need scrot scrot
	need xev x11-utils
	need xsetroot x11-xserver-utils
	/usr/bin/python3 -c 'import matplotlib' 2>/dev/null || missing+=(python3-matplotlib)
}

# again FLAG... -- PACKAGE... runs go test, and repeats failed tests once, alone: the tests
# kill servers, and an election can be late on a loaded machine. A test that fails twice has
# failed; the first failure is printed. Data races are not retried, but for those in the code of
# others alone: a stream of the NATS server that is not used in its first second reads the field of
# its timer in another goroutine than the one that wrote it.
again() {
	local flags=() failed package tests
	while [ "$1" != -- ]; do
		flags+=("$1")
		shift
	done
	shift
	if run "" "${flags[@]}" "$@"; then
		return
	fi
	failed=$(failures "$log/output")
	if [ -z "$failed" ] || own_race "$log/output"; then
		return 1
	fi
	while read -r package tests; do
		step "retry failed tests: $package $tests"
		run " again" "${flags[@]}" -p 1 -count=1 ${tests:+-run "$tests"} "$package" </dev/null || return 1
		echo "passed when repeated: $package $tests" >>"$log/failed"
	done <<<"$failed"
}

# run NOTE ARGUMENT... runs go test, keeps its output, and adds what failed to the summary.
run() {
	local note=$1
	shift
	if go test "$@" 2>&1 | tee "$log/output"; then
		return
	fi
	errors "$note" "$log/output" >>"$log/failed"
	return 1
}

# errors NOTE LOG prints the failed tests of a log, each with its first errors, and their packages.
errors() {
	awk -v note="$1" '
		match($0, /--- FAIL: /) { print "failed" note ": " substr($0, RSTART + RLENGTH); left = 4; next }
		/^(panic: |fatal error: |WARNING: DATA RACE)/ { print "\t" substr($0, 1, 300) }
		/^FAIL[ \t]+[^ \t]/ { print "\tin " substr($0, 6) }
		/^[ \t]+[A-Za-z0-9_]+\.go:[0-9]+: / && left-- > 0 { print substr($0, 1, 300) }
		/^(--- |=== |ok|FAIL)/ { left = 0 }' "$2"
}

# own_race LOG reports whether code of this repository takes part in an access of a data race.
own_race() {
	awk '
		/^WARNING: DATA RACE/ { stacks = 1 }
		/^Goroutine [0-9]+ .*created at:/ { stacks = 0 }
		stacks && /github\.com\/millrace\// { own = 1 }
		END { exit !own }' "$1"
}

# failures LOG prints a line for each failed package: its path, and a pattern of its failed
# tests. The pattern is missing if the whole package must run again, because it did not
# compile or ended before the line that follows its last test.
failures() {
	awk '
		match($0, /(^|[^ \t])--- FAIL: [^ \t]+/) {
			test = substr($0, RSTART, RLENGTH); sub(/.*--- FAIL: /, "", test)
			tests = tests (tests == "" ? "" : "|") test
		}
		/^FAIL$/ { ended = 1 }
		/^panic: / { whole = 1 }
		/^(ok|FAIL)[ \t]+[^ \t]+\// {
			if ($1 == "FAIL") print $2 (whole || !ended || tests == "" ? "" : " ^(" tests ")$")
			tests = ""; whole = ended = 0
		}' "$1"
}

# static checks the source, with the scheduler's policy for idle time where chrt exists.
static() {
	chrt --idle --pid 0 "$BASHPID" 2>/dev/null || true
	step "type-check for the other systems"
	go test -timeout 1h ./internal/arch/systems
	step "lint"
	GOBIN=$log go install "$linter"
	"$log/golangci-lint" run --timeout 1h ./... ./e2e/...
}

unit() {
	needs_unit
	install
	step "format and vet"
	test -z "$(gofmt -l $(git ls-files '*.go') | tee -a /dev/stderr)"
	go vet work
	[ -z "${beside[install]-}" ] || finish_beside install # tests skip what is not installed
	start_beside static
	step "build the helper programs of hostd (minutes, the first time)"
	go test -timeout 30m -run TestBuildsAllPrograms ./services/hostd/internal/helperbin
	step "tests, with the race detector and the fuzz seeds"
	# -p 4 on two cores, because many packages mostly wait; the longest first, so that none runs
	# alone in the end. In the drivers gvisor and jail the test binary is also the shim and
	# FreeBSD's programs, which take most of the time with the race detector: they run without it.
	# The race detector allocates memory, which internal/counts counts; internal/arch reads the
	# source. go vet was run above.
	local plain='(/internal/driver/(gvisor|jail)|/internal/(counts|arch))$' systems='/internal/arch/systems$' all
	local long='/(services/hostd|driver/namespace|services/gateway|events|internal/shim)$'
	all=$(go list ./... | grep -Ev "$plain|$systems")
	again -race -vet=off -timeout 20m -p 4 -- $(grep -E "$long" <<<"$all") $(grep -Ev "$long" <<<"$all")
	step "counts, source, and tests of the drivers gvisor and jail, without the race detector"
	again -vet=off -timeout 20m -- $(go list ./... | grep -E "$plain")
	finish_beside static
}

# modules tests the modules that have a go.mod of their own.
modules() {
	step "module runsc"
	(cd runsc && GOWORK=off CGO_ENABLED=0 go test -trimpath -timeout 10m ./...)
	step "module release"
	(cd release && export GOWORK=off MILLRACE_TEST_IMAGE=build && go vet ./... && go test -timeout 15m ./...)
	step "module mcpgateway"
	(cd mcpgateway && GOWORK=off go vet ./... && GOWORK=off go test -race -timeout 5m ./...)
}

# guests runs the driver microvm with QEMU's translation, which does not need KVM. The shim
# is the test binary, which must be static, so the race detector is not available.
guests() {
	test "$(uname -sm)" = "Linux x86_64" || return 0
	needs_guests
	install
	local kernel=/var/lib/millrace/microvm package
	if ! compgen -G '/boot/vmlinuz-*-cloud-amd64' >/dev/null && ! compgen -G "$kernel/boot/vmlinuz-*-cloud-amd64" >/dev/null && [ "$(id -u)" = 0 ]; then
		step "unpack Debian's cloud kernel in $kernel"
		package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image-/ { print $2; exit }')
		(cd "$(mktemp -d)" && apt-get download -qq "$package" && mkdir -p "$kernel" && dpkg-deb -x ./*.deb "$kernel")
	fi
	# The driver's whole contract at a small scale; MILLRACE_TEST_MICROVM=1 is the full scale. With
	# -trimpath its packages are those that the module release has compiled.
	step "guests, translated by QEMU"
	(export CGO_ENABLED=0 && again -count=1 -trimpath -vet=off -timeout 20m -- ./services/hostd/internal/driver/microvm/...)
}

e2e() {
	needs_e2e
	install
	step "the real binary and third-party clients"
	(cd e2e && again -count=1 -vet=off -timeout 30m -- ./...)
	# The run above uses namespace; gvisor is the default that users get.
	if go run . doctor | grep '^driver gvisor *ok'; then
		step "third-party clients, in gVisor"
		# The run above has the tests of every driver.
		(export MILLRACE_E2E_DRIVER=gvisor && cd e2e && again -count=1 -vet=off -timeout 20m -run 'SDK|TestWire|TestFork|TestNetwork' -skip OfEveryDriver -- ./...)
	fi
}

case "${1:-all}" in
unit)
	unit
	start_beside modules # a guest has one CPU
	guests
	finish_beside modules
	;;
guests) guests ;;
e2e) e2e ;;
faults) (cd e2e && go test -count=1 -timeout 20m -run TestFault -v .) ;;
all)
	step "all checks: 44 minutes on two cores of a fresh machine"
	needs_unit
	needs_guests
	install
	needs_e2e
	start_beside install
	missing=()
	unit
	start_beside modules # a guest has one CPU
	guests
	finish_beside modules
	e2e
	step "all passed"
	;;
*)
	sed -n '2,10p' "$0" >&2
	exit 2
	;;
esac
