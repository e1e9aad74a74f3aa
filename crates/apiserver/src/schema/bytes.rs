//! Base64, decoded as leniently as Go does.

use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};

/// Go ignores unused trailing bits in the last character.
const LENIENT: GeneralPurpose =
    GeneralPurpose::new(&ALPHABET, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// Normalises base64 text to its canonical form.
pub(super) fn canonical(text: &str) -> Result<String, String> {
    let corrupt = |at| format!("illegal base64 data at input byte {at}");
    if let Some(at) = corrupt_at(text.as_bytes()) {
        return Err(corrupt(at));
    }
    let compact: Vec<u8> = text.bytes().filter(|b| !is_line_break(*b)).collect();
    LENIENT.decode(&compact).map(encode).map_err(|_| corrupt(compact.len()))
}

pub(super) fn encode(raw: impl AsRef<[u8]>) -> String {
    STANDARD.encode(raw)
}

fn is_line_break(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// The position of the first invalid byte as Go reports it. Line breaks are allowed anywhere and count as positions.
fn corrupt_at(text: &[u8]) -> Option<usize> {
    let skip_breaks = |at: usize| at + text.iter().skip(at).take_while(|b| is_line_break(**b)).count();
    let mut in_group = 0;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'\n' | b'\r' => {}
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => in_group = (in_group + 1) % 4,
            b'=' if in_group == 3 => return Some(skip_breaks(at + 1)).filter(|end| *end < text.len()),
            b'=' if in_group == 2 => {
                let second = skip_breaks(at + 1);
                return match text.get(second) {
                    None => Some(text.len()),
                    Some(b'=') => Some(skip_breaks(second + 1)).filter(|end| *end < text.len()),
                    Some(_) => Some(second - 1),
                };
            }
            _ => return Some(at),
        }
    }
    (in_group != 0).then(|| text.len() - in_group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_and_trailing_bits_are_ignored() {
        for (text, want) in [("", ""), ("YWJj", "YWJj"), ("YW\nJj\r\n", "YWJj"), ("YWK=", "YWI="), ("YR=\n=", "YQ==")] {
            assert_eq!(canonical(text), Ok(want.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn errors_have_the_position_of_the_first_invalid_byte() {
        for (text, at) in [
            ("!!", 0),
            ("abc", 0),
            ("abcde", 4),
            ("ab=c", 2),
            ("ab=", 3),
            ("YQ==x", 4),
            ("YWI=\nx", 5),
            ("a=", 1),
            ("ab-d", 2),
        ] {
            assert_eq!(canonical(text), Err(format!("illegal base64 data at input byte {at}")), "{text:?}");
        }
    }
}
