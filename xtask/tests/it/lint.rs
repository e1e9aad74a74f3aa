//! The repository checks, as part of the ordinary tests.

use std::process::Command;

#[test]
fn words_and_rule_ids_are_in_order() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("lint").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
