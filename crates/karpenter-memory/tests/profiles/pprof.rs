//! The messages of pprof's format, with the fields that our profiles use. See github.com/google/pprof,
//! proto/profile.proto.

use std::collections::BTreeSet;
use std::io::Read;

use flate2::read::GzDecoder;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ValueType {
    #[prost(int64, tag = "1")]
    pub(crate) kind: i64,
    #[prost(int64, tag = "2")]
    pub(crate) unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    pub(crate) location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub(crate) value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Mapping {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) memory_start: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) memory_limit: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) file_offset: u64,
    #[prost(int64, tag = "5")]
    pub(crate) filename: i64,
    #[prost(int64, tag = "6")]
    pub(crate) build_id: i64,
    #[prost(bool, tag = "7")]
    pub(crate) has_functions: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Line {
    #[prost(uint64, tag = "1")]
    pub(crate) function_id: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Location {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) mapping_id: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) address: u64,
    #[prost(message, repeated, tag = "4")]
    pub(crate) line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Function {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(int64, tag = "2")]
    pub(crate) name: i64,
    #[prost(int64, tag = "3")]
    pub(crate) system_name: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub(crate) sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub(crate) string_table: Vec<String>,
    #[prost(int64, tag = "7")]
    pub(crate) drop_frames: i64,
    #[prost(int64, tag = "9")]
    pub(crate) time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub(crate) duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub(crate) period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub(crate) period: i64,
    #[prost(int64, tag = "14")]
    pub(crate) default_sample_type: i64,
}

impl Profile {
    pub(crate) fn read(compressed: &[u8]) -> Self {
        let mut bytes = Vec::new();
        GzDecoder::new(compressed).read_to_end(&mut bytes).expect("compressed by gzip");
        Self::decode(&*bytes).expect("a profile")
    }

    pub(crate) fn text(&self, place: i64) -> &str {
        &self.string_table[usize::try_from(place).expect("a place")]
    }

    pub(crate) fn default_type(&self) -> &str {
        self.text(self.default_sample_type)
    }

    /// Type and unit of each value.
    pub(crate) fn value_types(&self) -> Vec<String> {
        let types = self.sample_type.iter();
        types.map(|one| format!("{} {}", self.text(one.kind), self.text(one.unit))).collect()
    }

    pub(crate) fn functions(&self) -> BTreeSet<&str> {
        self.function.iter().map(|function| self.text(function.name)).collect()
    }

    /// The sum of one value over the samples whose stack contains such a function.
    #[allow(dead_code, reason = "not every test asks")]
    pub(crate) fn sum(&self, function: &str, value: usize) -> i64 {
        let wanted: BTreeSet<u64> = self
            .function
            .iter()
            .filter(|one| self.text(one.name).contains(function))
            .map(|one| one.id)
            .collect();
        let is_in = |location: &Location| location.line.iter().any(|line| wanted.contains(&line.function_id));
        let locations: BTreeSet<u64> =
            self.location.iter().filter(|location| is_in(location)).map(|location| location.id).collect();
        let samples =
            self.sample.iter().filter(|sample| sample.location_id.iter().any(|id| locations.contains(id)));
        samples.map(|sample| sample.value[value]).sum()
    }
}
