//! How one commit is encoded: length, checksum, revision, kind, key, object.

/// The size of a record's header: length and checksum.
pub(super) const HEAD_BYTES: usize = 8;
/// The maximum plausible length of a record; larger than any request.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A decoded record.
#[derive(Debug, PartialEq)]
pub(super) struct Record<'a> {
    pub(super) revision: u64,
    pub(super) storage: &'a str,
    pub(super) key: &'a str,
    /// `None` for a deletion.
    pub(super) object: Option<&'a [u8]>,
}

/// The result of decoding a record at one position of a file.
#[derive(Debug, PartialEq)]
pub(super) enum Decoded<'a> {
    Record(Record<'a>, usize),
    End,
    /// The file ends before the end of the record.
    Truncated,
    /// The checksum or the content of the record is invalid. The value is the record's length according to its header.
    Invalid(usize),
}

pub(super) fn append(bytes: &mut Vec<u8>, revision: u64, storage: &str, key: &str, object: Option<&[u8]>) {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; HEAD_BYTES]);
    bytes.extend_from_slice(&revision.to_le_bytes());
    bytes.push(u8::from(object.is_some()));
    for text in [storage, key] {
        bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes.extend_from_slice(object.unwrap_or_default());
    let length = (bytes.len() - start - HEAD_BYTES) as u32;
    let sum = checksum(&bytes[start + HEAD_BYTES..]);
    bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
    bytes[start + 4..start + HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
}

pub(super) fn read(bytes: &[u8]) -> Decoded<'_> {
    if bytes.is_empty() {
        return Decoded::End;
    }
    let (Some(length), Some(sum)) = (number(bytes, 0), number(bytes, 4)) else { return Decoded::Truncated };
    let length = length as usize;
    if length == 0 || length > BODY_BYTES_MAX {
        return Decoded::Invalid(HEAD_BYTES);
    }
    let end = HEAD_BYTES + length;
    let Some(body) = bytes.get(HEAD_BYTES..end) else { return Decoded::Truncated };
    if checksum(body) != sum {
        return Decoded::Invalid(end);
    }
    match parse(body) {
        Some(record) => Decoded::Record(record, end),
        None => Decoded::Invalid(end),
    }
}

fn parse(body: &[u8]) -> Option<Record<'_>> {
    let revision = u64::from_le_bytes(body.get(..8)?.try_into().ok()?);
    let has_object = *body.get(8)? == 1;
    let (storage, next) = text(body, 9)?;
    let (key, next) = text(body, next)?;
    Some(Record { revision, storage, key, object: has_object.then_some(body.get(next..)?) })
}

fn text(bytes: &[u8], at: usize) -> Option<(&str, usize)> {
    let length = number(bytes, at)? as usize;
    let end = (at + 4).checked_add(length)?;
    Some((std::str::from_utf8(bytes.get(at + 4..end)?).ok()?, end))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The CRC-32 checksum (IEEE), computed eight bytes at a time.
fn checksum(bytes: &[u8]) -> u32 {
    const TABLES: [[u32; 256]; 8] = tables();
    let mut sum = u32::MAX;
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let low = sum ^ u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        sum = TABLES[7][(low & 255) as usize]
            ^ TABLES[6][(low >> 8 & 255) as usize]
            ^ TABLES[5][(low >> 16 & 255) as usize]
            ^ TABLES[4][(low >> 24) as usize]
            ^ TABLES[3][usize::from(chunk[4])]
            ^ TABLES[2][usize::from(chunk[5])]
            ^ TABLES[1][usize::from(chunk[6])]
            ^ TABLES[0][usize::from(chunk[7])];
    }
    for byte in chunks.remainder() {
        sum = TABLES[0][((sum ^ u32::from(*byte)) & 255) as usize] ^ (sum >> 8);
    }
    !sum
}

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { 0xedb8_8320 ^ (value >> 1) } else { value >> 1 };
            bit += 1;
        }
        tables[0][index] = value;
        index += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut index = 0;
        while index < 256 {
            let before = tables[table - 1][index];
            tables[table][index] = tables[0][(before & 255) as usize] ^ (before >> 8);
            index += 1;
        }
        table += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn checksum_is_crc32_ieee() {
        assert_eq!(checksum(b"123456789"), 0xcbf4_3926);
    }

    proptest! {
        #[test]
        fn records_round_trip_and_corruption_is_detected(
            revision in any::<u64>(),
            key in "[a-z/]{0,20}",
            object in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..50)),
            damage in any::<proptest::sample::Index>(),
            bit in 0..8_u8,
        ) {
            let mut bytes = Vec::new();
            append(&mut bytes, revision, "pods", &key, object.as_deref());
            let expected = Record { revision, storage: "pods", key: &key, object: object.as_deref() };
            prop_assert_eq!(read(&bytes), Decoded::Record(expected, bytes.len()));
            prop_assert_eq!(read(&bytes[..bytes.len() - 1]), Decoded::Truncated);
            let at = damage.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(!matches!(read(&bytes), Decoded::Record(..)));
        }
    }
}
