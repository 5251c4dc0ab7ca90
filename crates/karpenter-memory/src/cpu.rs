//! A CPU profile: while it is taken, a timer interrupts whichever thread is running, and where it is gets counted.
//!
//! Nothing is installed and nothing is counted before the first profile. One is taken at a time.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

use crate::stack::Stack;

/// Samples for each second that a processor was busy, as many as Go takes.
pub const SAMPLES_PER_SECOND: u32 = 100;
/// How often samples are taken out of the handler's buffer.
const COLLECT_EVERY: Duration = Duration::from_millis(100);
/// Samples between two collections; as many as 640 busy processors make.
const BUFFER_SAMPLES: usize = 6400;

/// How often each stack was seen.
#[derive(Debug, Default)]
pub struct CpuProfile {
    pub(crate) stacks: BTreeMap<Box<[usize]>, u64>,
    pub(crate) took: Duration,
}

/// Why there is no profile.
#[derive(Debug)]
pub enum CpuProfileError {
    AlreadyRunning,
    Timer(io::Error),
}

impl std::fmt::Display for CpuProfileError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AlreadyRunning => write!(formatter, "another CPU profile is being taken"),
            Self::Timer(error) => write!(formatter, "cannot set the timer of CPU profiles: {error}"),
        }
    }
}

impl std::error::Error for CpuProfileError {}

/// Samples that the handler took.
struct Buffer {
    /// Whether a thread reads or writes `samples`. A thread that finds it set goes without.
    is_taken: AtomicBool,
    samples: UnsafeCell<Vec<Stack>>,
}

// SAFETY: `samples` is touched only by the thread that has set `is_taken`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Runs with the samples, unless another thread does.
    fn with<T>(&self, work: impl FnOnce(&mut Vec<Stack>) -> T) -> Option<T> {
        if self.is_taken.swap(true, Ordering::Acquire) {
            return None;
        }
        // SAFETY: `is_taken` was not set, so that no other thread is here.
        let done = work(unsafe { &mut *self.samples.get() });
        self.is_taken.store(false, Ordering::Release);
        Some(done)
    }
}

static BUFFER: Buffer = Buffer { is_taken: AtomicBool::new(false), samples: UnsafeCell::new(Vec::new()) };
static RUNNING: Mutex<()> = Mutex::new(());

/// Counts where the threads of this process are for a while, and blocks the calling thread meanwhile.
pub fn profile(duration: Duration) -> Result<CpuProfile, CpuProfileError> {
    let _running = match RUNNING.try_lock() {
        Ok(running) => running,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return Err(CpuProfileError::AlreadyRunning),
    };
    // The unwinder prepares itself at its first use; that should not happen in the handler.
    let _ = Stack::capture();
    let mut taken = Vec::with_capacity(BUFFER_SAMPLES);
    exchange(&mut taken);
    install_handler().map_err(CpuProfileError::Timer)?;
    let began = Instant::now();
    set_timer(Duration::from_secs(1) / SAMPLES_PER_SECOND).map_err(CpuProfileError::Timer)?;
    let mut profile = CpuProfile::default();
    let mut collected = Vec::with_capacity(BUFFER_SAMPLES);
    while let Some(left) = duration.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
        std::thread::sleep(left.min(COLLECT_EVERY));
        profile.collect(&mut collected);
    }
    set_timer(Duration::ZERO).map_err(CpuProfileError::Timer)?;
    // A buffer without room: what a late signal finds is dropped.
    let mut last = Vec::new();
    exchange(&mut last);
    profile.count(&mut last);
    profile.took = began.elapsed();
    Ok(profile)
}

impl CpuProfile {
    fn collect(&mut self, empty: &mut Vec<Stack>) {
        exchange(empty);
        self.count(empty);
    }

    fn count(&mut self, samples: &mut Vec<Stack>) {
        for stack in samples.drain(..) {
            match self.stacks.get_mut(stack.addresses()) {
                Some(times) => *times += 1,
                None => {
                    self.stacks.insert(stack.addresses().into(), 1);
                }
            }
        }
    }
}

/// Swaps the handler's buffer for another one.
fn exchange(other: &mut Vec<Stack>) {
    while BUFFER.with(|samples| std::mem::swap(samples, other)).is_none() {
        // A handler is at work; it takes microseconds.
        std::hint::spin_loop();
    }
}

extern "C" fn on_timer(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the pointer is to the thread's own number, which is valid as long as the thread.
    let error = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *error };
    BUFFER.with(|samples| {
        // Within its capacity a vector does not allocate.
        if samples.len() < samples.capacity() {
            samples.push(Stack::interrupted());
        }
    });
    // SAFETY: as above.
    unsafe { *error = before };
}

/// Installed once and for good: a signal that comes late must not end the process.
fn install_handler() -> io::Result<()> {
    static IS_INSTALLED: AtomicBool = AtomicBool::new(false);
    if IS_INSTALLED.load(Ordering::Acquire) {
        return Ok(());
    }
    // SAFETY: all zeroes is a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_timer as *const () as usize;
    // Not on the alternative stack of threads: it is too small to unwind on.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: both pointers are valid or null; the handler only does what a handler may.
    let answer = unsafe { libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut()) };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    IS_INSTALLED.store(true, Ordering::Release);
    Ok(())
}

/// Zero stops it.
fn set_timer(interval: Duration) -> io::Result<()> {
    let time = libc::timeval { tv_sec: 0, tv_usec: interval.subsec_micros().into() };
    let timer = libc::itimerval { it_interval: time, it_value: time };
    // SAFETY: both pointers are valid or null.
    match unsafe { libc::setitimer(libc::ITIMER_PROF, &timer, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
