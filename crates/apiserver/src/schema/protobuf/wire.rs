//! The protobuf wire format: a message is a sequence of numbered fields.

const UNEXPECTED_END: &str = "unexpected EOF";
const NUMBER_TOO_LONG: &str = "proto: integer overflow";
const NEGATIVE_LENGTH: &str = "proto: negative length found during unmarshaling";
const UNEXPECTED_GROUP_END: &str = "proto: unexpected end of group";
/// Maximum nesting depth of skipped groups, which the API does not use.
const MAX_GROUPS: usize = 100;

/// The value of a field on the wire.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Group,
    Fixed32(u32),
}

impl<'a> Payload<'a> {
    pub(super) fn bytes(self, field: &str) -> Result<&'a [u8], String> {
        match self {
            Payload::Bytes(bytes) => Ok(bytes),
            other => Err(other.wrong_type_error(field)),
        }
    }

    pub(super) fn varint(self, field: &str) -> Result<u64, String> {
        match self {
            Payload::Varint(number) => Ok(number),
            other => Err(other.wrong_type_error(field)),
        }
    }

    /// The error for a field with the wrong wire type.
    pub(super) fn wrong_type_error(self, field: &str) -> String {
        let wire_type = match self {
            Payload::Varint(_) => 0,
            Payload::Fixed64(_) => 1,
            Payload::Bytes(_) => 2,
            Payload::Group => 3,
            Payload::Fixed32(_) => 5,
        };
        format!("proto: wrong wireType = {wire_type} for field {}", go_name(field))
    }
}

/// The Go name of a field with this JSON name.
fn go_name(field: &str) -> String {
    match field {
        "metadata" => "ObjectMeta".to_owned(),
        "uid" => "UID".to_owned(),
        "apiVersion" => "APIVersion".to_owned(),
        "ip" => "IP".to_owned(),
        field => field.chars().take(1).flat_map(char::to_uppercase).chain(field.chars().skip(1)).collect(),
    }
}

/// The fields of a message, in wire order.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
    message: &'a str,
}

impl<'a> Fields<'a> {
    /// `message` is the type name for errors.
    pub(super) fn of(message: &'a str, bytes: &'a [u8]) -> Fields<'a> {
        Fields { rest: bytes, message }
    }

    fn next_field(&mut self) -> Result<(u32, Payload<'a>), String> {
        let tag = take_varint(&mut self.rest)?;
        let number = (tag >> 3) as i32;
        if tag & 7 == 4 {
            return Err(format!("proto: {}: wiretype end group for non-group", self.message));
        }
        match u32::try_from(number) {
            Ok(0) | Err(_) => Err(format!("proto: {}: illegal tag {number} (wire type {tag})", self.message)),
            Ok(number) => Ok((number, self.payload(tag)?)),
        }
    }

    fn payload(&mut self, tag: u64) -> Result<Payload<'a>, String> {
        Ok(match tag & 7 {
            0 => Payload::Varint(take_varint(&mut self.rest)?),
            1 => Payload::Fixed64(u64::from_le_bytes(take_array(&mut self.rest)?)),
            2 => Payload::Bytes(take_delimited(&mut self.rest)?),
            3 => {
                skip_group(&mut self.rest)?;
                Payload::Group
            }
            5 => Payload::Fixed32(u32::from_le_bytes(take_array(&mut self.rest)?)),
            other => return Err(format!("proto: illegal wireType {other}")),
        })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Payload<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.next_field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// The numbers of a packed field.
pub(super) fn packed(mut bytes: &[u8]) -> impl Iterator<Item = Result<u64, String>> {
    std::iter::from_fn(move || {
        let number = (!bytes.is_empty()).then(|| take_varint(&mut bytes));
        if matches!(number, Some(Err(_))) {
            bytes = &[];
        }
        number
    })
}

fn take_varint(rest: &mut &[u8]) -> Result<u64, String> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, tail) = rest.split_first().ok_or(UNEXPECTED_END)?;
        *rest = tail;
        number |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Ok(number);
        }
    }
    Err(NUMBER_TOO_LONG.to_owned())
}

fn take_array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], String> {
    let (array, tail) = rest.split_first_chunk().ok_or(UNEXPECTED_END)?;
    *rest = tail;
    Ok(*array)
}

fn take_delimited<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], String> {
    let length = i64::try_from(take_varint(rest)?).map_err(|_| NEGATIVE_LENGTH)?;
    let length = usize::try_from(length).map_err(|_| UNEXPECTED_END)?;
    let (bytes, tail) = rest.split_at_checked(length).ok_or(UNEXPECTED_END)?;
    *rest = tail;
    Ok(bytes)
}

fn skip_group(rest: &mut &[u8]) -> Result<(), String> {
    let mut depth = 1;
    while depth > 0 {
        match take_varint(rest)? & 7 {
            0 => drop(take_varint(rest)?),
            1 => drop(take_array::<8>(rest)?),
            2 => drop(take_delimited(rest)?),
            3 if depth == MAX_GROUPS => return Err(UNEXPECTED_GROUP_END.to_owned()),
            3 => depth += 1,
            4 => depth -= 1,
            5 => drop(take_array::<4>(rest)?),
            other => return Err(format!("proto: illegal wireType {other}")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(bytes: &[u8]) -> Result<Vec<(u32, Payload<'_>)>, String> {
        Fields::of("Thing", bytes).collect()
    }

    #[test]
    fn fields_of_every_wire_type_are_decoded() {
        let bytes =
            [0x08, 0x96, 0x01, 0x12, 1, b'x', 0x1b, 0x20, 1, 0x1c, 0x25, 1, 0, 0, 0, 0x29, 2, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            fields(&bytes),
            Ok(vec![
                (1, Payload::Varint(150)),
                (2, Payload::Bytes(b"x")),
                (3, Payload::Group),
                (4, Payload::Fixed32(1)),
                (5, Payload::Fixed64(2))
            ])
        );
    }

    #[test]
    fn malformed_messages_have_the_errors_of_generated_go_decoders() {
        for (bytes, want) in [
            (&[0x0a, 5, b'x'][..], "unexpected EOF"),
            (&[0x80], "unexpected EOF"),
            (&[0xff; 11], "proto: integer overflow"),
            (
                &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
                "proto: negative length found during unmarshaling",
            ),
            (&[0x00, 0], "proto: Thing: illegal tag 0 (wire type 0)"),
            (&[0x0c], "proto: Thing: wiretype end group for non-group"),
            (&[0x0f], "proto: illegal wireType 7"),
            (&[0x0b], "unexpected EOF"),
        ] {
            assert_eq!(fields(bytes), Err(want.to_owned()), "{bytes:?}");
        }
    }
}
