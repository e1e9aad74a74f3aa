//! The script for fish.

use std::fmt::Write as _;

use super::{Flag, Levels, Values};

const HEAD: &str = r#"# Completion of bowline for fish: bowline completion fish > ~/.config/fish/completions/bowline.fish

# Whether the command on the command line is one of these.
function __bowline_at
    set -l at ''
    set -l before ''
    set -l words (commandline -opc)
    for word in $words[2..-1]
        switch $before
            case {with_next_word}
            case '*'
                switch "$at:$word"
                    case {steps}
                        set at (string trim "$at $word")
                end
        end
        set before $word
    end
    contains -- "$at" $argv
end

complete -c bowline -f
"#;

pub(super) fn script(levels: &Levels) -> String {
    let steps: Vec<_> = levels.steps().iter().map(|step| quoted(step)).collect();
    let head = HEAD.replace("{with_next_word}", &levels.with_next_word().join(" "));
    let mut script = head.replace("{steps}", &steps.join(" "));
    let (manager, paths) = &levels.manager;
    let paths: Vec<_> = paths.iter().map(|path| quoted(path)).collect();
    manager.iter().for_each(|flag| line(&mut script, &paths.join(" "), flag));
    for level in &levels.levels {
        let at = quoted(&level.path);
        for (name, about) in &level.commands {
            let _ = writeln!(script, "complete -c bowline -n {} -a {name} -d {}", condition(&at), quoted(about));
        }
        for word in &level.words {
            let _ = writeln!(script, "complete -c bowline -n {} -a {word}", condition(&at));
        }
        level.flags.iter().for_each(|flag| line(&mut script, &at, flag));
    }
    script
}

fn line(script: &mut String, at: &str, flag: &Flag) {
    let short = flag.short.map(|short| format!(" -s {short}")).unwrap_or_default();
    let values = match &flag.values {
        // The value is behind a =.
        Some(_) if flag.is_switch => String::new(),
        None => String::new(),
        Some(Values::Files) => " -r -F".to_owned(),
        Some(Values::Directories) => " -x -a '(__fish_complete_directories)'".to_owned(),
        Some(Values::Words(words)) if words.is_empty() => " -x".to_owned(),
        Some(Values::Words(words)) => format!(" -x -a {}", quoted(&words.join(" "))),
    };
    let (long, about) = (&flag.long, quoted(&flag.help));
    let _ = writeln!(script, "complete -c bowline -n {}{short} -l {long}{values} -d {about}", condition(at));
}

/// Condition that the command is one of these, which are quoted.
fn condition(at: &str) -> String {
    format!("\"__bowline_at {at}\"")
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', r"\\").replace('\'', r"\'"))
}
