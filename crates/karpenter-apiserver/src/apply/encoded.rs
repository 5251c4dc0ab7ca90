//! The managed fields after an update in which the client did not send them: the stored JSON is changed into the new
//! JSON without decoding all of it.
//!
//! The result is the same as decoding all entries, calling [`super::record_update`] and encoding them. This
//! implementation copies most of the JSON, and decodes an entry only where fields changed. The JSON must have the form
//! that this crate writes: sorted, without whitespace, with entries that match the shape. For any other form it returns
//! [`TooComplex`], and the caller uses the general implementation.

use serde_json::Value;

use super::managed::ManagerId;
use super::path::Element;
use super::set::FieldSet;
use super::typed::Comparison;

/// The JSON does not have the expected form; the caller must use [`super::record_update`].
#[derive(Debug)]
pub(super) struct TooComplex;

type Part<T> = Result<T, TooComplex>;

/// One entry of `managedFields`, still encoded.
pub(super) struct Entry<'text> {
    pub(super) manager: String,
    pub(super) updates: bool,
    pub(super) api_version: String,
    pub(super) subresource: String,
    pub(super) time: Option<String>,
    fields: Fields<'text>,
}

enum Fields<'text> {
    Stored(&'text [u8]),
    Changed(Vec<u8>),
}

impl Fields<'_> {
    fn text(&self) -> &[u8] {
        match self {
            Self::Stored(text) => text,
            Self::Changed(text) => text,
        }
    }
}

pub(super) fn read(text: &[u8]) -> Part<Vec<Entry<'_>>> {
    let mut scanner = Scanner { text, at: 0 };
    let mut entries = Vec::new();
    scanner.expect(b'[')?;
    loop {
        entries.push(read_entry(scanner.value()?)?);
        if !scanner.comma() {
            break;
        }
    }
    scanner.expect(b']')?;
    Ok(entries)
}

fn read_entry(text: &[u8]) -> Part<Entry<'_>> {
    let mut entry = Entry {
        manager: String::new(),
        updates: false,
        api_version: String::new(),
        subresource: String::new(),
        time: None,
        fields: Fields::Stored(b""),
    };
    let string = |value: &[u8]| serde_json::from_slice::<String>(value).map_err(|_| TooComplex);
    for member in members(text)? {
        let (key, value) = member?;
        match key {
            b"\"manager\"" => entry.manager = string(value)?,
            b"\"operation\"" => entry.updates = value == b"\"Update\"",
            b"\"apiVersion\"" => entry.api_version = string(value)?,
            b"\"subresource\"" => entry.subresource = string(value)?,
            b"\"time\"" => entry.time = Some(string(value)?),
            b"\"fieldsV1\"" => entry.fields = Fields::Stored(value),
            b"\"fieldsType\"" => {}
            _ => return Err(TooComplex),
        }
    }
    if entry.fields.text().first() != Some(&b'{') {
        return Err(TooComplex);
    }
    Ok(entry)
}

/// Adds changed fields to the entry of the manager `id`, and removes changed and removed fields from the entries of all
/// other managers. Returns whether something other than times changed.
pub(super) fn update(
    entries: &mut Vec<Entry<'_>>,
    comparison: &Comparison,
    own: &FieldSet,
    id: &ManagerId,
    now: &str,
) -> Part<bool> {
    let gone = comparison.modified.union(&comparison.added).union(&comparison.removed);
    let mut is_changed = false;
    let is_own = |entry: &Entry<'_>| {
        entry.updates
            && entry.manager == id.manager
            && entry.api_version == id.api_version
            && entry.subresource == id.subresource
    };
    for entry in entries.iter_mut() {
        let is_own = is_own(entry) && !own.is_empty();
        let covers_own = is_own && covers(entry.fields.text(), own)?;
        let lost = if covers_own { &comparison.removed } else { &gone };
        let mut left = Vec::with_capacity(entry.fields.text().len());
        left.push(b'{');
        remove(entry.fields.text(), lost, &mut left)?;
        close(&mut left);
        if is_own && !covers_own {
            let value: Value = serde_json::from_slice(&left).map_err(|_| TooComplex)?;
            let previous = FieldSet::decode(&value).map_err(|_| TooComplex)?;
            left = own.union(&previous).encode().to_string().into_bytes();
        }
        if is_own {
            entry.time = Some(now.to_string());
        }
        if left != entry.fields.text() {
            entry.fields = Fields::Changed(left);
            is_changed = true;
        }
    }
    entries.retain(|entry| entry.fields.text() != b"{}");
    if !own.is_empty() && !entries.iter().any(is_own) {
        is_changed = true;
        entries.push(Entry {
            manager: id.manager.clone(),
            updates: true,
            api_version: id.api_version.clone(),
            subresource: id.subresource.clone(),
            time: Some(now.to_string()),
            fields: Fields::Changed(own.encode().to_string().into_bytes()),
        });
    }
    Ok(is_changed)
}

