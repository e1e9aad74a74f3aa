//! What the real server's YAML library says about broken text.
//!
//! Our parser knows more kinds of problems than that library does, and places some differently. This translates the
//! common ones exactly; for rare ones the words are right, but the line may be that of the construct's start.

use serde_saphyr::granit_parser::{ErrorKind, ScanError};

const NODE: &str = "did not find expected node content";
const KEY: &str = "did not find expected key";
const NO_TOKEN: &str = "found character that cannot start any token";
const COMMENT_OR_BREAK: &str = "did not find expected comment or line break";
const BAD_CHARACTER_CODE: &str = "found invalid Unicode character escape code";

/// The text, if it consists of characters YAML allows.
pub(super) fn checked_text(bytes: &[u8]) -> Result<&str, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let leading = bytes.get(error.valid_up_to()).copied().unwrap_or_default();
        let what = match error.error_len() {
            None => "incomplete UTF-8 octet sequence",
            Some(_) if (0xc2..0xf5).contains(&leading) => "invalid trailing UTF-8 octet",
            Some(_) => "invalid leading UTF-8 octet",
        };
        format!("yaml: {what}")
    })?;
    match text.chars().all(is_allowed) {
        true => Ok(text.strip_prefix('\u{feff}').unwrap_or(text)),
        false => Err("yaml: control characters are not allowed".to_owned()),
    }
}

fn is_allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..)
}

/// Who finds a problem decides how its line is counted.
enum Line {
    /// The scanner counts from one, but does not mention the first line.
    Scanner(usize),
    /// The parser counts from zero, and does not mention line zero.
    Parser(usize),
}

/// The message for an error of our parser.
pub(super) fn describe(text: &str, error: &ScanError) -> String {
    let (line, what) = translate(text, error);
    let line = match line {
        Line::Scanner(line) if line > 1 => line,
        Line::Parser(line) => line.saturating_sub(1),
        Line::Scanner(_) => 0,
    };
    match line {
        0 => format!("yaml: {what}"),
        line => format!("yaml: line {line}: {what}"),
    }
}

fn translate(text: &str, error: &ScanError) -> (Line, String) {
    let at = error.marker().line();
    let scanner = |what: &str| (Line::Scanner(at), what.to_owned());
    let parser = |what: &str| (Line::Parser(at), what.to_owned());
    match error.kind() {
        ErrorKind::UnclosedFlowCollection { open } => {
            (Line::Parser(last_line(text) + 1), unclosed(text, *open).to_owned())
        }
        ErrorKind::MismatchedFlowCollectionEnd { open, close } => {
            let before = text.get(error_offset(text, error)..).and_then(|t| t.split(*close).next()).unwrap_or_default();
            parser(unclosed(before, *open))
        }
        ErrorKind::MisplacedFlowCollectionEnd => {
            let before = text.get(..error_offset(text, error)).unwrap_or_default();
            parser(if expects_node(before) { NODE } else { KEY })
        }
        ErrorKind::ExpectedFlowSequenceSeparator | ErrorKind::InvalidColonPlacement => parser(separator('[')),
        ErrorKind::ExpectedFlowMappingSeparator => parser(separator('{')),
        ErrorKind::ExpectedBlockSequenceEntry => parser("did not find expected '-' indicator"),
        ErrorKind::ExpectedBlockMappingKey
        | ErrorKind::InvalidTrailingSingleQuotedScalar
        | ErrorKind::InvalidTrailingDoubleQuotedScalar => parser(KEY),
        ErrorKind::CommentInterceptedScalar => (Line::Parser(at + 1), KEY.to_owned()),
        ErrorKind::ExpectedNodeContent => parser(NODE),
        ErrorKind::UndeclaredTagHandle => parser("found undefined tag handle"),
        ErrorKind::UnsupportedYamlMajorVersion => parser("found incompatible YAML document"),
        ErrorKind::DuplicateVersionDirective => parser("found duplicate %YAML directive"),
        ErrorKind::DuplicateTagDirective => parser("found duplicate %TAG directive"),
        ErrorKind::ExpectedDocumentStart | ErrorKind::MissingDocumentEndBeforeDirective => {
            parser("did not find expected <document start>")
        }
        ErrorKind::UnclosedQuotedScalar | ErrorKind::InvalidQuotedScalarIndent => {
            (Line::Scanner(text.matches('\n').count() + 1), "found unexpected end of stream".to_owned())
        }
        ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey => {
            (Line::Scanner(at + 1), "could not find expected ':'".to_owned())
        }
        ErrorKind::TabAtBlockScalarStart => {
            (Line::Scanner(at + 1), "found a tab character where an indentation space is expected".to_owned())
        }
        ErrorKind::RecursionLimitExceeded => scanner("exceeded max depth of 10000"),
        kind => scanner(scanner_words(kind)),
    }
}

