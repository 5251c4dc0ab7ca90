//! The protobuf wire format, in which a message consists of numbered fields of four types.

/// The value of a field in the wire format.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Wire<'bytes> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'bytes [u8]),
    Fixed32(u32),
}

/// Reads the fields of a message one after another.
pub(super) struct Reader<'bytes> {
    rest: &'bytes [u8],
}

impl<'bytes> Reader<'bytes> {
    pub(super) fn new(bytes: &'bytes [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next field; `Some(None)` at the end of the message, `None` if the message is malformed.
    pub(super) fn next(&mut self) -> Option<Option<(u32, Wire<'bytes>)>> {
        if self.rest.is_empty() {
            return Some(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0)?;
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Fixed32(u32::from_le_bytes(self.take(4)?.try_into().ok()?)),
            _ => return None,
        };
        Some(Some((number, wire)))
    }

    pub(super) fn is_finished(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, count: usize) -> Option<&'bytes [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }
}

/// Decodes a string. Invalid UTF-8 is replaced, as Go does when it writes JSON.
pub(super) fn text(bytes: &[u8]) -> Option<String> {
    Some(String::from_utf8_lossy(bytes).into_owned())
}
