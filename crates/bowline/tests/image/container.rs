//! A root folder with the files of the image, and the program run in it as a container runtime would.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{BOWLINE, Scratch, workspace};

/// Names the static program to test.
const STATIC: &str = "BOWLINE_STATIC";

/// Makes its first argument the root, and becomes a user without any right that root has. What has to be kept until then is
/// lost with the change of the user. No process is left in between, so signals arrive.
const ENTER: &str = r#"
    root=$1 user=$2 access=$3 empty=$4
    shift 4
    mount --bind "$root" "$root"
    mount -o "remount,bind,$access" "$root"
    for folder in $empty; do mount -t tmpfs -o mode=0777 tmpfs "$root$folder"; done
    exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all,+sys_chroot,+setuid,+setgid --clear-groups -- \
        chroot --userspec="$user" "$root" "$@"
"#;

/// What a security context and volumes say.
pub(crate) struct Confinement {
    /// User and group, by number.
    pub(crate) user: String,
    /// Nothing of the root may be written to.
    pub(crate) read_only: bool,
    /// Folders that are empty at first and may be written to.
    pub(crate) empty: Vec<String>,
}

/// The files that the program sees.
pub(crate) struct Container {
    scratch: Scratch,
}

impl Container {
    /// Those of the image.
    pub(crate) fn new(test: &str) -> Container {
        let container = Container { scratch: Scratch::new(test) };
        let program = std::env::var(STATIC).unwrap_or_else(|_| BOWLINE.to_owned());
        let mut lay_out = Command::new(workspace().join("deploy/image/build"));
        lay_out.args(["--binary", &program]).arg("--root-only").arg(container.root());
        assert!(lay_out.status().unwrap().success());
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

    /// Where a path of the container is.
    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        self.root().join(inside.trim_start_matches('/'))
    }

    /// Puts a file there, as a volume does.
    pub(crate) fn put(&self, inside: &str, text: impl AsRef<[u8]>) {
        let path = self.path(inside);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Takes a file away.
    pub(crate) fn take_away(&self, inside: &str) {
        fs::remove_file(self.path(inside)).unwrap();
    }

    /// What starts the program as the image says, in a root that cannot be written to.
    pub(crate) fn command(&self, command: &[&str]) -> Command {
        let confinement = Confinement { user: "65532:65532".to_owned(), read_only: true, empty: Vec::new() };
        self.confined(&confinement, command)
    }

    /// What starts the program so; without any variable of this process.
    pub(crate) fn confined(&self, confinement: &Confinement, command: &[&str]) -> Command {
        confinement.empty.iter().for_each(|folder| fs::create_dir_all(self.path(folder)).unwrap());
        let access = if confinement.read_only { "ro" } else { "rw" };
        let mut enter = Command::new("unshare");
        enter.args(["--mount", "sh", "-eu", "-c", ENTER, "enter"]).arg(self.root());
        enter.args([&confinement.user, access, &confinement.empty.join(" ")]).args(command);
        enter.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::null());
        enter
    }
}

/// What a program loads, and what loads it; nothing for one that is static.
fn libraries(program: &str) -> Vec<String> {
    let output = Command::new("ldd").arg(program).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let absolute = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(str::to_owned);
    text.lines().filter_map(absolute).filter(|path| Path::new(path).exists()).collect()
}
