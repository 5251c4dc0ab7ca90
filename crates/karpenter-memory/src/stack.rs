//! The stack of a thread: the addresses of its calls, innermost first.

/// The maximum number of calls; outer calls are dropped.
pub(crate) const DEPTH_MAX: usize = 64;

/// Addresses of calls. For a calling function, it is the address of the call and not the return address.
#[derive(Clone, Copy)]
pub(crate) struct Stack {
    addresses: [usize; DEPTH_MAX],
    depth: usize,
}

impl Stack {
    pub(crate) fn addresses(&self) -> &[usize] {
        &self.addresses[..self.depth]
    }

    /// The stack of this thread. Does not allocate.
    #[cfg(target_os = "linux")]
    pub(crate) fn capture() -> Self {
        imp::capture(false)
    }

    /// In a signal handler: the stack that the signal interrupted. Does not allocate.
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
    /// The return code `_URC_END_OF_STACK`, which ends the walk.
    const ENOUGH: c_int = 5;

    type Visit = extern "C" fn(*mut c_void, *mut c_void) -> c_int;

    // The unwinder that the standard library links for panics (libgcc).
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
        // SAFETY: `context` is the unwinder's argument, and the function writes one integer.
        let address = unsafe { _Unwind_GetIPInfo(context, &mut is_interrupted) };
        // SAFETY: `capture` passes a pointer to a `Walk` that lives until the unwinder returns.
        let walk = unsafe { &mut *walk.cast::<Walk>() };
        if is_interrupted != 0 && walk.begins_at_signal {
            // The calls recorded so far belong to the signal handler, not to the interrupted code, so they are dropped.
            walk.begins_at_signal = false;
            walk.stack.depth = 0;
        }
        let Some(place) = walk.stack.addresses.get_mut(walk.stack.depth) else { return ENOUGH };
        if address == 0 {
            return ENOUGH;
        }
        // The return address may belong to the next function; the byte before it belongs to the call.
        *place = if is_interrupted != 0 { address } else { address - 1 };
        walk.stack.depth += 1;
        CONTINUE
    }

    #[inline(never)]
    pub(super) fn capture(begins_at_signal: bool) -> Stack {
        let mut walk = Walk { stack: Stack { addresses: [0; DEPTH_MAX], depth: 0 }, begins_at_signal };
        // SAFETY: the callback has the expected signature, and `walk` outlives the call. The unwinder only reads its
        // tables: it does not allocate, and takes no lock that the interrupted thread could hold.
        unsafe { _Unwind_Backtrace(visit, (&raw mut walk).cast()) };
        walk.stack
    }
}
