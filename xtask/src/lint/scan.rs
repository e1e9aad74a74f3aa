//! A scanner that splits Rust source into comments, string literals and code, line by line.

/// The kind of a [`Piece`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Comment,
    Literal,
    Code,
}

/// A part of one line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    /// Counted from 1.
    pub(crate) line: usize,
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
}

/// Splits a source file. Quotes belong to the literal, slashes to the comment.
pub(crate) fn pieces(source: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < source.len() {
        let (kind, length) = run(&source[at..]);
        for (index, text) in source[at..at + length].split('\n').enumerate() {
            line += usize::from(index > 0);
            if !text.is_empty() {
                pieces.push(Piece { line, kind, text });
            }
        }
        at += length;
    }
    pieces
}

/// A comment or literal, or all the code before the next one.
fn run(text: &str) -> (Kind, usize) {
    let (kind, mut length) = token(text);
    while kind == Kind::Code && length < text.len() {
        let (next, more) = token(&text[length..]);
        if next != Kind::Code {
            break;
        }
        length += more;
    }
    (kind, length)
}

/// Kind and length in bytes of the token that the text starts with; at least one character.
fn token(text: &str) -> (Kind, usize) {
    if text.starts_with("//") {
        return (Kind::Comment, text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return (Kind::Comment, block_comment(text));
    }
    if text.starts_with('"') {
        return (Kind::Literal, quoted(text, 1));
    }
    if let Some(length) = raw_string(text) {
        return (Kind::Literal, length);
    }
    (Kind::Code, character(text).or_else(|| word(text)).unwrap_or_else(|| first(text)))
}

fn first(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

/// Length of a name or number, so that the `r` in `for"` does not start a raw string.
fn word(text: &str) -> Option<usize> {
    let length = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len());
    // Prefixes of literals are left to what follows them.
    let is_prefix = matches!(&text[..length], "b" | "c") && text[length..].starts_with('"');
    (length > 0 && !is_prefix).then_some(length)
}

/// Length up to the closing quote that no backslash precedes.
fn quoted(text: &str, from: usize) -> usize {
    let mut escaped = false;
    for (at, letter) in text[from..].char_indices() {
        match letter {
            '"' if !escaped => return from + at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

/// Length of `r"…"`, `r#"…"#`, `br"…"` and the like.
fn raw_string(text: &str) -> Option<usize> {
    let prefix = ["r", "br", "cr"].into_iter().find(|prefix| {
        let rest = text.strip_prefix(prefix).map(|rest| rest.trim_start_matches('#'));
        rest.is_some_and(|rest| rest.starts_with('"'))
    })?;
    let hashes = text[prefix.len()..].find('"')?;
    let open = prefix.len() + hashes + 1;
    let close = format!("\"{}", "#".repeat(hashes));
    Some(text[open..].find(&close).map_or(text.len(), |at| open + at + close.len()))
}

/// Length of a character literal. A lifetime is none.
fn character(text: &str) -> Option<usize> {
    let rest = text.strip_prefix('\'')?;
    if let Some(escape) = rest.strip_prefix('\\') {
        let skipped = first(escape);
        return Some(2 + skipped + escape[skipped..].find('\'')? + 1);
    }
    rest[first(rest)..].starts_with('\'').then(|| first(rest) + 2)
}

/// Length of a block comment with those inside it.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += first(rest);
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: Kind, source: &str) -> Vec<(usize, &str)> {
        pieces(source).into_iter().filter(|piece| piece.kind == kind).map(|piece| (piece.line, piece.text)).collect()
    }

    #[test]
    fn comments_are_found_line_by_line_and_not_in_literals() {
        let source = "//! a\nlet x = \"// no\"; // b \"c\"\n/* d /* e */\nf */ g()\n";
        let expected = [(1, "//! a"), (2, "// b \"c\""), (3, "/* d /* e */"), (4, "f */")];
        assert_eq!(of(Kind::Comment, source), expected);
    }

    #[test]
    fn literals_end_at_their_own_quote() {
        for (source, expected) in [
            (r#"f("a \" b", "c\\")"#, vec![r#""a \" b""#, r#""c\\""#]),
            (r##"f(r#"a "b" c"#, br"\", b"d")"##, vec![r##"r#"a "b" c"#"##, r#"br"\""#, r#""d""#]),
            (r#"for"x""#, vec![r#""x""#]),
            (r#"let q = '"'; let e = '\''; "x""#, vec![r#""x""#]),
            (r#"fn f<'a>(x: &'a str) { "x" }"#, vec![r#""x""#]),
            (r#"r#type; "x""#, vec![r#""x""#]),
            (r#""not closed"#, vec![r#""not closed"#]),
        ] {
            let literals: Vec<&str> = of(Kind::Literal, source).into_iter().map(|(_, text)| text).collect();
            assert_eq!(literals, expected, "{source}");
        }
    }

    #[test]
    fn a_literal_of_several_lines_has_a_piece_for_each() {
        assert_eq!(of(Kind::Literal, "x(\"a\n\n  b\");"), [(1, "\"a"), (3, "  b\"")]);
    }

    #[test]
    fn the_code_of_a_line_stays_whole() {
        assert_eq!(of(Kind::Code, "let größe = 'x' + y; // z"), [(1, "let größe = 'x' + y; ")]);
    }

    #[test]
    fn nothing_is_lost() {
        let source = "/* open \"a\nfn ö() { 'é'; r##\"x\"# }";
        for source in [source, &source[8..], "'", "\"", "r\"", "'\\", "/*"] {
            let texts: String = pieces(source).iter().map(|piece| piece.text).collect();
            assert_eq!(texts, source.replace('\n', ""));
        }
    }
}
