//! Where a thread is: the addresses of its calls, innermost first.

/// Calls further out than this are cut off.
pub(crate) const DEPTH_MAX: usize = 64;

/// Addresses of calls. Those of callers are of the call itself, not of the instruction that it returns to.
#[derive(Clone, Copy)]
pub(crate) struct Stack {
    addresses: [usize; DEPTH_MAX],
    depth: usize,
}

impl Stack {
    pub(crate) fn addresses(&self) -> &[usize] {
        &self.addresses[..self.depth]
    }

    /// The calls of this thread. Allocates nothing.
    #[cfg(target_os = "linux")]
    pub(crate) fn capture() -> Self {
        imp::capture(false)
    }

    /// In a handler of signals: the calls that the signal interrupted. Allocates nothing.
    #[cfg(target_os = "linux")]
    pub(crate) fn interrupted() -> Self {
        imp::capture(true)
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn capture() -> Self {
        Self { addresses: [0; DEPTH_MAX], depth: 0 }
    }
}

#[cfg(target_os = "linux")]
mod imp {
    use std::ffi::{c_int, c_void};

    use super::{DEPTH_MAX, Stack};

    const CONTINUE: c_int = 0;
    /// `_URC_END_OF_STACK`.
    const ENOUGH: c_int = 5;

    type Visit = extern "C" fn(*mut c_void, *mut c_void) -> c_int;

    // The unwinder that the standard library links for panics.
    unsafe extern "C" {
        fn _Unwind_Backtrace(visit: Visit, argument: *mut c_void) -> c_int;
        fn _Unwind_GetIPInfo(context: *mut c_void, is_interrupted: *mut c_int) -> usize;
    }

    struct Walk {
        stack: Stack,
        begins_at_signal: bool,
    }

    extern "C" fn visit(context: *mut c_void, walk: *mut c_void) -> c_int {
        let mut is_interrupted = 0;
        // SAFETY: `context` is what the unwinder hands to its callback, and it writes one number.
        let address = unsafe { _Unwind_GetIPInfo(context, &mut is_interrupted) };
        // SAFETY: the pointer is the one that `capture` passes, to a value that lives until the walk is over.
        let walk = unsafe { &mut *walk.cast::<Walk>() };
        if is_interrupted != 0 && walk.begins_at_signal {
            // What was seen so far is the handler.
            walk.begins_at_signal = false;
            walk.stack.depth = 0;
        }
        let Some(place) = walk.stack.addresses.get_mut(walk.stack.depth) else { return ENOUGH };
        if address == 0 {
            return ENOUGH;
        }
        // A caller's address is that of the instruction after the call, which may belong to another function.
        *place = if is_interrupted != 0 { address } else { address - 1 };
        walk.stack.depth += 1;
        CONTINUE
    }

    #[inline(never)]
    pub(super) fn capture(begins_at_signal: bool) -> Stack {
        let mut walk = Walk { stack: Stack { addresses: [0; DEPTH_MAX], depth: 0 }, begins_at_signal };
        // SAFETY: the callback fits, and `walk` outlives the call. The unwinder reads its tables and takes no lock that a
        // signal could have interrupted; it allocates nothing.
        unsafe { _Unwind_Backtrace(visit, (&raw mut walk).cast()) };
        walk.stack
    }
}
