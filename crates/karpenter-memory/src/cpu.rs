//! CPU profiles: during a profile a timer signals a running thread, and the signal handler records the thread's stack.
//!
//! The signal handler is installed by the first profile. Only one profile can run at a time.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

use crate::stack::Stack;

/// Samples per second of CPU time, the same rate as in Go's profiles.
pub const SAMPLES_PER_SECOND: u32 = 100;
/// The interval at which samples are moved from the handler's buffer into the profile.
const COLLECT_EVERY: Duration = Duration::from_millis(100);
/// The capacity of the handler's buffer: the samples of 640 busy CPUs between two collections.
const BUFFER_SAMPLES: usize = 6400;

/// Stacks, and the number of samples of each.
#[derive(Debug, Default)]
pub struct CpuProfile {
    pub(crate) stacks: BTreeMap<Box<[usize]>, u64>,
    pub(crate) took: Duration,
}

/// Why a profile could not be recorded.
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

/// The buffer into which the signal handler writes samples.
struct Buffer {
    /// A lock for `samples`. A signal handler that finds it locked drops its sample.
    is_taken: AtomicBool,
    samples: UnsafeCell<Vec<Stack>>,
}

// SAFETY: only the thread that has set `is_taken` accesses `samples`.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Runs `work` with the samples; `None` if another thread has the lock.
    fn with<T>(&self, work: impl FnOnce(&mut Vec<Stack>) -> T) -> Option<T> {
        if self.is_taken.swap(true, Ordering::Acquire) {
            return None;
        }
        // SAFETY: `is_taken` was not set, so no other thread accesses the samples.
        let done = work(unsafe { &mut *self.samples.get() });
        self.is_taken.store(false, Ordering::Release);
        Some(done)
    }
}

static BUFFER: Buffer = Buffer { is_taken: AtomicBool::new(false), samples: UnsafeCell::new(Vec::new()) };
static RUNNING: Mutex<()> = Mutex::new(());

/// Records a CPU profile of this process for `duration`; blocks the calling thread.
pub fn profile(duration: Duration) -> Result<CpuProfile, CpuProfileError> {
    let _running = match RUNNING.try_lock() {
        Ok(running) => running,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return Err(CpuProfileError::AlreadyRunning),
    };
    // The unwinder allocates memory at its first use, which must not happen in the signal handler, so it is used once
    // here.
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
    // After the profile the handler gets a buffer without capacity, so that samples of signals that arrive late are
    // dropped.
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

/// Swaps the handler's buffer with `other`.
fn exchange(other: &mut Vec<Stack>) {
    while BUFFER.with(|samples| std::mem::swap(samples, other)).is_none() {
        // A signal handler has the lock; it holds the lock for microseconds only.
        std::hint::spin_loop();
    }
}

extern "C" fn on_timer(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the pointer refers to this thread's `errno`, which lives as long as the thread.
    let error = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *error };
    BUFFER.with(|samples| {
        // A push within the capacity does not allocate.
        if samples.len() < samples.capacity() {
            samples.push(Stack::interrupted());
        }
    });
    // SAFETY: as above.
    unsafe { *error = before };
}

/// Installs the signal handler once and keeps it: without a handler, a late SIGPROF would end the process.
fn install_handler() -> io::Result<()> {
    static IS_INSTALLED: AtomicBool = AtomicBool::new(false);
    if IS_INSTALLED.load(Ordering::Acquire) {
        return Ok(());
    }
    // SAFETY: a `sigaction` of zeroes is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_timer as *const () as usize;
    // SA_ONSTACK is not set, because the alternative signal stack is too small for unwinding.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: both pointers are valid or null, and the handler is async-signal-safe.
    let answer = unsafe { libc::sigaction(libc::SIGPROF, &action, std::ptr::null_mut()) };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    IS_INSTALLED.store(true, Ordering::Release);
    Ok(())
}

/// Starts the timer; an interval of zero stops it.
fn set_timer(interval: Duration) -> io::Result<()> {
    let time = libc::timeval { tv_sec: 0, tv_usec: interval.subsec_micros().into() };
    let timer = libc::itimerval { it_interval: time, it_value: time };
    // SAFETY: both pointers are valid or null.
    match unsafe { libc::setitimer(libc::ITIMER_PROF, &timer, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
