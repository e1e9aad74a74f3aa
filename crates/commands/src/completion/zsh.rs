//! The script for zsh.

use super::{Flag, Levels, Values};

const SCRIPT: &str = r#"#compdef bowline
# Completion of bowline for zsh: bowline completion zsh > DIRECTORY-OF-fpath/_bowline

_bowline() {
    local at='' before='' flag='' word i
    local -a commands flags manager
    manager=(
{manager}
    )
    for ((i = 2; i < CURRENT; i++)); do
        word=$words[i]
        case $before in
            ({with_next_word}) ;;
            (*)
                case "$at:$word" in
                    ({steps}) at=${at:+$at }$word ;;
                esac
                ;;
        esac
        before=$word
    done
    if [[ $PREFIX == --*=* ]]; then
        flag=${PREFIX%%=*}
        compset -P '*='
    else
        case $before in
            ({with_next_word}) flag=$before ;;
        esac
    fi
    case $flag in
        ('') ;;
{values}
        (*) return 1 ;;
    esac
    case $at in
{levels}
    esac
    if [[ $PREFIX == -* ]]; then
        _describe -o 'flag' flags
    else
        _describe 'command' commands
    fi
}

if [[ $funcstack[1] == _bowline ]]; then
    _bowline "$@"
elif (( $+functions[compdef] )); then
    compdef _bowline bowline
fi
"#;

pub(super) fn script(levels: &Levels) -> String {
    let quoted = |patterns: Vec<String>| patterns.iter().map(|it| format!("'{it}'")).collect::<Vec<_>>().join(" | ");
    let values = levels.spellings_by_values().into_iter().filter_map(|(values, spellings)| {
        let action = match values {
            Values::Files => "_files".to_owned(),
            Values::Directories => "_files -/".to_owned(),
            Values::Words(words) if words.is_empty() => return None,
            Values::Words(words) => format!("compadd -- {}", words.join(" ")),
        };
        Some(format!("        ({}) {action}; return ;;", spellings.join(" | ")))
    });
    let levels_text = levels.levels.iter().map(|level| {
        let words = level.words.iter().map(|word| (word.clone(), String::new()));
        let commands = level.commands.iter().cloned().chain(words).map(|(name, about)| item(&name, &about));
        let manager = if levels.manager.1.contains(&level.path) { " $manager" } else { "" };
        let (commands, flags) = (commands.collect::<Vec<_>>().join(" "), items(&level.flags).join(" "));
        format!(
            "        ('{}')\n            commands=({commands})\n            flags=({flags}{manager})\n            ;;",
            level.path
        )
    });
    SCRIPT
        .replace(
            "{manager}",
            &items(&levels.manager.0).iter().map(|it| format!("        {it}")).collect::<Vec<_>>().join("\n"),
        )
        .replace("{with_next_word}", &levels.with_next_word().join(" | "))
        .replace("{steps}", &quoted(levels.steps()))
        .replace("{values}", &values.collect::<Vec<_>>().join("\n"))
        .replace("{levels}", &levels_text.collect::<Vec<_>>().join("\n"))
}

fn items(flags: &[Flag]) -> Vec<String> {
    flags
        .iter()
        .flat_map(|flag| flag.spellings().into_iter().map(|it| item(&it, &flag.help)).collect::<Vec<_>>())
        .collect()
}

/// An item of `_describe`, quoted. A colon separates name and description.
fn item(name: &str, about: &str) -> String {
    format!("'{}:{}'", name.replace(':', "\\:"), about.replace('\'', r"'\''"))
}
