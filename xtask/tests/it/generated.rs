//! The gate for generated files, as part of the ordinary tests.

use std::process::Command;

#[test]
fn generated_files_are_up_to_date() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(["generate", "--check"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
