use bowline_playground::{Assertion, TourAction};

use super::*;

const PLAIN: Style = Style { columns: 40, rows: 24, colours: false, in_place: true, unicode: false };
const COLOURS: Style = Style { colours: true, unicode: true, ..PLAIN };
const DUMB: Style = Style { in_place: false, ..PLAIN };

fn step() -> Step {
    Step {
        title: "Stop a machine".to_owned(),
        description: "The machine m-3 is stopped, and its kubelet\nsends no heartbeats.".to_owned(),
        commands: vec!["bowline cloud stop m-3 # a long command is not wrapped".to_owned()],
        views: vec!["kubectl get nodes".to_owned()],
        action: TourAction::Stop("m-3".to_owned()),
        assertions: vec![
            Assertion::Ready("node-3".to_owned(), "Unknown"),
            Assertion::Tainted("node-3".to_owned(), "node.cloudprovider.kubernetes.io/shutdown"),
        ],
        deadline: Duration::from_secs(20),
        duration: Duration::ZERO,
    }
}

fn page(step: &Step) -> Page<'_> {
    Page { number: 9, of: 15, step }
}

fn progress<'a>(state: &'a StepState, checks: &'a [bool]) -> Progress<'a> {
    let log = (12, Some("created a route node=node-3 cidr=127.128.2.0/24".to_owned()));
    Progress { state, checks, elapsed: Duration::from_secs(3), log }
}

#[test]
fn the_opening_is_wrapped_and_commands_are_not() {
    assert_eq!(
        page(&step()).opening(PLAIN),
        "
[9/15] Stop a machine

  The machine m-3 is stopped, and its
  kubelet sends no heartbeats.

  Run this in another terminal, or press Enter and the playground does the same:

    bowline cloud stop m-3 # a long command is not wrapped

"
    );
    let coloured = page(&step()).opening(COLOURS);
    assert!(coloured.starts_with("\n\x1b[1m[9/15] Stop a machine\x1b[0m\n\n  The machine"), "{coloured:?}");
    assert!(coloured.ends_with("    \x1b[36mbowline cloud stop m-3 # a long command is not wrapped\x1b[0m\n\n"));
}

#[test]
fn live_lines_have_the_checks_the_log_and_the_keys() {
    let (step, running) = (step(), StepState::Running);
    assert_eq!(
        page(&step).live(&progress(&running, &[true, false]), PLAIN),
        [
            "  ok node-3 has the condition Ready=...",
            "  .. node-3 has the taint node.cloud...",
            "",
            "  log (12 lines): created a route no...",
            "Checking, 3 s   L: log   Q: quit",
        ]
    );
    assert_eq!(
        page(&step).live(&progress(&running, &[true, false]), COLOURS),
        [
            "  \x1b[32m✓\x1b[0m  node-3 has the condition Ready=...",
            "  ·  node-3 has the taint node.cloud...",
            "",
            "  \x1b[2mlog (12 lines): created a route no...\x1b[0m",
            "\x1b[1mChecking, 3 s   L: log   Q: quit\x1b[0m",
        ]
    );
    assert_eq!(page(&step).live(&progress(&running, &[true, false]), DUMB), ["Checking   L: log   Q: quit"]);
}

#[test]
fn no_live_line_is_wider_than_the_terminal() {
    let step = step();
    for columns in 20..120 {
        for state in [StepState::Waiting, StepState::Running, StepState::Failed("why".to_owned())] {
            for unicode in [true, false] {
                let style = Style { columns, unicode, ..PLAIN };
                let lines = page(&step).live(&progress(&state, &[true, false]), style);
                assert!(lines.iter().all(|line| line.chars().count() < columns), "{columns}: {lines:?}");
            }
        }
    }
}

#[test]
fn checks_that_do_not_fit_on_the_screen_are_counted() {
    let step = step();
    let low = Style { rows: 5, ..PLAIN };
    let lines = page(&step).live(&progress(&StepState::Running, &[true, false]), low);
    assert_eq!(lines[0], "  1 of 2 checks hold");
    assert!(lines.len() < 5, "{lines:?}");
}

#[test]
fn the_keys_depend_on_the_state() {
    let step = step();
    let prompt = |number: usize, state: &StepState| {
        Page { number, ..page(&step) }.live(&progress(state, &[true, true]), PLAIN).pop().unwrap()
    };
    let passed = StepState::Passed(Duration::ZERO);
    assert_eq!(prompt(9, &StepState::Waiting), "Enter: perform this step   L: log   ...");
    assert_eq!(prompt(9, &passed), "Enter: next step   L: log   Q: quit");
    assert_eq!(prompt(15, &passed), "Enter: what to try next   L: log   Q...");
    assert_eq!(prompt(9, &StepState::Failed(String::new())), "Enter: try again   S: skip   L: log ...");
}

#[test]
fn the_closing_has_the_result_and_more_commands() {
    let step = step();
    let passed = StepState::Passed(Duration::from_millis(2_345));
    assert_eq!(
        page(&step).closing(&progress(&passed, &[true, true]), &["kubectl get nodes".to_owned()], PLAIN),
        "  ok node-3 has the condition
     Ready=Unknown
  ok node-3 has the taint
     node.cloudprovider.kubernetes.io/shutdown
  Passed after 2.3 s.

  See the result in another terminal:

    kubectl get nodes

"
    );
    let failed = StepState::Failed("the cloud does not respond, or not in time".to_owned());
    assert_eq!(
        page(&step).closing(&progress(&failed, &[true, false]), &[], PLAIN).lines().skip(2).collect::<Vec<_>>(),
        [
            "  .. node-3 has the taint",
            "     node.cloudprovider.kubernetes.io/shutdown",
            "  Failed: the cloud does not respond, or",
            "  not in time",
            "",
        ]
    );
}

#[test]
fn the_welcome_says_how_to_prepare_a_terminal_and_how_to_get_kubectl() {
    let setup = Setup { kubeconfig: "/kc".into(), endpoint: "http://127.0.0.1:1".to_owned(), ..Setup::default() };
    let wide = Style { columns: 80, ..PLAIN };
    assert_eq!(
        welcome(&setup, wide),
        "  The API, the controllers, the load balancers and their traffic are real. The
  kubelets and the scheduler are simulated; no containers run, the Nodes answer
  for them. Nothing is kept when you stop the playground.

  To run commands yourself, prepare another terminal:

    export KUBECONFIG=/kc
    export BOWLINE_CLOUD_ENDPOINT=http://127.0.0.1:1

  kubectl is not installed; the tour works without it. To get it, see
  https://kubernetes.io/docs/tasks/tools/
"
    );
}

#[test]
fn after_the_tour_there_are_suggestions() {
    let text = what_next(Style { columns: 80, ..PLAIN });
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for part in ["bowline playground example", "bowline check --help", "docs/guides/install.md"] {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
    assert_eq!(idle(&(0, None), PLAIN)[0], "  log (empty)");
    assert_eq!(log_lines(&["a\x1b[2Jb".to_owned()], PLAIN), "a [2Jb\n");
}

#[test]
fn marks_need_neither_colours_nor_unicode() {
    assert_eq!([mark(true, PLAIN), mark(false, PLAIN)], ["ok", ".."]);
    assert_eq!([mark(true, COLOURS), mark(false, COLOURS)], ["\x1b[32m✓\x1b[0m", "·"]);
}
