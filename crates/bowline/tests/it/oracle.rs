//! Comparison of the binary with recordings of a real kube-apiserver, if they are available.
//!
//! The recordings and the program that replays them are not part of this repository. Their location is
//! `../shared/apiserver` next to the workspace, or `BOWLINE_ORACLE`.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::support::{Server, skip, workspace};
use base64::Engine as _;

/// Page that must list every case that differs.
const DIFFERENCES: &str = "docs/explanation/apiserver-differences.md";

/// Minimum share of equal cases, in per cent.
const MIN_EQUAL: usize = 90;

#[test]
fn responses_equal_those_of_a_real_server() {
    let Some(oracle) = oracle() else {
        return skip("no recordings of a real API server");
    };
    let server =
        Server::start("oracle", &["--authorization-mode=RBAC", "--built-in-controllers=false", "--debug-endpoints"]);
    let first = compare(&oracle, &server, None);
    assert!(first.cases > 0, "the oracle compared nothing");
    let known = fs::read_to_string(workspace().join(DIFFERENCES)).unwrap();
    let unknown = first.differing.iter().filter(|case| !known.contains(&format!("`{case}`"))).cloned().collect();
    let unknown = differ_alone(&oracle, &server, &unknown);
    let equal = first.cases - first.differing.len();
    let score = format!("{equal} of {} cases are equal", first.cases);
    assert!(unknown.is_empty(), "{score}; these differ and are not in {DIFFERENCES}: {unknown:#?}");
    assert!(equal * 100 >= first.cases * MIN_EQUAL, "only {score}");
}

/// Path of the oracle, if it and its interpreter are available.
fn oracle() -> Option<PathBuf> {
    let beside = || Some(workspace().parent()?.join("shared/apiserver/oracle"));
    let path = std::env::var_os("BOWLINE_ORACLE").map(PathBuf::from).or_else(beside)?;
    let python = Command::new("python3").arg("--version").output();
    (path.is_file() && python.is_ok()).then_some(path)
}

/// Result of a comparison.
struct Compared {
    cases: usize,
    /// `section/name` of each case that differs.
    differing: BTreeSet<String>,
}

/// Replays the cases, or those whose `section/name` matches.
fn compare(oracle: &PathBuf, server: &Server, only: Option<&str>) -> Compared {
    let mut command = Command::new("python3");
    command.arg(oracle).args(["compare", "-q", "-j", if only.is_some() { "1" } else { "6" }, "--kubeconfig"]);
    command.arg(server.kubeconfig()).arg("--compact").arg(compact_command(server));
    let output = command.args(only.map(|only| ["--only", only]).iter().flatten()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let differing = text.lines().filter_map(|line| line.strip_prefix("DIFFER ")).map(str::to_owned).collect();
    // The last line: `N cases, M equal, K differ`.
    let cases = text.lines().last().and_then(|line| line.split(' ').next()?.parse().ok());
    let cases = cases.unwrap_or_else(|| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)));
    Compared { cases, differing }
}

/// Compares cases again, one at a time. Some watch for a second or wait for a timeout, and may differ on a busy machine.
fn differ_alone(oracle: &PathBuf, server: &Server, cases: &BTreeSet<String>) -> BTreeSet<String> {
    if cases.is_empty() {
        return BTreeSet::new();
    }
    let names: Vec<_> = cases.iter().map(String::as_str).collect();
    compare(oracle, server, Some(&format!("^({})$", names.join("|")))).differing
}

/// Shell command that compacts the server's history. It is written in Python, which the oracle needs, too.
fn compact_command(server: &Server) -> String {
    let kubeconfig = fs::read_to_string(server.kubeconfig()).unwrap();
    let pem = |field: &str| {
        let value = kubeconfig.lines().find_map(|line| line.trim().strip_prefix(field)?.strip_prefix(": "));
        let value = value.unwrap().trim_matches('"');
        let bytes = base64::engine::general_purpose::STANDARD.decode(value).unwrap();
        server.scratch.file(field, bytes).display().to_string()
    };
    let script = format!(
        "import ssl, urllib.request\n\
         context = ssl.create_default_context(cafile={:?})\n\
         context.load_cert_chain({:?}, {:?})\n\
         urllib.request.urlopen(urllib.request.Request('{}/debug/compact', method='POST'), context=context)\n",
        pem("certificate-authority-data"),
        pem("client-certificate-data"),
        pem("client-key-data"),
        server.url(),
    );
    format!("python3 '{}'", server.scratch.file("compact.py", script).display())
}
