//! `bowline playground example`: the example manifests, which the program contains.

use std::fmt::Write as _;

use bowline_playground::{EXAMPLES, Ports};
use bowline_settings::BadInput;

use crate::cli::ExampleArgs;
use crate::output::print;

/// Prints the manifest, or the list of all.
pub(super) fn run(args: &ExampleArgs) -> anyhow::Result<()> {
    let Some(name) = &args.name else { return print(format_args!("{}", list())) };
    match EXAMPLES.iter().find(|example| example.name() == name) {
        Some(example) => print(format_args!("{}", example.text(Ports::from(args.port)))),
        None => {
            let names: Vec<_> = EXAMPLES.iter().map(|example| example.name()).collect();
            Err(BadInput(format!("there is no example {name:?}; the examples are {}", names.join(", "))).into())
        }
    }
}

fn list() -> String {
    let mut text = String::new();
    for example in EXAMPLES {
        let _ = writeln!(text, "{:<12}{}", example.name(), example.summary());
    }
    text + "\nApply one with: bowline playground example hello | kubectl apply -f -\n"
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_list_has_a_line_for_each_example() {
        assert_eq!(
            super::list(),
            "\
hello       Two Pods, and a Service that asks the cloud for a load balancer in front of them
hello-udp   The Service of hello.yaml with a second port, for UDP
node        Two machines as a kubelet started with --cloud-provider=external registers them
service     A Service that asks the cloud for a load balancer

Apply one with: bowline playground example hello | kubectl apply -f -
"
        );
    }
}
