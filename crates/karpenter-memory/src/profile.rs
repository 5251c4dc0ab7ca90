//! Profiles in pprof's format, compressed: samples with their stacks, the mapped files, and function names if the
//! program has a symbol table. Otherwise pprof reads the names from a copy of the program with symbols, which it finds
//! by build id.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::encoding::{WireType, encode_key, encode_varint};

use crate::cpu::{CpuProfile, SAMPLES_PER_SECOND};
use crate::heap::{self, SAMPLE_BYTES};
use crate::symbols::{self, Mapping, Name};

/// Type and unit of a sample's value.
type ValueType = (&'static str, &'static str);

/// The `drop_frames` of heap profiles: functions of the allocator and of this profiler. pprof removes them and
/// everything that they call, so that their callers are shown. The expression must match the whole name, including
/// generic types.
const ALLOCATOR: &str = "<?karpenter_memory::heap::.*|__rust_(alloc|realloc).*|__rustc::__rust_(alloc|realloc).*|\
    alloc::alloc::.*|<alloc::alloc::Global.*|<?alloc::raw_vec::.*";

/// The sample type that pprof shows by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeapView {
    InUse,
    Allocated,
}

/// A profile before it is encoded.
struct Profile<'a> {
    value_types: &'a [ValueType],
    default_type: &'static str,
    period_type: ValueType,
    period: i64,
    duration_nanos: i64,
    /// `drop_frames`: functions that pprof removes, with everything that they call.
    left_out: &'static str,
    samples: Vec<(&'a [usize], Vec<i64>)>,
}

/// A CPU profile.
pub fn of_cpu(taken: &CpuProfile) -> Vec<u8> {
    let nanos = 1_000_000_000 / i64::from(SAMPLES_PER_SECOND);
    let number = |times: u64| i64::try_from(times).unwrap_or(i64::MAX);
    let samples = taken.stacks.iter();
    encode(&Profile {
        value_types: &[("samples", "count"), ("cpu", "nanoseconds")],
        default_type: "cpu",
        period_type: ("cpu", "nanoseconds"),
        period: nanos,
        duration_nanos: i64::try_from(taken.took.as_nanos()).unwrap_or(i64::MAX),
        left_out: "",
        samples: samples
            .map(|(stack, times)| (&**stack, vec![number(*times), number(*times).saturating_mul(nanos)]))
            .collect(),
    })
}

/// A heap profile: allocations since [`heap::start`], and those still in use.
pub fn of_heap(view: HeapView) -> Vec<u8> {
    let allocated = heap::allocated();
    let samples = allocated.iter().map(|(stack, one)| {
        let values = [one.objects, one.bytes, one.objects_in_use, one.bytes_in_use];
        (&**stack, values.map(|value| value.round() as i64).to_vec())
    });
    encode(&Profile {
        value_types: &[
            ("alloc_objects", "count"),
            ("alloc_space", "bytes"),
            ("inuse_objects", "count"),
            ("inuse_space", "bytes"),
        ],
        default_type: match view {
            HeapView::InUse => "inuse_space",
            HeapView::Allocated => "alloc_space",
        },
        period_type: ("space", "bytes"),
        period: i64::from(SAMPLE_BYTES),
        duration_nanos: 0,
        left_out: ALLOCATOR,
        samples: samples.collect(),
    })
}

/// The string table of a message; the first string is empty.
struct Texts {
    places: BTreeMap<String, u64>,
}

impl Texts {
    fn place(&mut self, text: &str) -> u64 {
        let next = self.places.len() as u64;
        *self.places.entry(text.to_owned()).or_insert(next)
    }
}

/// A message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    /// A zero is omitted, because it is the default of an absent field.
    fn number(&mut self, field: u32, value: u64) {
        if value != 0 {
            encode_key(field, WireType::Varint, &mut self.0);
            encode_varint(value, &mut self.0);
        }
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        encode_key(field, WireType::LengthDelimited, &mut self.0);
        encode_varint(bytes.len() as u64, &mut self.0);
        self.0.extend_from_slice(bytes);
    }

    fn numbers(&mut self, field: u32, values: impl IntoIterator<Item = u64>) {
        let mut packed = Vec::new();
        values.into_iter().for_each(|value| encode_varint(value, &mut packed));
        self.bytes(field, &packed);
    }

    fn message(&mut self, field: u32, fill: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }
}

