# Shared by up, down, run and verify: settings, and functions for installation and
# the background processes.

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# --- settings from the environment ------------------------------------------
STATE=${BOWLINE_VCSIM_STATE:-${TMPDIR:-/tmp}/bowline-vcsim}    # logs, PID files, output
CACHE=${BOWLINE_VCSIM_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/bowline-vcsim}  # the built server, pyVmomi
OUT=${BOWLINE_VCSIM_OUT:-$STATE/out}                           # vsphere.conf, vsphere.yaml, vcenter-1.json, ...
INSTALL=${BOWLINE_VCSIM_INSTALL:-yes}                          # no: install nothing, skip instead
AS_IS=${BOWLINE_VCSIM_AS_IS:-0}                                # 1: the simulator without corrections

# --- derived ----------------------------------------------------------------
VCENTERS=(vcenter-1 vcenter-2)
VCENTER_USER=administrator@vsphere.local
export VCENTER_PASSWORD='local-Secret/1'
GOVMOMI=/usr/share/gocode/src/github.com/vmware/govmomi
SERVER=$CACHE/vcenter-$(cat "$HERE"/vcenter/*.go | sha256sum | cut -c1-16)
PYVMOMI=pyvmomi==9.1.1.0
VENV=$CACHE/$PYVMOMI

# Requests stay on loopback, whatever proxy is configured. Only the installation uses
# the proxy.
loopback_only() {
    unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY all_proxy ALL_PROXY
    export no_proxy='*'
}

die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# skip REASON  in the form that the CI counts. 77 is the exit code of skipped tests.
skip() { printf 'SKIPPED: no vcsim: %s\n' "$*"; exit 77; }

# --- installation -----------------------------------------------------------
# Prints the Go of Debian's package if there is one: the sources of govmomi fit it.
find_go() {
    local each
    for each in /usr/bin/go go; do
        command -v "$each" && return 0
    done
    return 1
}

install_go() {
    ((EUID == 0)) && command -v apt-get >/dev/null ||
        skip "install the Debian packages golang-go and golang-github-vmware-govmomi-dev, or run this as root"
    timeout 600 sh -c 'export DEBIAN_FRONTEND=noninteractive; apt-get -qq update; apt-get -qq -y \
        --no-install-recommends -o DPkg::Lock::Timeout=600 install golang-go golang-github-vmware-govmomi-dev' \
        >/dev/null 2>&1 || true
}

# Builds the server once for each version of its sources. With it in the cache, neither
# Go nor the package is needed. The first of several concurrent builds is used.
build_server() {
    local go new
    [[ -x $SERVER ]] && return 0
    [[ $INSTALL == yes ]] || skip "it is not in $CACHE, and BOWLINE_VCSIM_INSTALL is $INSTALL"
    find_go >/dev/null && [[ -d $GOVMOMI/simulator ]] || install_go
    go=$(find_go) && [[ -d $GOVMOMI/simulator ]] || skip "apt-get cannot install golang-go and golang-github-vmware-govmomi-dev"
    mkdir -p "$CACHE" || skip "cannot create $CACHE"
    new=$(mktemp -d "$SERVER.XXXXXX")
    # shellcheck disable=SC2064 # the folder of this call
    trap "rm -rf '$new'" EXIT
    (cd "$HERE/vcenter" && GO111MODULE=off GOPATH=/usr/share/gocode GOFLAGS='' GOTOOLCHAIN=local CGO_ENABLED=0 \
        GOCACHE="$new/cache" timeout 900 "$go" build -o "$new/vcenter" .) >"$new/log" 2>&1 ||
        skip "go cannot build it: $(grep -m1 -v '^#' "$new/log")"
    mv "$new/vcenter" "$SERVER"
    chmod -R u+w "$new" && rm -rf "$new"
    trap - EXIT
}

# Installs VMware's own client library for verify.
install_pyvmomi() {
    local base
    [[ -e $VENV/installed ]] && return 0
    [[ $INSTALL == yes ]] || skip "$PYVMOMI is not in $CACHE, and BOWLINE_VCSIM_INSTALL is $INSTALL"
    for base in python3 /usr/bin/python3; do
        "$base" -c 'import ensurepip, venv' 2>/dev/null && break
    done
    rm -rf "$VENV"
    "$base" -m venv "$VENV" >/dev/null || skip "$base cannot create a virtual environment; install python3-venv"
    timeout 300 "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$PYVMOMI" ||
        skip "pip cannot install $PYVMOMI"
    touch "$VENV/installed"
}

# --- background processes ---------------------------------------------------
# Start time in clock ticks since boot. Together with the PID it identifies a process.
started_at() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# pid_of NAME  prints the PID of a vCenter, or fails if it does not run.
pid_of() {
    local pid ticks
    read -r pid ticks 2>/dev/null <"$STATE/$1.pid" || return 1
    [[ -n $ticks && $(started_at "$pid") == "$ticks" ]] || return 1
    echo "$pid"
}

start() {
    local flags=()
    [[ $AS_IS != 1 ]] || flags=(-as-is)
    rm -f "$OUT/$1.json"
    setsid "$SERVER" -name "$1" -out "$OUT" -inventory "$HERE/$1.json" -user "$VCENTER_USER" "${flags[@]}" \
        >>"$STATE/$1.log" 2>&1 </dev/null &
    echo "$! $(started_at $!)" >"$STATE/$1.pid"
}

# A vCenter writes its JSON file last.
wait_for() {
    local end=$((SECONDS + 120))
    until [[ -s $OUT/$1.json ]]; do
        pid_of "$1" >/dev/null || { tail -n 20 "$STATE/$1.log" >&2; die "$1 has ended; its log is $STATE/$1.log"; }
        ((SECONDS < end)) || die "$1 is not ready after 120 s; its log is $STATE/$1.log"
        sleep 0.1
    done
}

# TERM first, and KILL after five seconds.
stop() {
    local pid i
    if pid=$(pid_of "$1"); then
        kill -TERM "$pid" 2>/dev/null || true
        for ((i = 0; i < 50; i++)); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL -- "-$pid" 2>/dev/null || true
    fi
    rm -f "$STATE/$1.pid"
}
