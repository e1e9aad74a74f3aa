//! Encoder for the parts of the protobuf wire format that traces need.

/// Message under construction.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

/// Wire types.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;

impl Message {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn varint(&mut self, field: u64, value: u64) -> &mut Message {
        self.raw(field << 3 | VARINT).raw(value)
    }

    pub(super) fn fixed(&mut self, field: u64, value: u64) -> &mut Message {
        self.raw(field << 3 | FIXED64).0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(super) fn bytes(&mut self, field: u64, value: &[u8]) -> &mut Message {
        self.raw(field << 3 | LENGTH).raw(value.len() as u64).0.extend_from_slice(value);
        self
    }

    /// Adds a nested message.
    pub(super) fn message(&mut self, field: u64, fill: impl FnOnce(&mut Message)) -> &mut Message {
        let mut inner = Message::default();
        fill(&mut inner);
        self.bytes(field, &inner.0)
    }

    fn raw(&mut self, mut value: u64) -> &mut Message {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_encoded_in_the_wire_format() {
        let mut message = Message::default();
        message.varint(1, 150).bytes(2, b"testing").message(3, |inner| {
            inner.varint(1, 0);
        });
        message.fixed(7, 1);
        let expected: &[u8] = &[
            0x08, 0x96, 0x01, 0x12, 0x07, b't', b'e', b's', b't', b'i', b'n', b'g', 0x1a, 0x02, 0x08, 0x00, 0x39, 1, 0,
            0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(message.into_bytes(), expected);
    }
}