/// An int64 as protobuf's varint; negative numbers take ten bytes.
fn signed(value: i64) -> u64 {
    value.cast_unsigned()
}

fn encode(profile: &Profile<'_>) -> Vec<u8> {
    let mut texts = Texts { places: BTreeMap::from([(String::new(), 0)]) };
    let mut addresses: Vec<u64> =
        profile.samples.iter().flat_map(|(stack, _)| stack.iter().map(|one| *one as u64)).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let mappings = symbols::mappings(&addresses);
    let mut message = Message::default();
    let value_type = |message: &mut Message, texts: &mut Texts, field, (kind, unit): ValueType| {
        message.message(field, |inner| {
            inner.number(1, texts.place(kind));
            inner.number(2, texts.place(unit));
        });
    };
    for one in profile.value_types {
        value_type(&mut message, &mut texts, 1, *one);
    }
    // Locations are numbered in the order of their addresses, starting at 1.
    let location = |address: usize| addresses.partition_point(|one| *one < address as u64) as u64 + 1;
    for (stack, values) in &profile.samples {
        message.message(2, |sample| {
            sample.numbers(1, stack.iter().map(|address| location(*address)));
            sample.numbers(2, values.iter().map(|value| signed(*value)));
        });
    }
    for (index, mapping) in mappings.iter().enumerate() {
        message.message(3, |inner| {
            inner.number(1, index as u64 + 1);
            inner.number(2, mapping.start);
            inner.number(3, mapping.end);
            inner.number(4, mapping.offset);
            inner.number(5, texts.place(&mapping.file));
            inner.number(6, texts.place(&mapping.build_id));
            inner.number(7, u64::from(!mapping.names.is_empty()));
        });
    }
    write_locations(&mut message, &mut texts, &addresses, &mappings);
    message.number(
        9,
        signed(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as i64)),
    );
    message.number(10, signed(profile.duration_nanos));
    value_type(&mut message, &mut texts, 11, profile.period_type);
    message.number(12, signed(profile.period));
    message.number(7, texts.place(profile.left_out));
    message.number(14, texts.place(profile.default_type));
    let mut ordered: Vec<(&String, &u64)> = texts.places.iter().collect();
    ordered.sort_unstable_by_key(|(_, place)| **place);
    for (text, _) in ordered {
        message.bytes(6, text.as_bytes());
    }
    let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
    let _ = compressed.write_all(&message.0);
    compressed.finish().unwrap_or_default()
}

fn write_locations(message: &mut Message, texts: &mut Texts, addresses: &[u64], mappings: &[Mapping]) {
    let mut functions: BTreeMap<&Name, u64> = BTreeMap::new();
    for (index, address) in addresses.iter().enumerate() {
        let mapping = mappings.iter().position(|mapping| mapping.contains(*address));
        let name = mapping.and_then(|mapping| mappings[mapping].names.get(address));
        let next = functions.len() as u64 + 1;
        let function = name.map(|name| *functions.entry(name).or_insert(next));
        message.message(4, |location| {
            location.number(1, index as u64 + 1);
            location.number(2, mapping.map_or(0, |mapping| mapping as u64 + 1));
            location.number(3, *address);
            if let Some(function) = function {
                location.message(4, |line| line.number(1, function));
            }
        });
    }
    for (name, number) in functions {
        // The plain name is used only if it differs: if name and system name are equal, pprof shortens the name as if
        // it were C++.
        let (plain, mangled) = (texts.place(&name.plain), texts.place(&name.mangled));
        message.message(5, |function| {
            function.number(1, number);
            function.number(2, plain);
            function.number(3, mangled);
        });
    }
}
