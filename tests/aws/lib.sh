# Shared by up, down, run and verify: settings, and functions for installation and
# the background process.

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# --- settings from the environment ------------------------------------------
STATE=${BOWLINE_MOTO_STATE:-${TMPDIR:-/tmp}/bowline-moto}      # logs, PID file, output
CACHE=${BOWLINE_MOTO_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/bowline-moto}  # Python environments
OUT=${BOWLINE_MOTO_OUT:-$STATE/out}                            # endpoints.json, cloud.conf, ids.json, ...
INSTALL=${BOWLINE_MOTO_INSTALL:-yes}                           # no: install nothing, skip instead
export BOWLINE_MOTO_AS_IS=${BOWLINE_MOTO_AS_IS:-0}             # 1: moto without corrections

# --- derived ----------------------------------------------------------------
# Pinned: corrections.py replaces functions of moto, and botocore has the API models.
PACKAGES=(moto==5.2.5 boto3==1.44.0 botocore==1.44.0 flask==3.1.3 flask-cors==6.0.5)
VENV=$CACHE/$(printf '%s ' "${PACKAGES[@]}" | sha256sum | cut -c1-16)
PYTHON=$VENV/bin/python
LOG=$STATE/server.log
PID_FILE=$STATE/server.pid

# Requests stay on loopback, whatever proxy or profile is configured. Only the
# installation uses the proxy.
unset AWS_PROFILE AWS_ENDPOINT_URL
export AWS_CONFIG_FILE=/dev/null AWS_SHARED_CREDENTIALS_FILE=/dev/null
loopback_only() {
    unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY all_proxy ALL_PROXY
    export no_proxy='*'
}

die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# skip REASON  in the form that the CI counts. 77 is the exit code of skipped tests.
skip() { printf 'SKIPPED: no moto: %s\n' "$*"; exit 77; }

# --- installation -----------------------------------------------------------
# Prints a Python that can create virtual environments.
find_python() {
    local each
    for each in python3 /usr/bin/python3; do
        "$each" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || continue
        command -v "$each"
        return 0
    done
    return 1
}

install_venv_module() {
    ((EUID == 0)) && command -v apt-get >/dev/null ||
        skip "there is no Python 3.10 with the module venv; install python3-venv, or run this as root"
    timeout 300 sh -c 'export DEBIAN_FRONTEND=noninteractive; apt-get -qq update; apt-get -qq -y \
        --no-install-recommends -o DPkg::Lock::Timeout=600 install python3-venv' >/dev/null 2>&1 || true
}

# Concurrent runs install into folders of their own; the first one that finishes is used.
install_packages() {
    local base new
    [[ -e $VENV/installed ]] && return 0
    [[ $INSTALL == yes ]] || skip "it is not in $CACHE, and BOWLINE_MOTO_INSTALL is $INSTALL"
    base=$(find_python) || install_venv_module
    base=${base:-$(find_python)} || skip "apt-get cannot install python3-venv"
    mkdir -p "$CACHE" || skip "cannot create $CACHE"
    new=$(mktemp -d "$VENV.XXXXXX")
    # shellcheck disable=SC2064 # the folder of this call
    trap "rm -rf '$new'" EXIT
    "$base" -m venv "$new" >/dev/null || skip "$base cannot create a virtual environment"
    timeout 300 "$new/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --retries 1 \
        --timeout 15 "${PACKAGES[@]}" >"$new/log" 2>&1 ||
        skip "pip cannot install ${PACKAGES[0]}: $(grep -m1 -i error "$new/log")"
    touch "$new/installed"
    mv -T "$new" "$VENV" 2>/dev/null || [[ -e $VENV/installed ]] || skip "cannot create $VENV"
    rm -rf "$new"
    trap - EXIT
}

# --- background process -----------------------------------------------------
# Start time in clock ticks since boot. Together with the PID it identifies a process.
started_at() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# Prints the PID of the server, or fails if it does not run.
server_pid() {
    local pid ticks
    read -r pid ticks 2>/dev/null <"$PID_FILE" || return 1
    [[ -n $ticks && $(started_at "$pid") == "$ticks" ]] || return 1
    echo "$pid"
}

start_server() {
    rm -f "$OUT/endpoints.json"
    setsid "$PYTHON" -B "$HERE/server.py" "$OUT" >>"$LOG" 2>&1 </dev/null &
    echo "$! $(started_at $!)" >"$PID_FILE"
}

# The server writes endpoints.json last.
wait_for_server() {
    local end=$((SECONDS + 120))
    until [[ -s $OUT/endpoints.json ]]; do
        server_pid >/dev/null || { tail -n 20 "$LOG" >&2; die "the server has ended; its log is $LOG"; }
        ((SECONDS < end)) || die "the server is not ready after 120 s; its log is $LOG"
        sleep 0.2
    done
}

# TERM first, and KILL after five seconds.
stop_server() {
    local pid i
    if pid=$(server_pid); then
        kill -TERM "$pid" 2>/dev/null || true
        for ((i = 0; i < 50; i++)); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL -- "-$pid" 2>/dev/null || true
    fi
    rm -f "$PID_FILE"
}