/// Problems whose words depend on nothing but their kind.
fn scanner_words(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::MappingValueNotAllowed | ErrorKind::InvalidMappingValueWhitespace => {
            "mapping values are not allowed in this context"
        }
        ErrorKind::MappingKeyNotAllowed => "mapping keys are not allowed in this context",
        ErrorKind::BlockSequenceEntryNotAllowed
        | ErrorKind::BlockEntryInFlowCollection
        | ErrorKind::InvalidBlockEntryWhitespace => "block sequence entries are not allowed in this context",
        ErrorKind::UnknownQuotedScalarEscape => "found unknown escape character",
        ErrorKind::InvalidQuotedScalarHexEscape | ErrorKind::InvalidLowSurrogateHexEscape => {
            "did not find expected hexdecimal number"
        }
        ErrorKind::InvalidLowSurrogate
        | ErrorKind::MissingLowSurrogate
        | ErrorKind::UnpairedLowSurrogate
        | ErrorKind::InvalidUnicodeEscape => BAD_CHARACTER_CODE,
        ErrorKind::DocumentIndicatorInQuotedScalar => "found unexpected document indicator",
        ErrorKind::MissingAnchorOrAliasName => "did not find expected alphabetic or numeric character",
        ErrorKind::InvalidBlockScalarHeader | ErrorKind::InvalidDirectiveTerminator => COMMENT_OR_BREAK,
        ErrorKind::ZeroBlockScalarIndent => "found an indentation indicator equal to 0",
        ErrorKind::TabInPlainScalar => "found a tab character that violates indentation",
        ErrorKind::UnclosedVerbatimTag => "did not find the expected '>'",
        ErrorKind::InvalidTagEscape => "did not find URI escaped octet",
        ErrorKind::MissingTagUri => "did not find expected tag URI",
        ErrorKind::InvalidTagTerminator | ErrorKind::InvalidTagDirectiveTerminator => {
            "did not find expected whitespace or line break"
        }
        ErrorKind::MissingDirectiveName => "could not find expected directive name",
        ErrorKind::InvalidDirectiveName => "found unexpected non-alphabetical character",
        ErrorKind::MissingYamlVersionSeparator => "did not find expected digit or '.' character",
        ErrorKind::MissingYamlVersion => "did not find expected version number",
        ErrorKind::YamlVersionTooLong => "found extremely long version number",
        _ => NO_TOKEN,
    }
}

/// What is missing where a list or map in brackets breaks off after `before`.
fn unclosed(before: &str, open: char) -> &'static str {
    if expects_node(before) { NODE } else { separator(open) }
}

fn separator(open: char) -> &'static str {
    if open == '{' { "did not find expected ',' or '}'" } else { "did not find expected ',' or ']'" }
}

/// Whether something must follow the last character.
fn expects_node(before: &str) -> bool {
    before.trim_end().chars().next_back().is_none_or(|c| matches!(c, '[' | '{' | ',' | '?' | ':'))
}

/// The number of lines, the last one counted even if it is not ended.
fn last_line(text: &str) -> usize {
    text.matches('\n').count() + usize::from(!text.is_empty() && !text.ends_with('\n'))
}

fn error_offset(text: &str, error: &ScanError) -> usize {
    let mut offsets = text.char_indices().map(|(offset, _)| offset);
    offsets.nth(error.marker().index()).unwrap_or(text.len())
}
