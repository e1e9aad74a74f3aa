use super::*;

const LIST: &str = "text gizmo, too blue: say who\ntext balancer: say load balancer\nname gizmo, hark: say reported\n";

/// The findings of a file, without its name.
fn found(path: &str, text: &str) -> Vec<String> {
    let tree = tree(&[(WORDS, LIST), (path, text)]);
    check(&tree).unwrap().iter().map(|finding| finding.split_once(':').unwrap().1.to_owned()).collect()
}

fn tree(files: &[(&str, &str)]) -> Tree {
    files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn words_are_found_in_comments_and_messages() {
    let source = "// It is gizmo.\nlet a = (\"x\\ngizmo as it was Gizmo\", \"gizmo\"); // too\n// blue\n";
    let second = "2: \"gizmo\": say who";
    let expected = ["1: \"gizmo\": say who", second, second, "2: \"too blue\": say who"];
    assert_eq!(found("crates/x/src/lib.rs", source), expected);
}

#[test]
fn names_are_found_by_their_parts_and_once() {
    let source = "fn gizmo_by(x: GizmoBy) { gizmo_by(x.bolt, ungizmo, \"gizmo_by\") }\nuse hark::on_change;\n";
    let expected = ["1: \"GizmoBy\": say reported", "1: \"gizmo_by\": say reported", "2: \"hark\": say reported"];
    assert_eq!(found("crates/x/src/lib.rs", source), expected);
}

#[test]
fn code_in_text_is_not_prose() {
    for text in [
        "`gizmo`",
        "a/gizmo",
        "gizmo.rs",
        "{gizmo}",
        "\"gizmo\"",
        "gizmo_by",
        "x=gizmo",
        "```\ngizmo\n```",
        "0001-gizmo.md",
    ] {
        assert_eq!(found("docs/a.md", text), [""; 0], "{text}");
    }
    for text in ["gizmo.", "gizmo:", "(gizmo)", "[gizmo](x)", "```\n```\ngizmo", "gizmo's", "*gizmo*"] {
        assert_eq!(found("docs/a.md", text).len(), 1, "{text}");
    }
}

#[test]
fn a_load_balancer_may_break_at_the_end_of_a_line() {
    assert_eq!(found("crates/x/src/lib.rs", "// Its load\n// balancer, a Load balancer.\n"), [""; 0]);
    assert_eq!(found("crates/x/src/lib.rs", "// The balancer, `balancer`.\n"), ["1: \"balancer\": say load balancer"]);
}

#[test]
fn files_of_other_kinds_are_left_alone() {
    for path in ["tests/a.md", "docs/a.txt", "xtask/a.md"] {
        assert_eq!(found(path, "gizmo"), [""; 0], "{path}");
    }
    for path in [".ci/run", "README.md", "deploy/chart/values.yaml", "providers/x/README.md"] {
        assert_eq!(found(path, "gizmo").len(), 1, "{path}");
    }
}

#[test]
fn an_exception_names_a_line_and_a_reason_and_must_be_needed() {
    let file = ("docs/a.md", "As gizmo by Go.\nAs gizmo.\n");
    let allowed = "docs/a.md | by Go | upstream's word\ndocs/b.md | x | y\n";
    let unused = format!("{ALLOWED}: \"docs/b.md | x | y\" allows nothing; remove it");
    let findings = check(&tree(&[(WORDS, LIST), (ALLOWED, allowed), file])).unwrap();
    assert_eq!(findings, [unused, "docs/a.md:2: \"gizmo\": say who".to_owned()]);
    for allowed in ["docs/a.md", "docs/a.md | by Go"] {
        assert!(check(&tree(&[(WORDS, LIST), (ALLOWED, allowed), file])).is_err(), "{allowed}");
    }
}

#[test]
fn the_list_of_words_must_be_readable() {
    for list in ["gizmo: say who", "text gizmo", "prose gizmo: say who"] {
        assert!(check(&tree(&[(WORDS, list)])).is_err(), "{list}");
    }
}
