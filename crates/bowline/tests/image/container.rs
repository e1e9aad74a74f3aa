//! A root directory with the files of the image, in which the program runs as in a container runtime.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{BOWLINE, Scratch, workspace};

/// Environment variable with the static program to test.
const STATIC: &str = "BOWLINE_STATIC";

/// Script that makes its first argument the root and switches to an unprivileged user. Capabilities needed until then are dropped
/// with the change of the user. It uses exec, so that signals reach the program.
const ENTER: &str = r#"
    root=$1 user=$2 access=$3 empty=$4
    shift 4
    mount --bind "$root" "$root"
    mount -o "remount,bind,$access" "$root"
    for device in "$root"/dev/*; do mount --bind "/dev/${device##*/}" "$device"; done
    for directory in $empty; do mount -t tmpfs -o mode=0777 tmpfs "$root$directory"; done
    exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all,+sys_chroot,+setuid,+setgid --clear-groups -- \
        chroot --userspec="$user" "$root" "$@"
"#;

/// Devices that every container runtime provides. A static program reads randomness from one of them.
const DEVICES: [&str; 5] = ["full", "null", "random", "urandom", "zero"];

/// Security context and volumes.
pub(crate) struct Confinement {
    /// User and group IDs.
    pub(crate) user: String,
    /// Whether the root file system is read-only.
    pub(crate) read_only: bool,
    /// Empty writable directories.
    pub(crate) empty: Vec<String>,
}

/// Root file system of the program.
pub(crate) struct Container {
    scratch: Scratch,
}

impl Container {
    /// Creates it from the image.
    pub(crate) fn new(test: &str) -> Container {
        let container = Container { scratch: Scratch::new(test) };
        let program = std::env::var(STATIC).unwrap_or_else(|_| BOWLINE.to_owned());
        let mut lay_out = Command::new(workspace().join("deploy/image/build"));
        lay_out.args(["--binary", &program]).arg("--root-only").arg(container.root());
        assert!(lay_out.status().unwrap().success());
        DEVICES.iter().for_each(|device| container.put(&format!("/dev/{device}"), ""));
        for library in libraries(&program) {
            container.put(&library, fs::read(&library).unwrap());
            let copy = container.path(&library);
            fs::set_permissions(copy, fs::metadata(&library).unwrap().permissions()).unwrap();
        }
        container
    }

    fn root(&self) -> PathBuf {
        self.scratch.path("root")
    }

    /// Returns the host path of a path in the container.
    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        self.root().join(inside.trim_start_matches('/'))
    }

    /// Creates a file, as a volume would.
    pub(crate) fn put(&self, inside: &str, text: impl AsRef<[u8]>) {
        let path = self.path(inside);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Removes a file.
    pub(crate) fn remove(&self, inside: &str) {
        fs::remove_file(self.path(inside)).unwrap();
    }

    /// Returns the command that starts the program as the image defines it, with a read-only root.
    pub(crate) fn command(&self, command: &[&str]) -> Command {
        let confinement = Confinement { user: "65532:65532".to_owned(), read_only: true, empty: Vec::new() };
        self.confined(&confinement, command)
    }

    /// Returns the command with this confinement, without environment variables of this process.
    pub(crate) fn confined(&self, confinement: &Confinement, command: &[&str]) -> Command {
        confinement.empty.iter().for_each(|directory| fs::create_dir_all(self.path(directory)).unwrap());
        let access = if confinement.read_only { "ro" } else { "rw" };
        let mut enter = Command::new("unshare");
        enter.args(["--mount", "sh", "-eu", "-c", ENTER, "enter"]).arg(self.root());
        enter.args([&confinement.user, access, &confinement.empty.join(" ")]).args(command);
        enter.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::null());
        enter
    }
}

/// Shared libraries and loader of a program; empty for a static one.
fn libraries(program: &str) -> Vec<String> {
    let output = Command::new("ldd").arg(program).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let absolute = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(str::to_owned);
    text.lines().filter_map(absolute).filter(|path| Path::new(path).exists()).collect()
}