/// Sorts the entries: those with operation `Apply` first, then by time. Returns whether their order changed.
pub(super) fn sort(entries: &mut [Entry<'_>]) -> bool {
    let order = |left: &Entry<'_>, right: &Entry<'_>| {
        let key = |entry: &Entry<'_>| (entry.updates, entry.time.clone());
        key(left).cmp(&key(right)).then_with(|| {
            (&left.manager, &left.api_version, &left.subresource).cmp(&(
                &right.manager,
                &right.api_version,
                &right.subresource,
            ))
        })
    };
    let is_sorted = entries.is_sorted_by(|left, right| order(left, right).is_le());
    entries.sort_by(order);
    !is_sorted
}

pub(super) fn write(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut text = Vec::with_capacity(entries.iter().map(|entry| entry.fields.text().len() + 160).sum());
    text.push(b'[');
    for entry in entries {
        let mut member = |before: &str, value: &str| {
            text.extend_from_slice(before.as_bytes());
            let _ = serde_json::to_writer(&mut text, value);
        };
        member("{\"apiVersion\":", &entry.api_version);
        member(",\"fieldsType\":", "FieldsV1");
        text.extend_from_slice(b",\"fieldsV1\":");
        text.extend_from_slice(entry.fields.text());
        let mut member = |before: &str, value: &str| {
            text.extend_from_slice(before.as_bytes());
            let _ = serde_json::to_writer(&mut text, value);
        };
        if !entry.manager.is_empty() {
            member(",\"manager\":", &entry.manager);
        }
        member(",\"operation\":", if entry.updates { "Update" } else { "Apply" });
        if !entry.subresource.is_empty() {
            member(",\"subresource\":", &entry.subresource);
        }
        if let Some(time) = &entry.time {
            member(",\"time\":", time);
        }
        text.extend_from_slice(b"},");
    }
    text.pop();
    text.push(b']');
    text
}

/// An element of a field path as a JSON string.
fn quoted(element: &Element) -> Vec<u8> {
    serde_json::to_vec(&element.encode()).unwrap_or_default()
}

/// Copies the members of the JSON that are not in `set`, each followed by a comma.
fn remove(text: &[u8], set: &FieldSet, left: &mut Vec<u8>) -> Part<()> {
    let steps: Vec<(Vec<u8>, &Element)> =
        set.elements().into_iter().map(|element| (quoted(element), element)).collect();
    for member in members(text)? {
        let (key, value) = member?;
        if key == b"\".\"" {
            continue;
        }
        let at = left.len();
        left.extend_from_slice(key);
        left.push(b':');
        let Some((_, element)) = steps.iter().find(|(step, _)| step == key) else {
            left.extend_from_slice(value);
            left.push(b',');
            continue;
        };
        let is_member = is_member(value) && !set.has_member(element);
        left.push(b'{');
        let start = left.len();
        if is_member {
            left.extend_from_slice(b"\".\":{},");
        }
        let children = left.len();
        match set.child(element) {
            Some(below) => remove(value, below, left)?,
            None => remove(value, &FieldSet::default(), left)?,
        }
        match (left.len() > children, is_member) {
            (false, false) => {
                left.truncate(at);
                continue;
            }
            (false, true) => left.truncate(start),
            (true, _) => {}
        }
        close(left);
        left.push(b',');
    }
    Ok(())
}

/// Whether the JSON contains all members of `set`.
fn covers(text: &[u8], set: &FieldSet) -> Part<bool> {
    let mut missing: Vec<(Vec<u8>, &Element)> =
        set.elements().into_iter().map(|element| (quoted(element), element)).collect();
    for member in members(text)? {
        let (key, value) = member?;
        let Some(index) = missing.iter().position(|(step, _)| step == key) else { continue };
        let (_, element) = missing.swap_remove(index);
        if set.has_member(element) && !is_member(value) {
            return Ok(false);
        }
        if let Some(below) = set.child(element)
            && !covers(value, below)?
        {
            return Ok(false);
        }
    }
    Ok(missing.is_empty())
}

/// Whether an element is a member: it is if it has no children or has the key `.`.
fn is_member(text: &[u8]) -> bool {
    text == b"{}" || text.starts_with(b"{\".\":")
}

fn close(text: &mut Vec<u8>) {
    if text.last() == Some(&b',') {
        text.pop();
    }
    text.push(b'}');
}

/// The entries of a JSON object, as the JSON texts of key and value.
fn members(text: &[u8]) -> Part<impl Iterator<Item = Part<(&[u8], &[u8])>>> {
    let mut scanner = Scanner { text, at: 0 };
    scanner.expect(b'{')?;
    let mut is_first = true;
    Ok(std::iter::from_fn(move || {
        if scanner.next() == Some(b'}') {
            return None;
        }
        if !std::mem::take(&mut is_first) && !scanner.comma() {
            return Some(Err(TooComplex));
        }
        Some(scanner.member())
    }))
}

struct Scanner<'text> {
    text: &'text [u8],
    at: usize,
}

impl<'text> Scanner<'text> {
    fn next(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Part<()> {
        if self.next() != Some(byte) {
            return Err(TooComplex);
        }
        self.at += 1;
        Ok(())
    }

    fn comma(&mut self) -> bool {
        let is_comma = self.next() == Some(b',');
        self.at += usize::from(is_comma);
        is_comma
    }

    fn member(&mut self) -> Part<(&'text [u8], &'text [u8])> {
        let key = self.string()?;
        self.expect(b':')?;
        Ok((key, self.value()?))
    }

    fn string(&mut self) -> Part<&'text [u8]> {
        let start = self.at;
        self.expect(b'"')?;
        loop {
            match self.next().ok_or(TooComplex)? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        self.text.get(start..self.at).ok_or(TooComplex)
    }

    /// Reads a string or an object; entries of managed fields contain nothing else.
    fn value(&mut self) -> Part<&'text [u8]> {
        if self.next() == Some(b'"') {
            return self.string();
        }
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            match self.next().ok_or(TooComplex)? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' => depth += 1,
                b'}' => depth = depth.checked_sub(1).ok_or(TooComplex)?,
                b',' | b':' if depth > 0 => {}
                _ => return Err(TooComplex),
            }
            self.at += 1;
            if depth == 0 {
                return self.text.get(start..self.at).ok_or(TooComplex);
            }
        }
    }
}
