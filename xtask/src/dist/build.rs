//! Build of the static program, independent of the folder that it is built in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use memchr::memmem;

use super::source::Source;

/// Profile of the program.
const PROFILE: &str = "image";

/// Returns the target folder of the workspace.
pub(super) fn target_folder(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}

/// Builds the program in a folder, and returns its path.
pub(super) fn program(source: &Source, features: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    // Absolute paths, which are those that the compiler records.
    let (root, folder) = (fs::canonicalize(&source.root)?, fs::canonicalize(folder)?);
    let cargo_home = cargo_home()?;
    // The last one that matches is applied, and the build folder may be below the sources.
    let names = [(&cargo_home, "/cargo"), (&root, "/bowline"), (&folder, "/build")];
    let mut cargo = Command::new("cargo");
    // Only the program is linked statically: procedural macros are libraries that the compiler loads.
    cargo
        .args(["rustc", "--locked", "--profile", PROFILE, "--package", "bowline", "--bin", "bowline"])
        .args(["--no-default-features", "--features", features, "--target-dir"])
        .arg(&folder)
        .args(["--", "-C", "target-feature=+crt-static"])
        .current_dir(&root)
        .env("CARGO_ENCODED_RUSTFLAGS", rust_flags(&names))
        .env("CFLAGS", c_flags(&names))
        .env("SOURCE_DATE_EPOCH", source.time.to_string())
        .env("BOWLINE_GIT_COMMIT", &source.commit)
        .env("BOWLINE_BUILD_DATE", source.timestamp()?)
        .env("CARGO_INCREMENTAL", "0");
    // Set by the cargo that runs xtask; they would be those of xtask.
    for name in ["CARGO_MANIFEST_DIR", "CARGO_TARGET_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION", "RUSTFLAGS"] {
        cargo.env_remove(name);
    }
    if !cargo.status().context("cannot run cargo")?.success() {
        bail!("cargo cannot build the program; a static one needs the static C library of this machine");
    }
    let program = folder.join(PROFILE).join("bowline");
    check_paths(&fs::read(&program)?, &names)?;
    Ok(program)
}

/// Fails if the program contains the name of a folder of this machine, which would be another one elsewhere.
fn check_paths(program: &[u8], names: &[(&PathBuf, &str)]) -> anyhow::Result<()> {
    for (folder, _) in names {
        let folder = folder.to_string_lossy();
        if let Some(at) = memmem::find(program, folder.as_bytes()) {
            let end = program.len().min(at + 200);
            let text = String::from_utf8_lossy(program.get(at..end).unwrap_or_default()).into_owned();
            bail!("the program is not reproducible, because it contains a path of this machine: {text:?}");
        }
    }
    Ok(())
}

fn cargo_home() -> anyhow::Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo"))).context("no home folder")?;
    fs::canonicalize(&home).with_context(|| format!("cannot find {}", home.display()))
}

fn rust_flags(names: &[(&PathBuf, &str)]) -> String {
    let flags = names.iter().map(|(folder, name)| format!("--remap-path-prefix={}={name}", folder.display()));
    flags.collect::<Vec<_>>().join("\u{1f}")
}

fn c_flags(names: &[(&PathBuf, &str)]) -> String {
    let given = std::env::var("CFLAGS").unwrap_or_default();
    let flags = names.iter().map(|(folder, name)| format!("-ffile-prefix-map={}={name}", folder.display()));
    std::iter::once(given).chain(flags).collect::<Vec<_>>().join(" ").trim().to_owned()
}

/// Fails for a program that needs a dynamic linker, which the image does not have.
pub(super) fn check_static(program: &[u8]) -> anyhow::Result<()> {
    let head = program.get(..4096).unwrap_or(program);
    if ["/ld-linux", "/ld-musl"].iter().any(|name| memmem::find(head, name.as_bytes()).is_some()) {
        bail!("the program is linked dynamically; build it with -C target-feature=+crt-static");
    }
    Ok(())
}

/// Whether the program has a command: what needs it is packaged only then.
pub(super) fn has_command(program: &Path, command: &str) -> bool {
    let mut program = Command::new(program);
    program.args([command, "--help"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    program.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_a_path_of_the_machine_is_rejected() {
        let names = [(&PathBuf::from("/home/a/bowline"), "/bowline")];
        check_paths(b"\0/bowline/src/main.rs\0", &names).unwrap();
        let error = check_paths(b"\0/home/a/bowline/src/main.rs\0", &names).unwrap_err();
        assert!(error.to_string().contains("/home/a/bowline/src/main.rs"), "{error}");
    }
}
