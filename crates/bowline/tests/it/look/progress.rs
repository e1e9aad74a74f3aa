//! The status line of long work: on a terminal it says what a command waits for, and nothing of it remains.

use std::process::Command;

use super::world::World;
use crate::support::BOWLINE;
use crate::support::pty::Pty;

/// Width of the terminal: some texts do not fit.
const COLUMNS: u16 = 40;

/// Runs a command on a terminal, and returns everything that it wrote.
fn run(world: &World, command: &str, environment: &[(&str, &str)]) -> String {
    let pty = Pty::open(COLUMNS);
    let mut child = Command::new(BOWLINE)
        .arg(command)
        .args(&world.reach)
        .arg("--configure-cloud-routes=false")
        .env_remove("BOWLINE_LOG")
        .env_remove("NO_COLOR")
        .envs([("LC_ALL", "C.UTF-8"), ("TERM", "xterm")])
        .envs(environment.iter().copied())
        .stdin(pty.side())
        .stdout(pty.side())
        .stderr(pty.side())
        .spawn()
        .unwrap();
    child.wait().unwrap();
    pty.complete_output()
}

/// Returns the text that remains on the screen.
fn remaining(written: &str) -> String {
    let lines = written.split('\n').map(|line| line.rsplit("\r\x1b[K").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_command_shows_what_it_waits_for_and_erases_it() {
    let world = World::start("progress").await;
    world.create_node("node-1").await;
    world.cloud(&["fault", "slow=1500ms"]);
    let cases = [
        ("orphans", "cloud local: listing load balancers", "No orphaned resources"),
        ("plan", "planning 1 Node and 1 Service", "No changes"),
        ("check", "looking up the machines of 1 Node", "cloud-reached"),
    ];
    for (command, expected, result) in cases {
        let printed = run(&world, command, &[("NO_COLOR", "1")]);
        let cut = |seconds: &str| {
            let width = usize::from(COLUMNS) - seconds.chars().count() - 2;
            format!("\r\x1b[K{} {seconds}", expected.chars().take(width).collect::<String>().trim_end())
        };
        assert!(printed.contains(&cut("…")) && printed.contains(&cut("… 1 s")), "{command}: {printed:?}");
        assert!(!printed.contains("\x1b[2m"), "{printed:?}");
        let lines = printed.split("\r\x1b[K").filter(|line| line.contains('…'));
        let is_narrow = |line: &str| line.chars().count() < usize::from(COLUMNS);
        assert!(lines.clone().count() > 1 && lines.clone().all(is_narrow), "{printed:?}");
        let remaining = remaining(&printed);
        assert!(!remaining.contains('…') && remaining.contains(result), "{command}: {remaining:?}");
    }
    let painted = run(&world, "orphans", &[]);
    assert!(painted.contains("\r\x1b[K\x1b[2mcloud local: "), "{painted:?}");
    let dumb = run(&world, "orphans", &[("TERM", "dumb")]);
    assert!(!dumb.contains('\x1b') && !dumb.contains('…') && dumb.contains("No orphaned"), "{dumb:?}");
    // Not a terminal.
    let output = world.run("orphans", &["--configure-cloud-routes=false"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}
