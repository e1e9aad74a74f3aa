//! The script for bash, from version 3.2 on.

use super::{Flag, Levels, Values, words_of};

const SCRIPT: &str = r#"# Completion of bowline for bash: source <(bowline completion bash)

_bowline() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    local at='' before='' flag='' commands='' flags='' word i
    local manager='{manager}'
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        case $before in
            {with_next_word}) ;;
            *)
                case "$at:$word" in
                    {steps}) at=${at:+$at }$word ;;
                esac
                ;;
        esac
        before=$word
    done
    # The character = separates words.
    if [[ $cur == '=' ]]; then
        flag=$prev cur=''
    elif [[ $prev == '=' ]]; then
        flag=${COMP_WORDS[COMP_CWORD - 2]}
    else
        case $prev in
            {with_next_word}) flag=$prev ;;
        esac
    fi
    case $flag in
        '') ;;
{values}
        *) return ;;
    esac
    case $at in
{levels}
    esac
    if [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$flags" -- "$cur"))
    else
        COMPREPLY=($(compgen -W "$commands" -- "$cur"))
    fi
}

complete -F _bowline bowline
"#;

pub(super) fn script(levels: &Levels) -> String {
    let quoted = |patterns: Vec<String>| patterns.iter().map(|it| format!("'{it}'")).collect::<Vec<_>>().join(" | ");
    let values = levels.spellings_by_values().into_iter().filter_map(|(values, spellings)| {
        let action = match values {
            Values::Files => "compopt -o filenames 2>/dev/null\n            local IFS=$'\\n'\n            COMPREPLY=($(compgen -f -- \"$cur\"))".to_owned(),
            Values::Directories => "compopt -o filenames 2>/dev/null\n            local IFS=$'\\n'\n            COMPREPLY=($(compgen -d -- \"$cur\"))".to_owned(),
            Values::Words(words) if words.is_empty() => return None,
            Values::Words(words) => format!("COMPREPLY=($(compgen -W '{}' -- \"$cur\"))", words.join(" ")),
        };
        Some(format!("        {})\n            {action}\n            return\n            ;;", spellings.join(" | ")))
    });
    let levels_text = levels.levels.iter().map(|level| {
        let manager = if levels.manager.1.contains(&level.path) { " $manager" } else { "" };
        let flags = spelled(&level.flags);
        let commands = words_of(level);
        format!("        '{}') commands='{commands}' flags=\"{}\" ;;", level.path, format!("{flags}{manager}").trim())
    });
    SCRIPT
        .replace("{manager}", &spelled(&levels.manager.0))
        .replace("{with_next_word}", &levels.with_next_word().join(" | "))
        .replace("{steps}", &quoted(levels.steps()))
        .replace("{values}", &values.collect::<Vec<_>>().join("\n"))
        .replace("{levels}", &levels_text.collect::<Vec<_>>().join("\n"))
}

fn spelled(flags: &[Flag]) -> String {
    flags.iter().flat_map(Flag::spellings).collect::<Vec<_>>().join(" ")
}
