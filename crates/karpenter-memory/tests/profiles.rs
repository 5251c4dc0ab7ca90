//! Profiles of this test itself, read back as messages of pprof's format.
#![cfg(target_os = "linux")]

#[path = "profiles/pprof.rs"]
mod pprof;

use std::hint::black_box;
use std::time::{Duration, Instant};

use karpenter_memory::heap::SampledHeap;
use karpenter_memory::profile::{HeapView, of_cpu, of_heap};
use karpenter_memory::{cpu, heap};

use regex::Regex;

use crate::pprof::Profile;

#[global_allocator]
static HEAP: SampledHeap = SampledHeap;

#[inline(never)]
fn allocate_small_pieces(pieces: usize) -> Vec<Vec<u8>> {
    (0..pieces).map(|piece| vec![piece as u8; 1000]).collect()
}

#[inline(never)]
fn burn_cpu(until: Instant) -> u64 {
    let mut sum = 0_u64;
    while Instant::now() < until {
        for number in 0..10_000_u64 {
            sum = black_box(sum.wrapping_add(number * number));
        }
    }
    sum
}

/// The innermost function that pprof shows for the first sample with this function.
fn shown_leaf(profile: &Profile, function: &str) -> String {
    let left_out = Regex::new(&format!("^(?:{})$", profile.text(profile.drop_frames))).expect("a pattern");
    let name = |id: &u64| {
        let location = profile.location.iter().find(|location| location.id == *id).expect("a location");
        let line = location.line.first().map(|line| line.function_id);
        let function = profile.function.iter().find(|function| Some(function.id) == line);
        function.map_or("", |function| profile.text(function.name)).to_owned()
    };
    let stacks = profile.sample.iter().map(|sample| sample.location_id.iter().map(name).collect::<Vec<_>>());
    let mut found = stacks.filter(|stack| stack.iter().any(|name| name.contains(function)));
    let stack = found.next().expect("a sample");
    // pprof shows the calls from the outermost one up to the first function that it removes.
    let shown: Vec<&String> = stack.iter().rev().take_while(|name| !left_out.is_match(name)).collect();
    assert!(shown.iter().any(|name| name.contains(function)), "{stack:#?}");
    shown.last().map(|name| (*name).clone()).unwrap_or_default()
}

/// One test checks both kinds of profiles, because a profile covers the whole process, including other tests.
#[test]
fn profiles_name_what_allocates_and_what_computes() {
    heap::start();
    let pieces = allocate_small_pieces(64_000);
    let profile = Profile::read(&of_heap(HeapView::InUse));
    assert_eq!(profile.default_type(), "inuse_space");
    let types = ["alloc_objects count", "alloc_space bytes", "inuse_objects count", "inuse_space bytes"];
    assert_eq!(profile.value_types(), types);
    let leaf = shown_leaf(&profile, "allocate_small_pieces");
    assert!(!leaf.contains("karpenter_memory") && !leaf.contains("__rust"), "{leaf}");
    // The test allocates 64 MB, which gives about 125 samples. With so few, the estimate is within 10 % in two of three
    // runs.
    let bytes = |profile: &Profile, value| profile.sum("allocate_small_pieces", value);
    let (allocated, in_use) = (bytes(&profile, 1), bytes(&profile, 3));
    assert!((40_000_000..100_000_000).contains(&in_use), "{in_use} bytes in use");
    assert!(allocated >= in_use, "{allocated} bytes allocated, {in_use} in use");
    assert_eq!(pieces.len(), 64_000);
    drop(pieces);
    let profile = Profile::read(&of_heap(HeapView::Allocated));
    assert_eq!(profile.default_type(), "alloc_space");
    assert_eq!(bytes(&profile, 3), 0, "freed pieces are struck out");
    assert_eq!(bytes(&profile, 1), allocated, "and stay counted as allocated");

    let until = Instant::now() + Duration::from_secs(1);
    let burning = std::thread::spawn(move || burn_cpu(until));
    let taken = cpu::profile(Duration::from_millis(500));
    let profile = Profile::read(&of_cpu(&taken.expect("a profile")));
    assert_eq!(profile.value_types(), ["samples count", "cpu nanoseconds"]);
    assert_eq!((profile.period, profile.default_type()), (10_000_000, "cpu"));
    let samples = profile.sum("burn_cpu", 0);
    assert!(samples > 0, "{:?}", profile.functions());
    assert_eq!(profile.sum("burn_cpu", 1), samples * 10_000_000);
    assert!(profile.duration_nanos >= 500_000_000);
    let own = profile.mapping.iter().find(|mapping| mapping.has_functions).expect("the program itself");
    assert!(!profile.text(own.build_id).is_empty());
    burning.join().expect("ends");
}
