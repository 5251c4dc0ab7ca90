//! Configures the C library's allocator (glibc): all threads use one heap, and free pages are returned to the system.
//! The only effect is less resident memory.
//!
//! A controller lists the whole cluster once and then processes changes. With glibc's defaults the memory of that list
//! stays in per-thread heaps (arenas) that are not used again. With another C library both functions do nothing.
//!
//! This crate also records CPU profiles ([`cpu`]) and heap profiles ([`heap`]) in pprof's format ([`profile`]). Both
//! are off until they are started, and need Linux.

#[cfg(target_os = "linux")]
pub mod cpu;
pub mod heap;
#[cfg(target_os = "linux")]
pub mod profile;
mod stack;
#[cfg(target_os = "linux")]
mod symbols;

/// Makes all threads use one heap. Call it before the process starts a second thread.
pub fn use_one_heap() {
    imp::use_one_heap();
}

/// Returns free pages of the heap to the system.
pub fn release_free_pages() {
    imp::release_free_pages();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod imp {
    pub(super) fn use_one_heap() {
        // SAFETY: takes two numbers and changes settings of the allocator under its own lock.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }

    pub(super) fn release_free_pages() {
        // SAFETY: takes a number; works on free memory only, under the allocator's own locks.
        unsafe { libc::malloc_trim(0) };
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod imp {
    pub(super) fn use_one_heap() {}

    pub(super) fn release_free_pages() {}
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    /// The number of resident pages of this process.
    fn resident_pages() -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
        text.split(' ').nth(1).expect("the second number").parse().expect("a number")
    }

    #[test]
    fn free_pages_in_the_middle_of_the_heap_are_returned() {
        super::use_one_heap();
        // The test allocates small blocks and frees most of them: glibc cannot shrink a heap whose end is in use.
        let mut pieces: Vec<Option<Vec<u8>>> = (0..400_000).map(|_| Some(vec![1; 100])).collect();
        for (number, piece) in pieces.iter_mut().enumerate() {
            if number % 100_000 != 99_999 {
                *piece = None;
            }
        }
        let before = resident_pages();
        super::release_free_pages();
        let after = resident_pages();
        assert!(after + 5_000 < before, "{before} pages before, {after} after");
        assert_eq!(pieces.iter().flatten().count(), 4);
    }
}
