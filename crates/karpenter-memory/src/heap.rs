//! Heap profiles: about one allocation per 512 KiB is sampled with its stack; the sample is removed when the allocation
//! is freed.
//!
//! [`SampledHeap`] wraps the allocator of the C library. Before [`start`] every call additionally reads one flag.
//! Afterwards most allocations additionally do one subtraction, and frees read one counter.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::stack::Stack;

/// The mean number of allocated bytes between two samples, the same number as in Go's profiles.
pub const SAMPLE_BYTES: u32 = 512 * 1024;
/// The number of counters by which a free determines whether its allocation may have been sampled. There are a few
/// hundred samples at a time.
const SLOTS: usize = 1 << 15;

/// The allocator of the C library, with sampling after [`start`].
#[derive(Debug, Clone, Copy, Default)]
pub struct SampledHeap;

/// Estimated allocations with the same stack: each sample represents the allocations around it that were not sampled.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Allocated {
    pub(crate) objects: f64,
    pub(crate) bytes: f64,
    pub(crate) objects_in_use: f64,
    pub(crate) bytes_in_use: f64,
}

/// A sampled allocation that is in use.
struct Piece {
    stack: Box<[usize]>,
    objects: f64,
    bytes: f64,
}

struct Noted {
    stacks: BTreeMap<Box<[usize]>, Allocated>,
    pieces: BTreeMap<usize, Piece>,
}

static IS_ON: AtomicBool = AtomicBool::new(false);
static NOTED: Mutex<Noted> = Mutex::new(Noted { stacks: BTreeMap::new(), pieces: BTreeMap::new() });
/// The number of samples in use per slot.
static PIECES: [AtomicU16; SLOTS] = [const { AtomicU16::new(0) }; SLOTS];

thread_local! {
    /// The number of bytes until the next sample; [`UNDRAWN`] before a number was drawn.
    static LEFT: Cell<i64> = const { Cell::new(UNDRAWN) };
    static RANDOM: Cell<u64> = const { Cell::new(0) };
    /// Whether this thread is recording a sample; its allocations are not sampled meanwhile.
    static IS_NOTING: Cell<bool> = const { Cell::new(false) };
}

const UNDRAWN: i64 = i64::MIN;

/// Enables sampling for the rest of the process's life.
pub fn start() {
    IS_ON.store(true, Ordering::Relaxed);
}

pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// The allocations sampled so far, by stack.
pub(crate) fn allocated() -> Vec<(Box<[usize]>, Allocated)> {
    noting(|| {
        let noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
        noted.stacks.iter().map(|(stack, allocated)| (stack.clone(), allocated.clone())).collect()
    })
    .unwrap_or_default()
}

/// Runs `work` without sampling its allocations; `None` if the call is nested.
fn noting<T>(work: impl FnOnce() -> T) -> Option<T> {
    // Thread-local variables may be destroyed already if the thread is ending.
    let is_free = IS_NOTING.try_with(|noting| !noting.replace(true)).unwrap_or(false);
    if !is_free {
        return None;
    }
    let done = work();
    IS_NOTING.set(false);
    Some(done)
}

fn slot(address: usize) -> &'static AtomicU16 {
    // Fibonacci hashing, because addresses are multiples of the same number and would otherwise share few slots.
    let spread = (address as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOTS.ilog2());
    &PIECES[spread as usize % SLOTS]
}

/// A random number of bytes until the next sample, chosen so that every byte has the same probability of being sampled.
fn draw() -> i64 {
    let mut random = RANDOM.get();
    if random == 0 {
        // The seed is the address of a thread-local variable, which differs between threads.
        random = RANDOM.with(|place| std::ptr::from_ref(place) as u64) | 1;
    }
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    RANDOM.set(random);
    let share = ((random >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
    (-share.ln() * f64::from(SAMPLE_BYTES)) as i64
}

fn note(address: *mut u8, size: usize) {
    let bytes = i64::try_from(size).unwrap_or(i64::MAX);
    let is_due = LEFT.try_with(|left| {
        let before = if left.get() == UNDRAWN { draw() } else { left.get() };
        left.set(before.saturating_sub(bytes));
        left.get() <= 0
    });
    if is_due.unwrap_or(false) && !address.is_null() && size > 0 {
        note_piece(address as usize, size);
    }
}

#[cold]
#[inline(never)]
fn note_piece(address: usize, size: usize) {
    noting(|| {
        LEFT.set(draw());
        let stack = Stack::capture();
        // The probability that an allocation of this size is sampled.
        let share = -(-(size as f64) / f64::from(SAMPLE_BYTES)).exp_m1();
        let (objects, bytes) = (1.0 / share, size as f64 / share);
        let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
        if !noted.stacks.contains_key(stack.addresses()) {
            noted.stacks.insert(stack.addresses().into(), Allocated::default());
        }
        if let Some(allocated) = noted.stacks.get_mut(stack.addresses()) {
            allocated.objects += objects;
            allocated.bytes += bytes;
            allocated.objects_in_use += objects;
            allocated.bytes_in_use += bytes;
        }
        noted.pieces.insert(address, Piece { stack: stack.addresses().into(), objects, bytes });
        slot(address).fetch_add(1, Ordering::Release);
    });
}

/// Removes the sample of an allocation. It must be called before the memory is freed, because afterwards another thread
/// may get the same address.
fn strike(address: *mut u8) {
    if slot(address as usize).load(Ordering::Acquire) > 0 {
        strike_piece(address as usize);
    }
}

#[cold]
#[inline(never)]
fn strike_piece(address: usize) {
    noting(|| {
        let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(piece) = noted.pieces.remove(&address) else { return };
        slot(address).fetch_sub(1, Ordering::Release);
        if let Some(allocated) = noted.stacks.get_mut(&piece.stack) {
            allocated.objects_in_use -= piece.objects;
            allocated.bytes_in_use -= piece.bytes;
        }
    });
}

// SAFETY: all calls are passed to the system allocator, and its results are returned unchanged.
unsafe impl GlobalAlloc for SampledHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees what the system allocator requires.
        let address = unsafe { System.alloc(layout) };
        if is_on() {
            note(address, layout.size());
        }
        address
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let address = unsafe { System.alloc_zeroed(layout) };
        if is_on() {
            note(address, layout.size());
        }
        address
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        if is_on() {
            strike(address);
        }
        // SAFETY: as above.
        unsafe { System.dealloc(address, layout) }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if is_on() {
            strike(address);
        }
        // SAFETY: as above.
        let moved = unsafe { System.realloc(address, layout, size) };
        if is_on() {
            note(moved, size);
        }
        moved
    }
}
