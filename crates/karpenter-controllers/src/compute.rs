//! Runs CPU-bound work on separate threads and catches its panics.
//!
//! Pure work runs on a thread of its own, so that it neither blocks the async runtime nor delays shutdown. A panic in
//! that work becomes an error value. A panic anywhere else aborts the process ([`abort_on_other_panics`]), because a
//! task that ended silently would stop a controller.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use karpenter_model::plan::Plan;
use karpenter_model::problem::Problem;
use karpenter_scheduling::validate::Violation;
use karpenter_scheduling::validated::{Planner, PlannerPanic};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

/// The kind of work that runs on a separate thread. The thread is named after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    Provisioning,
    Disruption,
}

impl Lane {
    fn thread_name(self) -> &'static str {
        match self {
            Self::Provisioning => "solver-provisioning",
            Self::Disruption => "solver-disruption",
        }
    }
}

thread_local! {
    /// Whether the thread is inside [`catch`].
    static IS_CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// The number of calls of [`catch`] that have not returned.
static CATCHING: AtomicUsize = AtomicUsize::new(0);

/// The source location of the last caught panic. The panic may have occurred on another thread than the one that
/// catches it.
static LAST_LOCATION: Mutex<Option<String>> = Mutex::new(None);

/// Installs a panic hook that aborts the process for panics outside of [`catch`]. Call it before anything else.
pub fn abort_on_other_panics() {
    let print_panic = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if is_caught() {
            record_location(info);
        } else {
            print_panic(info);
            std::process::abort();
        }
    }));
}

/// Whether [`catch`] handles a panic of this thread. On a thread of rayon's pool it does while any call of [`catch`]
/// runs: only the solver uses rayon, and rayon passes panics to the calling thread.
fn is_caught() -> bool {
    let is_work_caught = || CATCHING.load(Ordering::Relaxed) > 0;
    IS_CATCHING.get() || (rayon::current_thread_index().is_some() && is_work_caught())
}

fn record_location(info: &PanicHookInfo<'_>) {
    let location = info.location().map(|at| format!("{}:{}", at.file(), at.line()));
    *LAST_LOCATION.lock().unwrap_or_else(PoisonError::into_inner) = location;
}

/// Runs pure work and returns its result, or the panic that ended it.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, PlannerPanic> {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_CATCHING.set(self.0);
            CATCHING.fetch_sub(1, Ordering::Relaxed);
        }
    }
    CATCHING.fetch_add(1, Ordering::Relaxed);
    let _restore = Restore(IS_CATCHING.replace(true));
    // `AssertUnwindSafe` is correct, because pure work shares no state that a panic could leave half changed.
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let message = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        let location = LAST_LOCATION.lock().unwrap_or_else(PoisonError::into_inner).take();
        PlannerPanic { message, location: location.unwrap_or_else(|| "an unknown location".to_owned()) }
    })
}

/// Runs work on a separate thread. On a single-threaded runtime the work runs on the current thread, so that
/// simulations are deterministic.
pub async fn run<T: Send + 'static>(
    lane: Lane,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, PlannerPanic> {
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        return catch(work);
    }
    let (answer, answered) = oneshot::channel();
    let thread = std::thread::Builder::new().name(lane.thread_name().to_owned());
    let spawned = thread.spawn(move || {
        // Sending fails if the caller no longer waits for the result.
        let _ = answer.send(catch(work));
    });
    let no_answer = |message: String| Err(PlannerPanic { message, location: "starting a thread".to_owned() });
    match spawned {
        Ok(_) => answered.await.unwrap_or_else(|error| no_answer(error.to_string())),
        Err(error) => no_answer(error.to_string()),
    }
}

/// A planner whose panics are caught and returned as errors.
pub struct CatchPanics<'a>(pub &'a dyn Planner);

impl Planner for CatchPanics<'_> {
    fn plan(&self, problem: &Problem) -> Result<Plan, PlannerPanic> {
        catch(|| self.0.plan(problem))?
    }

    fn validate(&self, problem: &Problem, plan: &Plan) -> Result<Vec<Violation>, PlannerPanic> {
        catch(|| self.0.validate(problem, plan))?
    }
}
