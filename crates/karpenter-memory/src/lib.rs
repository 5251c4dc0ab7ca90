//! How the process uses the allocator of the C library: one heap instead of one for each thread, and what is free goes
//! back to the system. Nothing here allocates, and nothing here is needed for anything to be right.
//!
//! A controller reads a whole cluster once and then only changes. What it needed for that stays with glibc otherwise, in
//! heaps of threads that will never need it again. Where the C library is another one, both do nothing.

/// One heap for all threads. To be called before there is a second one.
pub fn use_one_heap() {
    imp::use_one_heap();
}

/// Gives pages that hold nothing back to the system.
pub fn give_back() {
    imp::give_back();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod imp {
    pub(super) fn use_one_heap() {
        // SAFETY: takes two numbers and changes settings of the allocator under its own lock.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }

    pub(super) fn give_back() {
        // SAFETY: takes a number; works on free memory only, under the allocator's own locks.
        unsafe { libc::malloc_trim(0) };
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod imp {
    pub(super) fn use_one_heap() {}

    pub(super) fn give_back() {}
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    /// Resident pages of this process.
    fn resident_pages() -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
        text.split(' ').nth(1).expect("the second number").parse().expect("a number")
    }

    #[test]
    fn what_was_freed_in_the_middle_goes_back() {
        super::use_one_heap();
        // Small pieces, of which some stay: the heap's end cannot move.
        let mut pieces: Vec<Option<Vec<u8>>> = (0..400_000).map(|_| Some(vec![1; 100])).collect();
        for (number, piece) in pieces.iter_mut().enumerate() {
            if number % 100_000 != 99_999 {
                *piece = None;
            }
        }
        let before = resident_pages();
        super::give_back();
        let after = resident_pages();
        assert!(after + 5_000 < before, "{before} pages before, {after} after");
        assert_eq!(pieces.iter().flatten().count(), 4);
    }
}
